package client

import (
	"context"
	"time"

	"leat/api"
	"leat/eventstore"
)

const (
	// settleWithin bounds how long the end waits for the server's last word.
	settleWithin = 5 * time.Second
	// commitAgain is when a commit is repeated that the server could not make.
	commitAgain = 500 * time.Millisecond
	// longTime is no particular time.
	longTime = time.Hour
)

// pen writes the acks and commits of one connection of a subscription. Commits
// gather while one is under way.
type pen struct {
	s       *subscription
	sock    *socket
	session int
	gone    chan struct{} // closed when the connection has ended

	// Guarded by the subscription's mu.
	seen      eventstore.Offset // behind what this connection brought
	flight    *progress         // a commit without an answer
	committed progress
	acked     progress  // what the server was told last
	at        time.Time // of the last commit
	notBefore time.Time // a commit that was refused is repeated
}

func newPen(s *subscription, sock *socket, frame *api.SubscribedFrame) *pen {
	s.mu.Lock()
	defer s.mu.Unlock()
	// What was handled before counts for this connection when it brings it again.
	start := progress{next: frame.Next, messages: s.done.messages}
	return &pen{
		s: s, sock: sock, session: s.sessions, gone: make(chan struct{}),
		seen: frame.Next, committed: start, acked: start, at: time.Now(),
	}
}

// run writes until the connection has ended, or ends it when there will be
// nothing more to write.
func (p *pen) run(running context.Context) {
	timer := time.NewTimer(longTime)
	defer timer.Stop()
	var (
		ending   = running.Done()
		idle     <-chan struct{}
		deadline <-chan time.Time
		last     bool
	)
	for {
		frame, wait := p.write(last)
		if frame != nil {
			if err := p.sock.write(frame); err != nil {
				p.sock.drop() // the reader tells
				return
			}
			continue
		}
		if last && p.quiet() {
			p.sock.close()
			return
		}
		timer.Reset(wait)
		select {
		case <-p.gone:
			return
		case <-p.s.changed:
		case <-timer.C:
		case <-ending:
			ending, idle = nil, p.s.idle
		case <-idle:
			idle, last, deadline = nil, true, time.After(settleWithin)
		case <-deadline:
			p.sock.drop()
			return
		}
	}
}

// write answers the next frame to write, or how long there is none.
func (p *pen) write(last bool) (frame any, wait time.Duration) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	now, ok := p.progress()
	if !ok {
		return nil, longTime
	}
	wait = longTime
	if p.commits() && p.flight == nil && now.differs(p.committed) {
		if wait = p.due(now, last); wait <= 0 {
			p.flight, p.acked, p.at = &now, now, time.Now()
			return api.CommitFrame{Type: api.FrameCommit, Offset: now.next - 1, Epoch: p.s.epoch}, 0
		}
	}
	if now.messages-p.acked.messages >= max(1, p.s.config.Window/4) {
		p.acked = now
		return api.AckFrame{Type: api.FrameAck, Offset: now.next - 1}, 0
	}
	return nil, wait
}

func (p *pen) commits() bool { return p.s.config.Point != "" && !p.s.config.NoCommit }

// progress is how far the handlers are with what this connection brought.
func (p *pen) progress() (progress, bool) {
	now := p.s.done
	if p.s.group {
		return now, now.session == p.session && now.next > 0
	}
	now.next = min(now.next, p.seen)
	return now, now.next > p.committed.next || now.next > p.acked.next
}

func (p progress) differs(from progress) bool {
	return p.next != from.next || p.messages != from.messages
}

// due is how long a commit has to wait.
func (p *pen) due(now progress, last bool) time.Duration {
	config := &p.s.config
	refused := time.Until(p.notBefore)
	switch {
	case last,
		config.CommitEvery == 0 && config.CommitInterval == 0,
		config.CommitEvery > 0 && now.messages-p.committed.messages >= config.CommitEvery:
		return refused
	case config.CommitInterval == 0:
		return longTime
	default:
		return max(refused, time.Until(p.at.Add(config.CommitInterval)))
	}
}

// quiet reports whether there is nothing left to commit.
func (p *pen) quiet() bool {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if !p.commits() {
		return true
	}
	now, ok := p.progress()
	return p.flight == nil && (!ok || !now.differs(p.committed))
}

// saw takes note of what the connection brought.
func (p *pen) saw(next eventstore.Offset) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.seen = next
	signal(p.s.changed) // what it brought may be handled already
}

// done takes note of the answer to a commit.
func (p *pen) done(offset eventstore.Offset, err error) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if p.flight == nil || p.flight.next-1 != offset {
		return
	}
	if err == nil {
		p.committed = *p.flight
		p.s.confirmed = p.flight.next
	} else {
		p.notBefore = time.Now().Add(commitAgain)
	}
	p.flight = nil
	signal(p.s.changed)
}

// refused takes note of a commit that was not made. The error is one that will
// come each time.
func (p *pen) refused(offset eventstore.Offset, problem *api.Problem) error {
	switch problem.Code {
	case eventstore.CommitBehind:
		p.done(offset, nil) // it is further on already
		return nil
	case eventstore.DatabaseUnavailable, eventstore.Busy, eventstore.ViewsRebuilding, eventstore.ShuttingDown, eventstore.Internal,
		eventstore.PointMoved, // the connection ends next
		eventstore.PointTaken: // a partition is another member's: without it the rest can be committed soon
		p.done(offset, problem)
		return nil
	default:
		return &finalError{problem}
	}
}
