package ws

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"leat/api"
	"leat/eventstore"
)

// pinger asks now and then whether the peer is there. A timer costs an idle
// session less than a goroutine.
type pinger struct {
	busy  atomic.Bool // messages were sent since the last ping
	heard atomic.Bool // the peer did something else than answer since the last ping

	mu      sync.Mutex
	timer   *time.Timer
	stopped bool
}

var errNoPong = eventstore.NewError(api.NoPong, "A ping was not answered in time.")

func (p *pinger) start(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return
	}
	s.parts.Add(1)
	p.timer = time.AfterFunc(s.server.config.Ping, func() {
		defer s.parts.Done()
		if p.ping(s) {
			p.start(s)
		}
	})
}

// stop is called before s.parts is waited for.
func (p *pinger) stop(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	if p.timer.Stop() {
		s.parts.Done()
	}
}

// ping says whether to go on.
func (p *pinger) ping(s *session) bool {
	if len(s.writing) > 0 {
		return true // the frame has a limit of its own, and a ping would wait behind it
	}
	patience := s.server.config.Pong
	if p.busy.Swap(false) {
		// It reads the ping after the messages, one by one perhaps.
		patience = max(patience, s.server.config.Stuck)
	}
	p.heard.Store(false)
	// Ping ends with the connection, and only the wait for the answer with ctx.
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := s.conn.Ping(ctx)
	if err != nil && ctx.Err() != nil && !p.heard.Load() {
		s.end(errNoPong)
		return false
	}
	return true
}
