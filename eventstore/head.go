package eventstore

import (
	"context"
	"sync"
	"time"
)

const (
	// An append that nobody tells of is noticed after this long.
	headLook = time.Second
	// Whoever is told of commits all the time looks no more often than this.
	headPause = 20 * time.Millisecond
)

// Head tells those who follow the log when it is settled further. However many
// wait, it looks once, and only while somebody waits.
type Head struct {
	store *Store
	poked chan struct{}

	mu      sync.Mutex
	settled Position
	waiting int
	moved   chan struct{} // closed when settled grows
}

// NewHead makes a head of the store's log. Waiting works while it runs.
func NewHead(store *Store) *Head {
	return &Head{store: store, poked: make(chan struct{}, 1), moved: make(chan struct{})}
}

// Poke says that something may have been appended. It never blocks.
func (h *Head) Poke() {
	select {
	case h.poked <- struct{}{}:
	default:
	}
}

// Wait waits until the log is settled beyond after, and answers how far. It ends
// with the context, whose error it then returns.
func (h *Head) Wait(ctx context.Context, after Position) (Position, error) {
	h.join(1)
	defer h.join(-1)
	h.Poke() // what came before we were counted
	for {
		h.mu.Lock()
		settled, moved := h.settled, h.moved
		h.mu.Unlock()
		if settled > after {
			return settled, nil
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-moved:
		}
	}
}

func (h *Head) join(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting += n
}

// Run looks until the context ends, and then returns nil. It outlives the
// database being away.
func (h *Head) Run(ctx context.Context) error {
	look := time.NewTicker(headLook)
	defer look.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-h.poked:
		case <-look.C:
		}
		if !h.awaited() {
			continue
		}
		settled, err := h.store.SettledPosition(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			h.store.logger().Warn("look how far the log is settled: will be tried again", "error", err)
		}
		if failing = err != nil; !failing {
			h.move(settled)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(headPause):
		}
	}
}

func (h *Head) awaited() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.waiting > 0
}

func (h *Head) move(settled Position) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if settled > h.settled {
		h.settled = settled
		close(h.moved)
		h.moved = make(chan struct{})
	}
}
