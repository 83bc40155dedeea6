package replication

import (
	"context"
	"slices"
	"time"

	"leat/eventstore"
)

// Next waits for messages that the window has room for. It answers a batch without
// messages as a sign of life after idle at the latest; 0 is never. An
// *eventstore.Error ends the subscription, and says why; a database that is away
// does not: it waits.
func (s *Subscription) Next(ctx context.Context, idle time.Duration) (eventstore.StreamBatch, error) {
	var deadline <-chan time.Time
	if idle > 0 {
		timer := time.NewTimer(idle)
		defer timer.Stop()
		deadline = timer.C
	}
	for {
		batch, w, err := s.step()
		if err != nil || w.over {
			return batch, err
		}
		select {
		case <-ctx.Done():
			return eventstore.StreamBatch{}, ctx.Err()
		case <-s.closed:
			return eventstore.StreamBatch{}, ErrClosed
		case <-deadline:
			return s.batch(nil), nil
		case <-w.again:
		case <-s.ring.ended:
		case <-s.acked:
		case <-s.arrived:
		case <-s.changes():
			s.changed = true
		}
	}
}

// awaited says what is to be waited for after a step.
type awaited struct {
	over  bool            // nothing: there is a batch
	again <-chan struct{} // beside what always may happen
}

// atOnce is what to wait for when there is more to do.
var atOnce = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// step goes on as far as it can without waiting.
func (s *Subscription) step() (batch eventstore.StreamBatch, w awaited, err error) {
	if s.err != nil {
		return batch, w, s.err
	}
	if s.isOver() {
		return batch, w, ErrClosed
	}
	if news, err := s.news(); err != nil || news {
		s.err = err
		batch = s.batch(nil)
		batch.Assigned, batch.Partitions = news, s.partitions()
		return batch, awaited{over: news}, err
	}
	room := s.room()
	if room == 0 || s.idle() {
		s.err = s.endedBy(s.ring.over())
		return batch, w, s.err
	}
	messages, w, err := s.more(room)
	if err != nil {
		s.err = s.endedBy(err)
		return batch, w, s.err
	}
	if len(messages) == 0 {
		return batch, w, nil
	}
	matching := s.deliver(messages)
	if len(matching) == 0 {
		return batch, awaited{again: atOnce}, nil
	}
	return s.batch(matching), awaited{over: true}, nil
}

func (s *Subscription) isOver() bool {
	select {
	case <-s.closed:
		return true
	default:
		return false
	}
}

// news reports whether a member of a group has other partitions than before.
func (s *Subscription) news() (bool, error) {
	if !s.changed {
		select {
		case <-s.changes():
		default:
			return false, nil
		}
	}
	s.changed = false
	changed, err := s.reassign()
	return changed && s.grouped(), err
}

// room is how many messages may be delivered now.
func (s *Subscription) room() int {
	if s.request.Window == 0 {
		return batchMessages
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	outstanding := s.backlog.count
	if s.grouped() {
		outstanding = s.progress.outstanding()
	}
	return min(batchMessages, max(0, s.request.Window-outstanding))
}

// more are the messages that follow, if there are some at hand.
func (s *Subscription) more(room int) ([]*eventstore.StreamMessage, awaited, error) {
	s.skip(s.position()) // or a page that was read already would wait behind one that is of no use
	if err := s.turnPage(); err != nil {
		return nil, awaited{}, err
	}
	next := s.position()
	var (
		messages []*eventstore.StreamMessage
		at       span
		err      error
	)
	s.skip(next)
	if len(s.page) > 0 {
		n := fitting(s.page, room)
		messages, at, err = s.page[:n:n], s.ring.span(), s.ring.over()
		s.page = s.page[len(messages):]
	} else {
		messages, at, err = s.ring.read(next, room)
	}
	switch {
	case err != nil:
		return nil, awaited{}, err
	case next < at.first:
		return nil, awaited{}, offsetGone(s.stream.name, next, s.at(at.first))
	}
	if len(messages) == 0 && next < at.base {
		s.read(at.base)
		return nil, awaited{}, nil
	}
	return messages, awaited{again: at.wake}, nil
}

// skip drops what was read of the table for another place than next, where a commit
// or a change of partitions led.
func (s *Subscription) skip(next eventstore.Offset) {
	for len(s.page) > 0 && s.page[0].Offset < next {
		s.page = s.page[1:]
	}
	if len(s.page) > 0 && s.page[0].Offset > next {
		s.page = nil
	}
	if len(s.page) == 0 && s.cursor.next != next && !s.reading {
		s.cursor = cursor{channel: s.stream.channel, next: next}
	}
}

// fitting is how many of the messages a batch takes.
func fitting(messages []*eventstore.StreamMessage, room int) int {
	bytes := 0
	for i, m := range messages {
		if bytes += len(m.Payload) + len(m.Headers); i == room || (i > 0 && bytes > batchBytes) {
			return i
		}
	}
	return len(messages)
}

func (s *Subscription) position() eventstore.Offset {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next
}

func (s *Subscription) at(n eventstore.Offset) eventstore.StreamPosition {
	return eventstore.StreamPosition{Epoch: s.stream.epoch, Offset: n}
}

// deliver moves on behind the messages, and answers those that match.
func (s *Subscription) deliver(messages []*eventstore.StreamMessage) []*eventstore.StreamMessage {
	last := messages[len(messages)-1]
	if s.cursor.next <= last.Offset { // it came from the ring
		s.cursor = cursor{channel: s.stream.channel, next: last.Offset + 1}
		s.cursor.after(last)
	}
	if s.request.Pattern != "" {
		messages = slices.DeleteFunc(messages, func(m *eventstore.StreamMessage) bool { return !s.pattern.Match(m.RoutingKey) })
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next = max(s.next, last.Offset+1) // a commit may have led further on
	if s.grouped() {
		return s.ownOf(messages)
	}
	if s.request.Window > 0 {
		for _, m := range messages {
			s.backlog.add(m.Offset)
		}
	}
	return messages
}

// ownOf are the messages of the partitions that the member has. The mutex is held.
func (s *Subscription) ownOf(messages []*eventstore.StreamMessage) []*eventstore.StreamMessage {
	var deliveries []delivery
	messages = slices.DeleteFunc(messages, func(m *eventstore.StreamMessage) bool {
		partition := partitionOf(m.RoutingKey, s.member.partitions)
		sh, own := s.shares[partition]
		if !own || m.Offset < sh.from {
			return true
		}
		deliveries = append(deliveries, delivery{m.Offset, int8(partition)})
		return false
	})
	if len(deliveries) > 0 {
		s.progress.add(deliveries, s.next)
	}
	return messages
}

// batch is what Next answers.
func (s *Subscription) batch(messages []*eventstore.StreamMessage) eventstore.StreamBatch {
	next := s.position()
	return eventstore.StreamBatch{Messages: messages, Next: s.at(next), End: max(next, s.ring.span().end)}
}
