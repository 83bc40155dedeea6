// Package streamfake is one stream in memory, for tests of what serves streams:
// it can end subscriptions for any reason, and holds what it is told to.
package streamfake

import (
	"context"
	"sync"
	"time"

	"leat/api"
	"leat/eventstore"
)

// Stream is an api.Streams of one stream, without points' routes.
type Stream struct {
	api.Streams // nil: the routes of points are not served

	mu       sync.Mutex
	name     string
	epoch    eventstore.Position
	messages []*eventstore.StreamMessage
	points   map[string]eventstore.Offset // next
	holders  map[string]*Subscription
	subs     map[*Subscription]struct{}
	changed  chan struct{}
	failing  error // of commits
}

// New makes a stream.
func New(name string, epoch eventstore.Position) *Stream {
	return &Stream{
		name: name, epoch: epoch, points: map[string]eventstore.Offset{}, holders: map[string]*Subscription{},
		subs: map[*Subscription]struct{}{}, changed: make(chan struct{}),
	}
}

// Publish appends messages.
func (s *Stream) Publish(payloads ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, payload := range payloads {
		n := len(s.messages)
		s.messages = append(s.messages, &eventstore.StreamMessage{
			Offset: eventstore.Offset(n), MessageID: eventstore.MessageID(n + 1), OriginMessageID: eventstore.MessageID(n + 1),
			Payload: []byte(payload), ContentType: api.ContentJSON, PublishedAt: time.Now(),
		})
	}
	s.wake()
}

// End ends all subscriptions with the reason.
func (s *Stream) End(reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for sub := range s.subs {
		sub.ended = reason
	}
	s.wake()
}

// Assign tells all subscribers of other partitions.
func (s *Stream) Assign(partitions ...int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for sub := range s.subs {
		sub.assigned, sub.partitions = true, partitions
	}
	s.wake()
}

// FailCommits lets commits fail with the error, until it is nil.
func (s *Stream) FailCommits(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failing = err
}

// Subscribers says how many there are.
func (s *Stream) Subscribers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.subs)
}

// Committed is the next offset of a point.
func (s *Stream) Committed(point string) eventstore.Offset {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.points[point]
}

func (s *Stream) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Subscribe begins a subscription.
func (s *Stream) Subscribe(_ context.Context, r eventstore.SubscribeRequest) (api.Subscription, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	end := eventstore.Offset(len(s.messages))
	here := &eventstore.StreamPosition{Epoch: s.epoch, Offset: end}
	switch {
	case r.Stream != s.name:
		return nil, eventstore.NewError(eventstore.ChannelNotFound, "There is no channel %q.", r.Stream)
	case r.Start.Epoch != 0 && r.Start.Epoch != s.epoch:
		return nil, &eventstore.Error{Code: eventstore.EpochChanged, Message: "The stream is another one.", Index: -1, Resume: here}
	case r.Start.Kind == eventstore.StartOffset && r.Start.Offset > end:
		return nil, &eventstore.Error{Code: eventstore.OffsetAhead, Message: "The offset is ahead.", Index: -1, Resume: here}
	}
	sub := &Subscription{s: s, r: r, pattern: r.Pattern}
	switch r.Start.Kind {
	case eventstore.StartLatest, eventstore.StartTime:
		sub.next = end
	case eventstore.StartOffset:
		sub.next = r.Start.Offset
	}
	at := eventstore.Subscribed{Stream: s.name, End: end, Point: r.Point, Member: r.Member}
	if r.Point != "" {
		if next, ok := s.points[r.Point]; ok {
			sub.next, at.Resumed = next, true
		}
		s.points[r.Point] = sub.next
		if old := s.holders[r.Point]; old != nil {
			old.ended = eventstore.NewError(eventstore.PointTaken, "Another consumer reads with point %q now.", r.Point)
			s.wake()
		}
		s.holders[r.Point] = sub
		if at.Member == "" {
			at.Member = "somebody"
		}
	}
	at.Next = eventstore.StreamPosition{Epoch: s.epoch, Offset: sub.next}
	sub.acked = sub.next
	sub.at = at
	s.subs[sub] = struct{}{}
	return sub, nil
}

// Subscription is an api.Subscription.
type Subscription struct {
	s          *Stream
	r          eventstore.SubscribeRequest
	pattern    string
	at         eventstore.Subscribed
	next       eventstore.Offset
	acked      eventstore.Offset // next to be acknowledged
	ended      error
	assigned   bool
	partitions []int
}

// Subscribed says where it began.
func (u *Subscription) Subscribed() eventstore.Subscribed { return u.at }

// Next hands out at most 1000 messages.
func (u *Subscription) Next(ctx context.Context, idle time.Duration) (eventstore.StreamBatch, error) {
	timer := time.NewTimer(idle)
	defer timer.Stop()
	for {
		batch, ready, changed := u.take()
		if u.endReason() != nil {
			return eventstore.StreamBatch{}, u.endReason()
		}
		if ready {
			return batch, nil
		}
		select {
		case <-changed:
		case <-timer.C:
			return batch, nil
		case <-ctx.Done():
			return eventstore.StreamBatch{}, ctx.Err()
		}
	}
}

func (u *Subscription) endReason() error {
	u.s.mu.Lock()
	defer u.s.mu.Unlock()
	return u.ended
}

func (u *Subscription) take() (batch eventstore.StreamBatch, ready bool, changed chan struct{}) {
	u.s.mu.Lock()
	defer u.s.mu.Unlock()
	end := eventstore.Offset(len(u.s.messages))
	upto := min(end, u.next+1000)
	if u.r.Window > 0 {
		upto = min(upto, u.acked+eventstore.Offset(u.r.Window))
	}
	for ; u.next < upto; u.next++ {
		batch.Messages = append(batch.Messages, u.s.messages[u.next])
	}
	batch.Assigned, batch.Partitions, u.assigned = u.assigned, u.partitions, false
	batch.Next = eventstore.StreamPosition{Epoch: u.s.epoch, Offset: u.next}
	batch.End = end
	return batch, len(batch.Messages) > 0 || batch.Assigned, u.s.changed
}

// Ack makes room.
func (u *Subscription) Ack(offset eventstore.Offset) error {
	u.s.mu.Lock()
	defer u.s.mu.Unlock()
	if offset >= u.next {
		return &eventstore.Error{
			Code: eventstore.OffsetAhead, Message: "Offset was not delivered.", Index: -1,
			Resume: &eventstore.StreamPosition{Epoch: u.s.epoch, Offset: u.next},
		}
	}
	u.acked = max(u.acked, offset+1)
	u.s.wake()
	return nil
}

// Commit moves the point.
func (u *Subscription) Commit(_ context.Context, last eventstore.StreamPosition) error {
	u.s.mu.Lock()
	failing, point := u.s.failing, u.s.points[u.r.Point]
	resume := &eventstore.StreamPosition{Epoch: u.s.epoch, Offset: point}
	u.s.mu.Unlock()
	switch {
	case failing != nil:
		return failing
	case u.r.Point == "":
		return eventstore.NewError(eventstore.PointNotFound, "The subscription has no point.")
	case u.endReason() != nil:
		return u.endReason()
	case last.Epoch != u.s.epoch:
		return &eventstore.Error{Code: eventstore.EpochChanged, Message: "That was another stream.", Index: -1, Resume: resume}
	case last.Offset < point-1:
		return &eventstore.Error{Code: eventstore.CommitBehind, Message: "The point is further on.", Index: -1, Resume: resume}
	}
	if err := u.Ack(last.Offset); err != nil {
		return err
	}
	u.s.mu.Lock()
	defer u.s.mu.Unlock()
	u.s.points[u.r.Point] = last.Offset + 1
	return nil
}

// Close gives the point up.
func (u *Subscription) Close() {
	u.s.mu.Lock()
	defer u.s.mu.Unlock()
	delete(u.s.subs, u)
	if u.s.holders[u.r.Point] == u {
		delete(u.s.holders, u.r.Point)
	}
}
