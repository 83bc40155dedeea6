package commands

import (
	"math"
	"time"
)

// Bounds of what a waiter may get before the others get anything.
const (
	flowTime = 100 * time.Millisecond
	maxGrain = 16
)

// flow knows how many messages a queue gave out lately. What a claim finds is
// divided evenly among those who wait. But a delivery costs several times what a
// message in it costs, so under load they take turns at whole portions: of at most
// what each of them has had on average lately, which evens out as fast.
type flow struct {
	sum float64 // decays
	at  time.Time
}

// add notes messages that were given out.
func (f *flow) add(now time.Time, messages int) {
	f.sum = f.now(now) + float64(messages)
	f.at = now
}

func (f *flow) now(now time.Time) float64 {
	return f.sum * math.Exp(-now.Sub(f.at).Seconds()/flowTime.Seconds())
}

// grain is the least that one of so many waiters gets, if there is anything for it.
func (f *flow) grain(now time.Time, waiters int) int {
	return max(1, min(maxGrain, int(f.now(now))/max(1, waiters)))
}
