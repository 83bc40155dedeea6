package client_test

import (
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// proxy is a way over TCP to a server, which can break in the ways of networks.
type proxy struct {
	listener net.Listener
	target   string
	copies   sync.WaitGroup

	mu    sync.Mutex
	pairs map[*pair]struct{}
}

// pair is one connection through the proxy.
type pair struct {
	near, far net.Conn
	stalled   chan struct{} // closed: nothing is passed on any more, and nothing is said
}

// newProxy answers a way to the server at the URL.
func newProxy(t *testing.T, url string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{listener: listener, target: strings.TrimPrefix(url, "http://"), pairs: map[*pair]struct{}{}}
	p.copies.Go(p.accept)
	t.Cleanup(func() {
		_ = listener.Close() // nothing more comes
		p.cut()
		p.copies.Wait()
	})
	return p
}

func (p *proxy) url() string { return "http://" + p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = near.Close() // the client notices
			continue
		}
		c := &pair{near: near, far: far, stalled: make(chan struct{})}
		p.mu.Lock()
		p.pairs[c] = struct{}{}
		p.mu.Unlock()
		p.copies.Go(func() { c.copy(near, far) })
		p.copies.Go(func() { c.copy(far, near) })
	}
}

func (c *pair) copy(from, to net.Conn) {
	defer c.close()
	buffer := make([]byte, 4<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		select {
		case <-c.stalled:
			continue
		default:
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func (c *pair) close() {
	_ = c.near.Close() // closed twice is no harm
	_ = c.far.Close()
}

// cut breaks all connections.
func (p *proxy) cut() {
	for _, c := range p.take() {
		c.close()
	}
}

// stall leaves all connections open and lets nothing through, as a network does
// that forgot them.
func (p *proxy) stall() {
	for _, c := range p.take() {
		close(c.stalled)
	}
}

// halfOpen closes the server's side only.
func (p *proxy) halfOpen() {
	for _, c := range p.take() {
		close(c.stalled)
		_ = c.far.Close()
	}
}

func (p *proxy) take() (taken []*pair) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.pairs {
		taken = append(taken, c)
		delete(p.pairs, c)
	}
	return taken
}
