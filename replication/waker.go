package replication

import (
	"context"
	"sync"
	"time"

	"leat/eventstore"
)

// The write-ahead log tells of a commit before snapshots show it, by microseconds,
// or, with synchronous replication, by a way to the standby and back. Whoever looked
// too early is woken again, after the one and then the other time.
const (
	firstEcho  = 10 * time.Millisecond
	secondEcho = 100 * time.Millisecond
)

// waker passes the wake-ups of the write-ahead log on, each three times.
type waker struct {
	wake          func(channels ...eventstore.ChannelID)
	first, second *gathered
}

func newWaker(wake func(channels ...eventstore.ChannelID)) *waker {
	return &waker{wake: wake, first: newGathered(), second: newGathered()}
}

// tell wakes now, and notes the channels for later.
func (w *waker) tell(channels ...eventstore.ChannelID) {
	w.wake(channels...)
	w.first.add(channels)
}

// run wakes again until ctx ends.
func (w *waker) run(ctx context.Context) {
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() {
		w.first.each(ctx, firstEcho, func(channels []eventstore.ChannelID) {
			w.wake(channels...)
			w.second.add(channels)
		})
	})
	w.second.each(ctx, secondEcho, func(channels []eventstore.ChannelID) { w.wake(channels...) })
}
