package ws

import (
	"context"
	"sync"

	"leat/api"
	"leat/eventstore"
)

// committer moves the point of a subscription. Commits that come while one is
// under way are done as one, for each says what those before it said.
type committer struct {
	mu      sync.Mutex
	waiting []eventstore.StreamPosition
	working bool
}

// maxWaiting is how many commits wait as they are; then those that a later one
// covers are forgotten.
const maxWaiting = 1000

// add never blocks: the goroutine that reads also reads the answers to pings.
func (c *committer) add(ctx context.Context, s *session, to api.Subscription, p eventstore.StreamPosition) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.waiting); n < maxWaiting {
		c.waiting = append(c.waiting, p)
	} else if covers(p, c.waiting[n-1]) {
		c.waiting[n-1] = p
	} else {
		return eventstore.NewError(eventstore.InvalidRequest, "%d commits wait, and this one is behind the last of them.", n)
	}
	if !c.working {
		c.working = true
		s.parts.Go(func() { c.work(ctx, s, to) })
	}
	return nil
}

// covers says whether a commit of p is one of earlier, too.
func covers(p, earlier eventstore.StreamPosition) bool {
	return p.Epoch == earlier.Epoch && p.Offset >= earlier.Offset
}

// work commits until nothing waits.
func (c *committer) work(ctx context.Context, s *session, to api.Subscription) {
	for {
		run := c.take()
		if run == nil {
			return
		}
		if err := guard(func() error { return commitRun(ctx, s, to, run) }); err != nil {
			s.end(err)
			return
		}
	}
}

// take hands out what waits, up to the first commit that goes back.
func (c *committer) take() []eventstore.StreamPosition {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 {
		c.working = false
		c.waiting = nil
		return nil
	}
	n := 1
	for n < len(c.waiting) && covers(c.waiting[n], c.waiting[n-1]) {
		n++
	}
	run := c.waiting[:n:n]
	c.waiting = c.waiting[n:]
	return run
}

// commitRun commits the last position, which covers the others. If that is
// refused, each is tried, so that the good ones count.
func commitRun(ctx context.Context, s *session, to api.Subscription, run []eventstore.StreamPosition) error {
	last := run[len(run)-1]
	err := to.Commit(ctx, last)
	if err == nil {
		return s.send(ctx, api.CommittedFrame{Type: api.FrameCommitted, Offset: last.Offset})
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for _, p := range run[:len(run)-1] {
		if err := commitRun(ctx, s, to, []eventstore.StreamPosition{p}); err != nil {
			return err
		}
	}
	return refuse(ctx, s, last.Offset, err)
}
