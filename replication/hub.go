package replication

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"leat/eventstore"
)

// HubConfig is what a hub needs. Bounds that are 0 have their defaults.
type HubConfig struct {
	Pool   *pgxpool.Pool
	Logger *slog.Logger
	// Points are the replication points. Who names one is refused without.
	Points *Points

	// A ring holds the newest messages of a stream that somebody here reads.
	// Default: 8,192 messages, 8 MiB.
	RingMessages int
	RingBytes    int
	// RingsBytes bounds all rings together; the one that was quiet for longest gives
	// way. Default: 64 MiB.
	RingsBytes int
	// PagesBytes bounds what subscriptions hold of the table, but for 64 KiB each.
	// Default: 64 MiB.
	PagesBytes int
	// Readers is how many subscriptions read the table at a time. Default: 4.
	Readers int
	// LostAfter is how long the table may lack what the tail told of before it counts
	// as lost. Default: 10 s.
	LostAfter time.Duration
}

func (c HubConfig) withDefaults() HubConfig {
	c.RingMessages = cmp.Or(c.RingMessages, 8192)
	c.RingBytes = cmp.Or(c.RingBytes, 8<<20)
	c.RingsBytes = cmp.Or(c.RingsBytes, 64<<20)
	c.PagesBytes = cmp.Or(c.PagesBytes, 64<<20)
	c.Readers = cmp.Or(c.Readers, 4)
	c.LostAfter = cmp.Or(c.LostAfter, 10*time.Second)
	return c
}

// fillers read what rings lack, so many at a time. Subscriptions do not take their
// place.
const fillers = 2

// stagedBytes is how much a ring's stage holds before it goes out without a flush.
const stagedBytes = 1 << 20

// Hub is the broker's fan-out: it takes what the tail saw committed, once, and hands
// it to all subscriptions of the broker. It is the Sink of a tail; without one it
// asks the table every second, and when it is poked.
type Hub struct {
	config  HubConfig
	readers chan struct{} // a token per subscription that may read now
	rounds  chan struct{} // tells Run to look at the table
	fills   chan struct{} // tells a filler that there is work
	reads   reads
	derive  func() (context.Context, context.CancelFunc) // contexts that end with the hub
	halt    context.CancelFunc

	ringsBytes atomic.Int64
	pagesBytes atomic.Int64

	mu         sync.Mutex
	rings      map[eventstore.ChannelID]*ring
	ends       map[eventstore.ChannelID]eventstore.Offset // of streams that nobody reads, as the tail told
	generation int                                        // how often the tail began or ended
	live       bool
	poked      map[eventstore.ChannelID]bool
	pokedAll   bool
	queue      []*ring // for the fillers
	stopped    bool

	// Of the tail's goroutine.
	dirty   []*ring
	staged  int // bytes
	flushes int64
}

// NewHub returns a hub that serves once it runs.
func NewHub(config HubConfig) *Hub {
	config = config.withDefaults()
	base, halt := context.WithCancel(context.Background())
	return &Hub{
		derive:  func() (context.Context, context.CancelFunc) { return context.WithCancel(base) },
		halt:    halt,
		config:  config,
		readers: make(chan struct{}, config.Readers),
		rounds:  make(chan struct{}, 1),
		fills:   make(chan struct{}, 1),
		rings:   map[eventstore.ChannelID]*ring{},
		ends:    map[eventstore.ChannelID]eventstore.Offset{},
		poked:   map[eventstore.ChannelID]bool{},
	}
}

// Run keeps the rings until ctx ends, which ends all subscriptions.
func (h *Hub) Run(ctx context.Context) error {
	var group errgroup.Group
	group.Go(func() error { return h.watch(ctx) })
	for range fillers {
		group.Go(func() error { return h.fillRings(ctx) })
	}
	err := group.Wait()
	h.Stop()
	h.reads.stop()
	return err
}

// Stop ends all subscriptions with shutting_down, and refuses others.
func (h *Hub) Stop() {
	h.mu.Lock()
	h.stopped = true
	rings := h.allRings()
	h.mu.Unlock()
	for _, r := range rings {
		r.fail(shuttingDown())
	}
	h.halt()
}

func shuttingDown() *eventstore.Error {
	return eventstore.NewError(eventstore.ShuttingDown, "The broker is stopping.")
}

// allRings is called under the mutex.
func (h *Hub) allRings() []*ring {
	rings := make([]*ring, 0, len(h.rings))
	for _, r := range h.rings {
		rings = append(rings, r)
	}
	return rings
}

// Live is part of Sink.
func (h *Hub) Live() { h.turn(true) }

// Interrupted is part of Sink.
func (h *Hub) Interrupted() { h.turn(false) }

// turn begins a generation, in which the table is asked anew where the streams end.
func (h *Hub) turn(live bool) {
	h.mu.Lock()
	h.live = live
	h.generation++
	h.mu.Unlock()
	h.Poke()
}

// Wants is part of Sink.
func (h *Hub) Wants(channel eventstore.ChannelID, end eventstore.Offset) bool {
	return h.heard(channel, end) != nil
}

// maxEnds is of how many streams that nobody reads the ends are remembered.
const maxEnds = 10_000

// heard answers the ring of a stream. Of a stream that nobody reads it remembers
// where it ends.
func (h *Hub) heard(channel eventstore.ChannelID, end eventstore.Offset) *ring {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.rings[channel]
	if r == nil {
		if len(h.ends) >= maxEnds {
			clear(h.ends) // who comes to read learns of it a second later
		}
		h.ends[channel] = max(h.ends[channel], end)
	}
	return r
}

// Message is part of Sink.
func (h *Hub) Message(channel eventstore.ChannelID, m *eventstore.StreamMessage) {
	r := h.heard(channel, m.Offset+1)
	if r == nil {
		return
	}
	h.soil(r)
	r.staged = append(r.staged, m)
	if h.staged += m.Size(); h.staged > stagedBytes {
		h.Flush()
	}
}

// Batch is part of Sink.
func (h *Hub) Batch(channel eventstore.ChannelID, first eventstore.Offset, n int) {
	r := h.heard(channel, first+eventstore.Offset(n))
	if r == nil {
		return
	}
	h.soil(r)
	h.unstage(r) // in order
	r.apply(func() {
		r.extend(first)
		r.extend(first + eventstore.Offset(n))
	})
}

func (h *Hub) soil(r *ring) {
	if !r.dirty {
		r.dirty = true
		h.dirty = append(h.dirty, r)
	}
}

// unstage gives a ring what came for it.
func (h *Hub) unstage(r *ring) {
	if len(r.staged) == 0 {
		return
	}
	ended := false
	generation, _ := h.now()
	r.apply(func() {
		last := r.staged[len(r.staged)-1]
		if r.synced < generation {
			r.extend(last.Offset + 1) // and the table has the content, once it is compared
		} else {
			r.put(r.staged)
			r.note(markOf(last), generation)
		}
		r.used = h.flushes
		ended = r.err != nil
	})
	if ended { // its last subscriber left, and perhaps another came
		if next := h.heard(r.channel, r.staged[len(r.staged)-1].Offset+1); next != nil && next != r {
			next.apply(func() { next.put(r.staged) })
		}
	}
	clear(r.staged)
	r.staged = r.staged[:0]
}

// Flush is part of Sink.
func (h *Hub) Flush() {
	h.flushes++
	for _, r := range h.dirty {
		h.unstage(r)
		r.dirty = false
		if r.holes() {
			h.schedule(r)
		}
	}
	clear(h.dirty)
	h.dirty, h.staged = h.dirty[:0], 0
	h.shrink()
}

// shrink empties rings that were quiet for longest, until all are within their
// bound.
func (h *Hub) shrink() {
	if h.ringsBytes.Load() <= int64(h.config.RingsBytes) {
		return
	}
	h.mu.Lock()
	rings := h.allRings()
	h.mu.Unlock()
	used := make(map[*ring]int64, len(rings))
	for _, r := range rings {
		r.apply(func() { used[r] = r.used })
	}
	slices.SortFunc(rings, func(a, b *ring) int { return cmp.Compare(used[a], used[b]) })
	for _, r := range rings {
		over := h.ringsBytes.Load() - int64(h.config.RingsBytes)*7/8
		if over <= 0 {
			return
		}
		r.apply(func() { r.trim(max(0, r.bytes-int(over))) })
	}
}

// Reading reports whether somebody here reads a stream.
func (h *Hub) Reading() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.rings) > 0
}

// attach answers the ring of a stream, for one more subscription. The tail passes
// its messages on from now on.
func (h *Hub) attach(channel eventstore.ChannelID) (*ring, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped {
		return nil, shuttingDown()
	}
	r := h.rings[channel]
	if r == nil {
		r = &ring{
			channel: channel, total: &h.ringsBytes, ended: make(chan struct{}), synced: -1,
			limits: ringLimits{messages: h.config.RingMessages, bytes: h.config.RingBytes},
		}
		if end, ok := h.ends[channel]; ok {
			r.extend(end)
			delete(h.ends, channel)
		}
		h.rings[channel] = r
	}
	r.subscribers++
	return r, nil
}

// detach takes a subscription from its ring, which ends with the last one.
func (h *Hub) detach(r *ring) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r.subscribers--
	if r.subscribers > 0 {
		return
	}
	if h.rings[r.channel] == r { // not forgotten, for another
		delete(h.rings, r.channel)
	}
	r.apply(func() {
		if r.anchored && r.err == nil {
			if len(h.ends) >= maxEnds {
				clear(h.ends)
			}
			h.ends[r.channel] = r.end
		}
		r.evict(r.end)
		r.slots = nil
	})
	r.fail(shuttingDown()) // whoever has it at hand leaves it alone
}
