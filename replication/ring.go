package replication

import (
	"sync"
	"sync/atomic"
	"time"

	"leat/eventstore"
)

// ring holds the newest messages of a stream that somebody here reads: offsets
// from base to end, without a gap. A slot may be empty for a while: the message is
// committed, and whoever keeps the ring reads it from the table. Readers get what
// lies below ready, the first empty slot.
type ring struct {
	channel eventstore.ChannelID
	limits  ringLimits
	total   *atomic.Int64 // bytes of all rings of the hub
	ended   chan struct{} // closed when err is set

	mu       sync.RWMutex
	slots    []*eventstore.StreamMessage // a power of two of them: offset o has slot o modulo their number
	base     eventstore.Offset
	ready    eventstore.Offset
	end      eventstore.Offset
	bytes    int
	anchored bool              // it has been told an offset: base, ready and end mean something
	synced   int               // the generation in which the table was asked where the stream ends
	first    eventstore.Offset // that the stream keeps, as far as known
	err      *eventstore.Error // why nothing more will come
	wake     chan struct{}     // closed when there is more; nil while nobody waits
	used     int64             // the hub's count of flushes when something came last
	late     bool              // it ended below the stream when the table was asked last
	doubt    doubt
	mark     mark // the newest that readers were given, or will be

	// Of the tail's goroutine: what came since the last flush.
	staged []*eventstore.StreamMessage
	dirty  bool

	// Under the hub's mutex.
	subscribers int
	queued      bool // for a filler, or with one

	backoff time.Duration // of the filler that has it
}

type ringLimits struct{ messages, bytes int }

// minSlots is what a ring has at first.
const minSlots = 16

// put takes messages as the tail tells of them. What came before is ignored.
func (r *ring) put(messages []*eventstore.StreamMessage) {
	if r.err != nil {
		return
	}
	for _, m := range messages {
		r.extend(m.Offset)
		if m.Offset == r.end {
			r.grow(m.Offset + 1)
		}
		r.set(m)
	}
	r.advance()
	r.trim(r.limits.bytes)
}

// extend says that everything below end is committed; what is missing gets empty
// slots.
func (r *ring) extend(end eventstore.Offset) {
	switch {
	case r.err != nil:
	case !r.anchored:
		r.base, r.ready, r.end, r.anchored = end, end, end, true
	case end <= r.end:
	case end-r.end >= eventstore.Offset(r.limits.messages):
		r.evict(r.end)
		r.base, r.ready, r.end = end, end, end
	default:
		r.grow(end)
	}
}

// grow makes room up to end, which is near, at the cost of the oldest.
func (r *ring) grow(end eventstore.Offset) {
	r.evict(end - eventstore.Offset(r.limits.messages))
	if need := int(end - r.base); need > len(r.slots) {
		size := max(minSlots, len(r.slots))
		for size < need {
			size *= 2
		}
		slots := make([]*eventstore.StreamMessage, size)
		for o := r.base; o < r.end; o++ {
			slots[int(o)&(size-1)] = *r.slot(o)
		}
		r.slots = slots
	}
	r.end = end
}

func (r *ring) slot(o eventstore.Offset) **eventstore.StreamMessage {
	return &r.slots[int(o)&(len(r.slots)-1)]
}

// set fills an empty slot.
func (r *ring) set(m *eventstore.StreamMessage) {
	if m.Offset < r.base || m.Offset >= r.end || *r.slot(m.Offset) != nil {
		return
	}
	*r.slot(m.Offset) = m
	r.count(m.Size())
}

func (r *ring) count(bytes int) {
	r.bytes += bytes
	r.total.Add(int64(bytes))
}

// advance moves ready over what is there.
func (r *ring) advance() {
	for r.ready < r.end && *r.slot(r.ready) != nil {
		r.ready++
	}
}

// evict lets the ring begin at base.
func (r *ring) evict(base eventstore.Offset) {
	for ; r.base < min(base, r.end); r.base++ {
		slot := r.slot(r.base)
		if *slot != nil {
			r.count(-(*slot).Size())
			*slot = nil
		}
	}
	if r.ready < r.base {
		r.ready = r.base
		r.advance()
	}
}

// trim evicts the oldest until the rest is no more than bytes.
func (r *ring) trim(bytes int) {
	for r.bytes > bytes {
		r.evict(r.base + 1)
	}
	if r.bytes == 0 && r.base == r.end && len(r.slots) > minSlots {
		r.slots = make([]*eventstore.StreamMessage, minSlots)
	}
}

// apply does something to the ring and wakes who waits, if there is more than
// before or less to wait for.
func (r *ring) apply(change func()) {
	r.mu.Lock()
	ready, base := r.ready, r.base
	change()
	var wake chan struct{}
	if r.ready != ready || r.base != base || r.err != nil {
		wake, r.wake = r.wake, nil
	}
	r.mu.Unlock()
	if wake != nil {
		close(wake)
	}
}

// holes reports whether slots are empty.
func (r *ring) holes() bool {
	from, to, _ := r.hole()
	return from < to
}

// fail ends the ring: nothing more will come.
func (r *ring) fail(err *eventstore.Error) {
	r.apply(func() {
		if r.err == nil {
			r.err = err
			close(r.ended)
		}
	})
}

// hole is the first run of empty slots, and the message before it if that is there.
func (r *ring) hole() (from, to eventstore.Offset, before *eventstore.StreamMessage) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.err != nil {
		return r.end, r.end, nil
	}
	for to = r.ready; to < r.end && *r.slot(to) == nil; to++ {
		continue // the next one
	}
	if r.ready > r.base {
		before = *r.slot(r.ready - 1)
	}
	return r.ready, to, before
}

// span is what a ring says of itself.
type span struct {
	base, end eventstore.Offset // end: as far as commits are known
	first     eventstore.Offset // that the stream keeps
	wake      <-chan struct{}   // closed when there is more; nil if there is something now
}

// read answers messages from n on, as many as there is room for. If there are
// none, n lies below the ring, or the caller may wait for wake.
func (r *ring) read(n eventstore.Offset, room int) ([]*eventstore.StreamMessage, span, error) {
	r.mu.RLock()
	messages, s, err := r.readLocked(n, room)
	s.wake = r.wake
	r.mu.RUnlock()
	idle := err == nil && len(messages) == 0 && n >= s.base
	if !idle || s.wake != nil {
		return messages, s, err
	}
	r.mu.Lock() // to be the first who waits
	defer r.mu.Unlock()
	messages, s, err = r.readLocked(n, room)
	if err == nil && len(messages) == 0 && n >= s.base {
		if r.wake == nil {
			r.wake = make(chan struct{})
		}
		s.wake = r.wake
	}
	return messages, s, err
}

func (r *ring) readLocked(n eventstore.Offset, room int) (messages []*eventstore.StreamMessage, s span, err error) {
	s = span{base: r.base, end: r.end, first: r.first}
	if r.err != nil {
		return nil, s, r.err
	}
	count, bytes := 0, 0
	for o := n; o >= r.base && o < r.ready && count < room; o++ {
		m := *r.slot(o)
		if bytes += len(m.Payload) + len(m.Headers); count > 0 && bytes > batchBytes {
			break
		}
		count++
	}
	if count > 0 {
		messages = make([]*eventstore.StreamMessage, count)
		for i := range messages {
			messages[i] = *r.slot(n + eventstore.Offset(i))
		}
	}
	return messages, s, nil
}

func (r *ring) span() span {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return span{base: r.base, end: r.end, first: r.first}
}

// over says why nothing more will come; nil as long as more may.
func (r *ring) over() error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.err == nil {
		return nil
	}
	return r.err
}

func (r *ring) isSynced(generation int) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.synced >= generation
}
