package replication

import (
	"context"

	"leat/eventstore"
)

// ahead refuses an offset that the stream does not have, as far as is known here.
func (s *Subscription) ahead(offset eventstore.Offset) error {
	if end := max(s.position(), s.ring.span().end); offset >= end {
		return offsetAhead(s.stream.name, offset, s.at(end))
	}
	return nil
}

// aheadOf is ahead for the commit of a group's member, which names other offsets to
// the database. That is asked before something is refused.
func (s *Subscription) aheadOf(ctx context.Context, last eventstore.StreamPosition) error {
	other := last.Epoch != 0 && last.Epoch != s.stream.epoch // which the commit tells
	if !s.grouped() || other || s.ahead(last.Offset) == nil {
		return nil
	}
	state, err := streamByID(ctx, s.hub.config.Pool, s.stream.name, s.stream.channel)
	if err != nil {
		return eventstore.FromPg(err)
	}
	if last.Offset >= state.end {
		return offsetAhead(s.stream.name, last.Offset, s.at(state.end))
	}
	return nil
}

func offsetAhead(name string, n eventstore.Offset, end eventstore.StreamPosition) *eventstore.Error {
	e := eventstore.NewError(eventstore.OffsetAhead, "Stream %s ends before offset %d; %d is ahead.", name, end.Offset, n)
	e.Resume = &end
	return e
}
