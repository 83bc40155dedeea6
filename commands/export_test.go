package commands

import (
	"context"
	"encoding/json"
)

// Coalescer is for tests without a database.
type Coalescer[Req, Res any] struct{ c coalescer[Req, Res] }

// NewCoalescer makes a coalescer whose requests are one item each.
func NewCoalescer[Req, Res any](flights, worth, maxItems int, run func([]Req) ([]Res, error), separable func(error) bool) *Coalescer[Req, Res] {
	return &Coalescer[Req, Res]{coalescer[Req, Res]{
		flights: flights, worth: worth, maxItems: maxItems, maxWeight: 1 << 20,
		size:      func(Req) (int, int) { return 1, 1 },
		run:       run,
		separable: separable,
	}}
}

// Submit is submit.
func (c *Coalescer[Req, Res]) Submit(ctx context.Context, req Req) (Res, error) {
	return c.c.submit(ctx, req)
}

// CheckHeaders is checkHeaders.
func CheckHeaders(raw json.RawMessage) error { return checkHeaders(raw) }

// Statements are all the statements of the package.
func Statements() []string {
	return []string{
		ackSQL, alterChannelSQL, claimSQL, commitModeSQL, contentsSQL, declareChannelSQL, deleteChannelSQL, extendSQL, fatesSQL,
		findChannelSQL, nackSQL, publishSQL, purgeSQL, releaseSQL, setCommitModeSQL, sweepSQL,
	}
}

// Waiting counts the polls that have found nothing and wait.
func (b *Broker) Waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, d := range b.dispatchers {
		for _, w := range d.waiters {
			if (w.tried || !d.drained.IsZero()) && !w.claiming {
				n++
			}
		}
	}
	return n
}
