package replication

import (
	"context"
	"time"

	"leat/eventstore"
)

// ahead refuses an offset that the stream does not have, as far as is known here.
func (s *Subscription) ahead(offset eventstore.Offset) error {
	if end := max(s.position(), s.ring.span().end); offset >= end {
		return offsetAhead(s.stream.name, offset, s.at(end))
	}
	return nil
}

// aheadOf refuses a commit of messages that are lost, and is ahead for the commit of a
// group's member, which names other offsets to the database. That is asked before
// something is refused.
func (s *Subscription) aheadOf(ctx context.Context, last eventstore.StreamPosition) error {
	if err := s.sure(ctx); err != nil {
		return err
	}
	other := last.Epoch != 0 && last.Epoch != s.stream.epoch // which the commit tells
	if !s.grouped() || other || s.ahead(last.Offset) == nil {
		return nil
	}
	state, err := streamByID(ctx, s.hub.config.Pool, s.stream.name, s.stream.channel, mark{})
	if err != nil {
		return eventstore.FromPg(err)
	}
	if last.Offset >= state.end {
		return offsetAhead(s.stream.name, last.Offset, s.at(state.end))
	}
	return nil
}

// sure waits until the log was compared with what readers were given, after it may
// have been exchanged: or else a commit would pass over what is at these offsets now.
func (s *Subscription) sure(ctx context.Context) error {
	for pause := unseenMin; ; pause = min(2*pause, retryMax) {
		if err := s.ring.over(); isAhead(err) {
			return s.endedBy(err)
		}
		generation, _ := s.hub.now()
		if s.ring.isSynced(generation) {
			return nil
		}
		if err := s.hub.sync(ctx, s.ring, s.stream.name); err != nil && !transient(err) && !isAhead(err) {
			return eventstore.FromPg(err)
		} else if err == nil && s.ring.isSynced(generation) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.closed:
			return ErrClosed
		case <-time.After(pause):
		}
	}
}

func offsetAhead(name string, n eventstore.Offset, end eventstore.StreamPosition) *eventstore.Error {
	e := eventstore.NewError(eventstore.OffsetAhead, "Stream %s ends before offset %d; %d is ahead.", name, end.Offset, n)
	e.Resume = &end
	return e
}
