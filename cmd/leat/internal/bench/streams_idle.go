package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"time"

	"golang.org/x/sync/errgroup"
)

// idleReaders is how many subscribers of the memory case there are.
const idleReaders = 2000

// idleReaders holds subscribers that get nothing, and takes the memory that the
// process needs for them. Their side is a bare connection, which needs next to
// none.
func (l *lab) idleReaders(ctx context.Context, c *clock) (t tally, err error) {
	stream, err := l.declareStream(ctx)
	if err != nil {
		return tally{}, err
	}
	address, err := url.Parse(l.main.client.URL())
	if err != nil {
		return tally{}, err
	}
	n := max(2, idleReaders/l.cfg.Scale)
	conns := make([]net.Conn, n)
	defer func() {
		for _, conn := range conns {
			if conn != nil {
				_ = conn.Close() // nobody waits for it
			}
		}
	}()
	debug.FreeOSMemory()
	before := l.meter.memory()
	if err := c.start(ctx); err != nil {
		return tally{}, err
	}
	group, dialling := errgroup.WithContext(ctx)
	group.SetLimit(50)
	for i := range conns {
		group.Go(func() (err error) {
			conns[i], err = idleReader(dialling, address.Host, stream)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return tally{}, err
	}
	if err := c.stop(ctx); err != nil {
		return tally{}, err
	}
	debug.FreeOSMemory()
	if after := l.meter.memory(); before > 0 {
		t.memory = max(1, after-before)
	}
	t.messages = n
	return t, nil
}

const handshake = "GET /v1/streams/%s/subscribe HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
	"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"

// idleReader subscribes by hand, and returns when the first frame has come.
func idleReader(ctx context.Context, host, stream string) (_ net.Conn, err error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", host)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, conn.Close())
		}
	}()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(conn, handshake, stream, host); err != nil {
		return nil, err
	}
	from := bufio.NewReaderSize(conn, 1024)
	response, err := http.ReadResponse(from, nil) //nolint:bodyclose // it is the connection
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusSwitchingProtocols {
		return nil, fmt.Errorf("subscribe: %s", response.Status)
	}
	if _, err := from.ReadByte(); err != nil { // of the frame that says that it began
		return nil, err
	}
	return conn, conn.SetDeadline(time.Time{})
}
