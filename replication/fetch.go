package replication

import (
	"context"
	"errors"
	"sync"
	"time"

	"leat/eventstore"
)

// leastPage is what a page of a subscription may hold, however many there are.
const leastPage = 64 << 10

// fetched is what became of a read of the table.
type fetched struct {
	page       page
	cursor     cursor // behind it
	generation int    // of the tail, before it was read
	err        error
}

// read has a page read, below an offset, unless that is under way.
func (s *Subscription) read(below eventstore.Offset) {
	if !s.reading {
		s.reading = true
		s.start(s.cursor, below)
	}
}

// turnPage takes the page that was read, when the one before is done with, and has
// the next one read meanwhile.
func (s *Subscription) turnPage() error {
	if len(s.page) > 0 {
		return nil
	}
	s.mu.Lock()
	s.release(s.size)
	s.size = 0
	result := s.result
	s.result = nil
	next := s.next
	s.mu.Unlock()
	if result == nil {
		return nil
	}
	s.reading = false
	if result.err != nil {
		return result.err
	}
	s.page, s.size, s.cursor = result.page.messages, result.page.bytes, result.cursor
	if s.page[0].Offset != next { // it was read for where the subscription was then
		s.page, s.cursor = nil, cursor{channel: s.stream.channel, next: next}
		return nil
	}
	s.ring.apply(func() { s.ring.note(result.page.mark(), result.generation) })
	if base := s.ring.span().base; s.cursor.next < base && s.hub.pageLimit() == pageBytes {
		s.read(base)
	}
	return nil
}

// release says that bytes of pages are held no more. The mutex is held.
func (s *Subscription) release(bytes int) {
	if !s.over {
		s.held -= bytes
		s.hub.pagesBytes.Add(-int64(bytes))
	}
}

// pageLimit is how large a page may be now. They get smaller the more is held.
func (h *Hub) pageLimit() int {
	left := (h.config.PagesBytes - int(h.pagesBytes.Load())) / 4
	return max(leastPage, min(left, pageBytes))
}

// fetch reads a page, however long it takes until the database answers and shows
// the rows.
func (s *Subscription) fetch(ctx context.Context, c cursor, below eventstore.Offset) {
	defer s.hub.reads.end()
	var pause time.Duration
	for ctx.Err() == nil {
		generation, _ := s.hub.now()
		p, err := s.readPage(ctx, &c, below)
		if ctx.Err() != nil {
			return
		}
		switch {
		case err == nil && len(p.messages) > 0:
			s.arrive(&fetched{page: p, cursor: c, generation: generation})
			return
		case err == nil:
			pause = min(max(2*pause, unseenMin), unseenMax)
		case transient(err):
			pause = min(max(2*pause, retryMin), retryMax)
			s.hub.config.Logger.Debug("read for a subscriber", "stream", s.stream.name, "error", err)
		default:
			s.arrive(&fetched{err: err})
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// transient reports whether the same read may succeed later.
func transient(err error) bool {
	e, ok := errors.AsType[*eventstore.Error](eventstore.FromPg(err))
	return ok && e.RetryAfter > 0
}

// readPage reads once. It answers no messages if they are not visible yet.
func (s *Subscription) readPage(ctx context.Context, c *cursor, below eventstore.Offset) (page, error) {
	select {
	case <-ctx.Done():
		return page{}, ctx.Err()
	case s.hub.readers <- struct{}{}:
	}
	defer func() { <-s.hub.readers }()
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	from := c.next
	p, err := readPage(ctx, s.hub.config.Pool, c, below, s.hub.pageLimit())
	if err != nil {
		return p, err
	}
	first := p.first
	if first == nil { // no rows, or no stream
		state, err := streamByID(ctx, s.hub.config.Pool, s.stream.name, s.stream.channel, mark{})
		if err != nil {
			return page{}, err
		}
		first = &state.first
	}
	if *first > from {
		return page{}, offsetGone(s.stream.name, from, s.at(*first))
	}
	return p, nil
}

// arrive hands a result to Next.
func (s *Subscription) arrive(result *fetched) {
	s.mu.Lock()
	if !s.over {
		s.result = result
		s.held += result.page.bytes
		s.hub.pagesBytes.Add(int64(result.page.bytes))
	}
	s.mu.Unlock()
	signal(s.arrived)
}

// reads counts what is under way until no more may begin.
type reads struct {
	mu      sync.Mutex
	stopped bool
	group   sync.WaitGroup
}

func (r *reads) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.stopped {
		r.group.Add(1)
	}
	return !r.stopped
}

func (r *reads) end() { r.group.Done() }

// stop waits until all have ended.
func (r *reads) stop() {
	r.mu.Lock()
	r.stopped = true
	r.mu.Unlock()
	r.group.Wait()
}
