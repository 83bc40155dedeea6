package client

import (
	"context"
	"slices"
	"time"

	"leat/api"
	"leat/eventstore"
)

const (
	// maxReceipts fit into a frame.
	maxReceipts = 500
	// maxFlights is how many settlements may be without an answer.
	maxFlights = 8
	// settleAgain is when a settlement is repeated that the server could not make.
	settleAgain = 250 * time.Millisecond
)

// clerk settles what handlers finish over one connection, and extends the leases
// of what they have not finished. Acks gather while others are under way.
type clerk struct {
	k       *consumer
	sock    *socket
	session int
	lease   time.Duration
	gone    chan struct{} // closed when the connection has ended

	// Guarded by the consumer's mu.
	last      int64                // id of a frame
	flights   map[int64]settlement // without an answer
	notBefore time.Time            // something was refused
}

func newClerk(k *consumer, sock *socket, session int, lease time.Duration) *clerk {
	return &clerk{
		k: k, sock: sock, session: session, lease: positive(lease, 30*time.Second),
		gone: make(chan struct{}), flights: map[int64]settlement{},
	}
}

// run writes until the connection has ended, or ends it when there will be
// nothing more to write.
func (c *clerk) run(running context.Context) {
	renew := time.NewTicker(max(c.lease/6, time.Millisecond))
	defer renew.Stop()
	again := time.NewTimer(longTime)
	defer again.Stop()
	var (
		ending   = running.Done()
		idle     <-chan struct{}
		deadline <-chan time.Time
		last     bool
	)
	for {
		if !c.write() {
			c.sock.drop() // the reader tells
			return
		}
		if last && c.quiet() {
			c.sock.close()
			return
		}
		again.Reset(c.wait())
		select {
		case <-c.gone:
			return
		case <-c.k.changed:
		case <-again.C:
		case <-renew.C:
			if !c.extend() {
				c.sock.drop()
				return
			}
		case <-ending:
			ending, idle = nil, c.k.idle
		case <-idle:
			idle, last, deadline = nil, true, time.After(settleWithin)
		case <-deadline:
			c.sock.drop()
			return
		}
	}
}

// write sends what there is to settle.
func (c *clerk) write() bool {
	for {
		frame := c.next()
		if frame == nil {
			return true
		}
		if err := c.sock.write(frame); err != nil {
			return false
		}
	}
}

// next is the next frame: the acks that wait are one.
func (c *clerk) next() any {
	c.k.mu.Lock()
	defer c.k.mu.Unlock()
	if len(c.flights) >= maxFlights || len(c.k.outbox) == 0 || time.Now().Before(c.notBefore) {
		return nil
	}
	s := c.gather()
	c.last++
	c.flights[c.last] = s
	switch {
	case s.nack != nil:
		frame := *s.nack
		frame.ID, frame.Receipts = c.last, s.receipts()
		return frame
	case s.back:
		return api.SettleFrame{Type: api.FrameRelease, ID: c.last, Receipts: s.receipts()}
	default:
		return api.SettleFrame{Type: api.FrameAck, ID: c.last, Receipts: s.receipts()}
	}
}

// gather takes the first settlement out of the box, and with it others that say
// the same, until the frame is full. The mu is held.
func (c *clerk) gather() settlement {
	first := c.k.outbox[0]
	if first.nack != nil {
		c.k.outbox = c.k.outbox[1:]
		return first
	}
	all := settlement{back: first.back}
	rest := make([]settlement, 0, len(c.k.outbox))
	for _, s := range c.k.outbox {
		room := maxReceipts - len(all.held)
		if s.nack != nil || s.back != all.back || room == 0 {
			rest = append(rest, s)
			continue
		}
		n := min(room, len(s.held))
		all.held = append(all.held, s.held[:n]...)
		if n < len(s.held) {
			s.held = s.held[n:]
			rest = append(rest, s)
		}
	}
	c.k.outbox = rest
	return all
}

// extend renews what is a third of a lease old. Each frame may be lost, or the
// server be late: there are two more chances.
func (c *clerk) extend() bool {
	for receipts := range slices.Chunk(c.k.stale(c.session, c.lease/3), maxReceipts) {
		c.k.mu.Lock()
		c.last++
		id := c.last
		c.k.mu.Unlock()
		if err := c.sock.write(api.ExtendFrame{Type: api.FrameExtend, ID: id, Receipts: receipts}); err != nil {
			return false
		}
	}
	return true
}

// wait is how long a refused settlement has to wait.
func (c *clerk) wait() time.Duration {
	c.k.mu.Lock()
	defer c.k.mu.Unlock()
	if len(c.k.outbox) == 0 || len(c.flights) >= maxFlights {
		return longTime
	}
	return max(time.Until(c.notBefore), time.Millisecond)
}

// quiet reports whether everything is settled.
func (c *clerk) quiet() bool {
	c.k.mu.Lock()
	defer c.k.mu.Unlock()
	return len(c.k.outbox) == 0 && len(c.flights) == 0
}

// settled takes note of an answer.
func (c *clerk) settled(frame api.SettledFrame) {
	c.k.mu.Lock()
	defer c.k.mu.Unlock()
	s, settling := c.flights[frame.ID]
	delete(c.flights, frame.ID)
	c.k.failed(frame.Failed, settling)
	for _, h := range s.held {
		c.k.forget(h)
	}
	signal(c.k.changed)
}

// refused takes note of a settlement that was not made: what may pass is tried
// again, for as long as the lease lasts.
func (c *clerk) refused(id int64, problem *api.Problem) {
	c.k.mu.Lock()
	defer c.k.mu.Unlock()
	s, settling := c.flights[id]
	delete(c.flights, id)
	if !settling {
		return // an extension: its time comes again
	}
	switch problem.Code {
	case eventstore.DatabaseUnavailable, eventstore.Busy, eventstore.ViewsRebuilding, eventstore.ShuttingDown, eventstore.Internal:
		c.notBefore = time.Now().Add(settleAgain)
		c.k.outbox = append(c.k.outbox, s)
	default:
		c.k.config.Logger.Warn("the server refused a settlement: the messages come again",
			"queue", c.k.queue, "receipts", s.receipts(), "problem", problem.Error())
		for _, h := range s.held {
			c.k.forget(h)
		}
	}
	signal(c.k.changed)
}

// abandon keeps acks without an answer for the next connection.
func (c *clerk) abandon() {
	c.k.mu.Lock()
	defer c.k.mu.Unlock()
	for _, s := range c.flights {
		if s.ack() {
			c.k.outbox = append(c.k.outbox, s)
			continue
		}
		for _, h := range s.held {
			c.k.forget(h)
		}
	}
}
