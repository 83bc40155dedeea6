package replication_test

import (
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// proxy is a way over TCP to a server. It may go silent, as behind a NAT that
// forgot: what is sent is taken and not passed on, and nothing is reset.
type proxy struct {
	network, address string // of the server
	listener         net.Listener
	copies           sync.WaitGroup

	mu     sync.Mutex
	silent bool
	pairs  []*pair
}

// pair is one connection through the proxy.
type pair struct {
	near, far net.Conn
	silent    chan struct{} // closed when it has gone silent
}

// newProxy also answers the URL of the pool's database by way of the proxy.
func newProxy(t *testing.T, pool *pgxpool.Pool) (*proxy, string) {
	t.Helper()
	config := pool.Config().ConnConfig
	p := &proxy{}
	p.network, p.address = pgconn.NetworkAddress(config.Host, config.Port)
	var err error
	p.listener, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p.copies.Go(p.accept)
	t.Cleanup(func() {
		_ = p.listener.Close() // nothing more comes either way
		p.mu.Lock()
		for _, c := range p.pairs {
			c.close()
		}
		p.mu.Unlock()
		p.copies.Wait()
	})
	return p, (&url.URL{
		Scheme: "postgres", User: url.UserPassword(config.User, config.Password), Host: p.listener.Addr().String(),
		Path: "/" + config.Database, RawQuery: "sslmode=disable",
	}).String()
}

func (p *proxy) accept() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial(p.network, p.address)
		if err != nil {
			_ = near.Close() // the client notices
			continue
		}
		c := &pair{near: near, far: far, silent: make(chan struct{})}
		p.mu.Lock()
		p.pairs = append(p.pairs, c)
		if p.silent {
			close(c.silent)
		}
		p.mu.Unlock()
		p.copies.Go(func() { c.copy(near, far) })
		p.copies.Go(func() { c.copy(far, near) })
	}
}

// copy passes on what comes until the pair goes silent, and then swallows it.
func (c *pair) copy(from, to net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		select {
		case <-c.silent:
		default:
			if err == nil {
				_, err = to.Write(buffer[:n])
			}
			if err != nil {
				c.close()
			}
		}
		if err != nil {
			return
		}
	}
}

func (c *pair) close() {
	_ = c.near.Close() // closed twice is no harm
	_ = c.far.Close()
}

// silence makes all connections silent, and those to come.
func (p *proxy) silence() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = true
	for _, c := range p.pairs {
		select {
		case <-c.silent:
		default:
			close(c.silent)
		}
	}
}

// speak lets connections to come through again; the silent ones stay so.
func (p *proxy) speak() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = false
}
