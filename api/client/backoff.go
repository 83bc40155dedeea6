package client

import (
	"context"
	"math/rand/v2"
	"time"
)

// Bounds of the wait before something is tried again.
const (
	firstWait = 50 * time.Millisecond
	maxWait   = 10 * time.Second
)

// backoff is how long to wait, longer each time, and never as long as others
// who began to wait at the same moment.
type backoff struct {
	last time.Duration
}

// next is between a half and all of a time that doubles.
func (b *backoff) next() time.Duration {
	b.last = min(max(2*b.last, firstWait), maxWait)
	return b.last/2 + rand.N(b.last/2)
}

func (b *backoff) reset() { b.last = 0 }

// pause waits, and reports whether it was not cut short.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
