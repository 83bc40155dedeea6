package queries

import (
	"context"

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
	return nil
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
