package replication

import (
	"context"
	"errors"
	"time"

	"leat/eventstore"
)

// doubt is what a ring was told by the tail and the table does not show. That is so
// for a moment after each commit. It stays so when a standby that was promoted, or a
// server that crashed with fsync off, lacks what was committed.
type doubt struct {
	end   eventstore.Offset // that the table should reach
	since time.Time
}

// doubts takes in where the table ends, and reports whether it has not reached an
// end that was told so long ago. What is told meanwhile does not count: the table of
// a busy stream is always a little behind.
func (r *ring) doubts(end eventstore.Offset, now time.Time, patience time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.err != nil || end >= r.end:
		r.doubt = doubt{}
		return false
	case end >= r.doubt.end: // the first look, or what was in doubt has come
		r.doubt = doubt{r.end, now}
		return false
	default:
		return now.Sub(r.doubt.since) >= patience
	}
}

// publishingSQL asks whether a transaction appends to a stream. One that waits for a
// synchronous standby has its lock until it is seen, however long that takes.
const publishingSQL = `-- replication.publishing
select exists (
    select
    from pg_locks l
    where l.locktype = 'advisory'
      and l.database = (select d.oid from pg_database d where d.datname = current_database())
      and l.classid = 1279607043
      and l.objid = leat.append_lock($1, '')::oid
      and l.objsubid = 2
      and l.granted
)`

// settle ends a ring of which messages are lost, unless a publish on its way
// explains the doubt. Who comes again reads what the table has. Publishes are seen
// when their locks are gone, so the end is asked again behind the locks.
func (h *Hub) settle(ctx context.Context, r *ring, s streamState) error {
	var publishing bool
	if err := h.config.Pool.QueryRow(ctx, publishingSQL, r.channel).Scan(&publishing); err != nil || publishing {
		return err
	}
	again, err := streamByID(ctx, h.config.Pool, s.name, r.channel, mark{})
	if err != nil || !r.doubts(again.end, time.Now(), h.config.LostAfter) {
		return err
	}
	h.config.Logger.Error("messages of a stream are lost that were committed: its subscriptions end",
		"stream", s.name, "told", r.span().end, "end", again.end)
	h.forget(r)
	r.fail(lost(s.name, eventstore.StreamPosition{Epoch: again.epoch, Offset: again.end}))
	return nil
}

// forget makes the next subscriber begin with a ring of its own.
func (h *Hub) forget(r *ring) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.rings[r.channel] == r {
		delete(h.rings, r.channel)
	}
}

func lost(name string, end eventstore.StreamPosition) *eventstore.Error {
	e := eventstore.NewError(eventstore.OffsetAhead,
		"The database has lost messages of the stream %q that were committed, from offset %d on: a standby was promoted that lacks them, "+
			"or it crashed without fsync. Read on from there, and look at what came of the lost ones.", name, end.Offset)
	e.Resume = &end
	return e
}

// endedBy is the end of a ring as it is for the subscription: one that had not read
// as far as what is lost goes on where it was.
func (s *Subscription) endedBy(err error) error {
	next := s.position()
	e, ok := errors.AsType[*eventstore.Error](err)
	if !ok || e.Code != eventstore.OffsetAhead || e.Resume == nil || e.Resume.Offset <= next {
		return err
	}
	mine := *e
	mine.Resume = new(s.at(next))
	return &mine
}
