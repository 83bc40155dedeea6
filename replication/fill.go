package replication

import (
	"context"
	"slices"
	"time"

	"leat/eventstore"
)

const (
	// watchEvery is how often the table is asked about the streams that somebody here
	// reads: whether they are still there, what they keep, and where they end.
	watchEvery = time.Second
	// A commit may be in the write-ahead log a moment before others can see it.
	unseenMin = time.Millisecond
	unseenMax = 50 * time.Millisecond
	// While the database is away.
	retryMin = 100 * time.Millisecond
	retryMax = 2 * time.Second
)

// Poke says that channels have new messages; none means any. A hub with a tail
// needs no pokes.
func (h *Hub) Poke(channels ...eventstore.ChannelID) {
	h.mu.Lock()
	h.pokedAll = h.pokedAll || len(channels) == 0
	some := h.pokedAll
	for _, id := range channels {
		if h.rings[id] != nil && !h.live {
			h.poked[id] = true
			some = true
		}
	}
	h.mu.Unlock()
	if some {
		signal(h.rounds)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // told already
	}
}

// watch looks at the table every second, and when it is poked.
func (h *Hub) watch(ctx context.Context) error {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for {
		all := false
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			all = true
		case <-h.rounds:
		}
		if err := h.look(ctx, h.due(all)); err != nil && ctx.Err() == nil {
			h.config.Logger.Debug("look where streams end", "error", err) // the next round tries again
		}
	}
}

// due are the streams to look at now.
func (h *Hub) due(all bool) (channels []int32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if all || h.pokedAll {
		for id := range h.rings {
			channels = append(channels, int32(id))
		}
	} else {
		for id := range h.poked {
			channels = append(channels, int32(id))
		}
	}
	clear(h.poked)
	h.pokedAll = false
	return channels
}

// look asks the table about streams, and tells their rings.
func (h *Hub) look(ctx context.Context, channels []int32) error {
	if len(channels) == 0 {
		return nil
	}
	asking, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	generation, live := h.now()
	marks := make([]mark, len(channels))
	for i, id := range channels {
		if r := h.ringOf(eventstore.ChannelID(id)); r != nil {
			marks[i] = r.marked()
		}
	}
	states, err := streamStates(asking, h.config.Pool, channels, marks)
	if err != nil {
		h.doubt()
		return err
	}
	for _, s := range states {
		r := h.ringOf(s.channel)
		if r == nil {
			continue
		}
		m := marks[slices.Index(channels, int32(s.channel))]
		if s.lacks(m) {
			h.replaced(asking, r, s, m)
			continue
		}
		h.tell(r, s, m, generation, live)
		if r.doubts(s.end, time.Now(), h.config.LostAfter) {
			if err := h.settle(asking, r, s); err != nil {
				return err
			}
		}
	}
	return nil
}

// lookWithin bounds a round: a way to the database may be dead without a word.
const lookWithin = 5 * time.Second

// doubt begins a generation after the database was away: it may be another server, or
// an earlier state of it, that answers next.
func (h *Hub) doubt() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.generation++
}

func (h *Hub) ringOf(channel eventstore.ChannelID) *ring {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rings[channel]
}

func (h *Hub) now() (generation int, live bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.generation, h.live
}

// sync makes sure that a ring was told, in this generation of the tail, where its
// stream ends.
func (h *Hub) sync(ctx context.Context, r *ring, name string) error {
	generation, live := h.now()
	if r.isSynced(generation) {
		return nil
	}
	of := r.marked()
	state, err := streamByID(ctx, h.config.Pool, name, r.channel, of)
	if err != nil {
		return err
	}
	if state.lacks(of) {
		h.replaced(ctx, r, state, of)
		return r.over()
	}
	h.tell(r, state, of, generation, live)
	return nil
}

// tell tells a ring what the table said in a generation. While a tail is live the
// table is believed once, for what was committed before. After that it only shows
// whether the tail is behind for long: then something is wrong with it. A table that
// does not have the mark yet is not believed to be all.
func (h *Hub) tell(r *ring, s streamState, m mark, generation int, live bool) {
	if err := s.gone(); err != nil {
		r.fail(err)
		return
	}
	r.apply(func() {
		r.first = max(r.first, s.first)
		late := r.late && r.end < s.end
		r.late = r.end < s.end
		if !live || r.synced < generation || late {
			r.extend(s.end)
		}
		if s.confirms(m) {
			r.synced = max(r.synced, generation)
		}
	})
	if r.holes() {
		h.schedule(r)
	}
}

// schedule has a filler fill the empty slots of a ring.
func (h *Hub) schedule(r *ring) {
	h.mu.Lock()
	if !r.queued {
		r.queued = true
		h.queue = append(h.queue, r)
	}
	h.mu.Unlock()
	signal(h.fills)
}

// fillRings fills one ring after the other.
func (h *Hub) fillRings(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-h.fills:
		}
		if r := h.take(); r != nil {
			if pause := h.fill(ctx, r); pause > 0 {
				time.AfterFunc(pause, func() { h.release(r) })
			} else {
				h.release(r)
			}
		}
	}
}

// take answers the ring that waits for longest.
func (h *Hub) take() *ring {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.queue) == 0 {
		return nil
	}
	r := h.queue[0]
	h.queue = h.queue[1:]
	if len(h.queue) > 0 {
		signal(h.fills) // for another filler
	}
	return r
}

// release lets a ring be filled again, if it lacks something.
func (h *Hub) release(r *ring) {
	h.mu.Lock()
	r.queued = false
	h.mu.Unlock()
	if r.holes() {
		h.schedule(r)
	}
}

// fill reads a page of what a ring lacks. It answers how long to pause before the
// next.
func (h *Hub) fill(ctx context.Context, r *ring) (pause time.Duration) {
	from, to, before := r.hole()
	if from == to {
		return 0
	}
	c := cursor{channel: r.channel, next: from}
	c.after(before)
	reading, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	generation, _ := h.now()
	if err := h.sync(reading, r, ""); err != nil || !r.isSynced(generation) {
		r.backoff = min(max(2*r.backoff, retryMin), retryMax)
		return r.backoff
	}
	p, err := readPage(reading, h.config.Pool, &c, to, pageBytes)
	switch {
	case err != nil:
		if ctx.Err() == nil {
			h.config.Logger.Warn("read what a stream's subscribers wait for", "channel", r.channel, "error", err)
		}
		r.backoff = min(max(2*r.backoff, retryMin), retryMax)
	case len(p.messages) == 0:
		r.backoff = min(max(2*r.backoff, unseenMin), unseenMax)
	default:
		r.backoff = 0
		r.apply(func() {
			r.put(p.messages)
			r.note(p.mark(), generation)
		})
	}
	return r.backoff
}

// readWithin bounds a page.
const readWithin = 30 * time.Second
