package queries

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"leat/eventstore"
)

const logBeginSQL = `-- queries.logBegin
select coalesce((select b.first_position from leat.log_begin b), 1)`

// stillThere refuses a position that has left the log by its retention.
func (q *Queries) stillThere(ctx context.Context, p eventstore.Position) error {
	var begin eventstore.Position
	if err := q.pool.QueryRow(ctx, logBeginSQL).Scan(&begin); err != nil {
		return err
	}
	if p < begin {
		return eventsGone(begin)
	}
	return q.whole(ctx, p, p)
}

const gapSQL = `-- queries.gap
select g.low, g.high
from leat.log_gaps() g
where g.high >= $1
  and g.low <= $2
order by g.low
limit 1`

// whole refuses a range of positions of which somebody has dropped a partition.
func (q *Queries) whole(ctx context.Context, low, high eventstore.Position) error {
	type gap struct{ Low, High eventstore.Position }
	gaps, err := collect(ctx, q.pool, pgx.RowToStructByPos[gap], gapSQL, low, high)
	if err != nil || len(gaps) == 0 {
		return err
	}
	g := gaps[0]
	e := eventstore.NewError(eventstore.EventsGone,
		"Positions %d to %d are gone from the log, which retention has not dropped: somebody has dropped or detached their partition. "+
			"What was before ends with position %d, what came behind begins with %d.", g.Low, g.High, g.Low-1, g.High+1)
	e.First = g.High + 1
	return e
}

// ended are the kinds behind which nothing happens to a message any more.
var ended = []eventstore.Kind{
	eventstore.MessageAcked, eventstore.MessageExpired, eventstore.MessagePurged, eventstore.MessageDiscarded,
}

// wholeStory refuses the history of a message, of which nothing has come behind these
// events, if what comes next may be gone.
func (q *Queries) wholeStory(ctx context.Context, b *beginning, events []Event) error {
	last := b.Position
	if n := len(events); n > 0 {
		last = events[n-1].Position
		if slices.Contains(ended, events[n-1].Kind) {
			return nil
		}
	}
	if b.unsettled() {
		return nil
	}
	settled, _, _, err := q.now(ctx)
	if err != nil {
		return err
	}
	return q.whole(ctx, last, settled)
}

// messageNotFound tells a message that never was from one that has left the log.
func (q *Queries) messageNotFound(ctx context.Context, id eventstore.MessageID) error {
	if err := q.stillThere(ctx, eventstore.Position(id)); err != nil {
		return wrap(err, "find message %d", id)
	}
	return eventstore.NewError(eventstore.MessageNotFound, "There is no message %d in the log.", id)
}

func eventsGone(begin eventstore.Position) *eventstore.Error {
	e := eventstore.NewError(eventstore.EventsGone,
		"The log begins at position %d: what was before has left it by its retention.", begin)
	e.First = begin
	return e
}

// beginsBefore reports whether the filter asks for what is before the log begins.
func (f *EventsFilter) beginsBefore(begin, after eventstore.Position) bool {
	return (f.From > 0 && f.From < begin) || (f.To > 0 && f.To < begin) || (!f.Backwards && after > 0 && after < begin-1)
}
