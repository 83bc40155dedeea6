package replication

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"leat/eventstore"
)

// gathered are channels that wait to be told of together.
type gathered struct {
	mu      sync.Mutex
	pending map[eventstore.ChannelID]struct{}
	due     chan struct{}
}

func newGathered() *gathered {
	return &gathered{pending: map[eventstore.ChannelID]struct{}{}, due: make(chan struct{}, 1)}
}

func (g *gathered) add(channels []eventstore.ChannelID) {
	if len(channels) == 0 {
		return
	}
	g.mu.Lock()
	for _, id := range channels {
		g.pending[id] = struct{}{}
	}
	g.mu.Unlock()
	select {
	case g.due <- struct{}{}:
	default: // they are told of together with those before
	}
}

// each calls tell with what has gathered, until ctx ends. It waits for the first
// channel, and then for more of them.
func (g *gathered) each(ctx context.Context, gather time.Duration, tell func(channels []eventstore.ChannelID)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.due:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(gather):
		}
		if channels := g.take(); len(channels) > 0 {
			tell(channels)
		}
	}
}

func (g *gathered) take() []eventstore.ChannelID {
	g.mu.Lock()
	defer g.mu.Unlock()
	channels := slices.Collect(maps.Keys(g.pending))
	clear(g.pending)
	return channels
}
