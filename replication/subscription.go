package replication

import (
	"context"
	"errors"
	"sync"

	"leat/eventstore"
)

// A batch is no larger, unless one message is.
const (
	batchMessages = 500
	batchBytes    = 512 << 10
)

// ErrClosed is what Next answers after Close.
var ErrClosed = errors.New("the subscription is closed")

// Subscription is a consumer's way through a stream: from the ring of its stream,
// or from the table where that begins too late. It has no goroutine of its own but
// while it reads the table.
//
// Next has one caller at a time; the other methods may be called beside it.
type Subscription struct {
	hub        *Hub
	ring       *ring
	stream     streamState
	request    eventstore.SubscribeRequest
	member     *membership // nil without a point
	pattern    eventstore.Pattern
	subscribed eventstore.Subscribed
	start      func(c cursor, below eventstore.Offset) // reading a page
	cancel     context.CancelFunc                      // of that
	closed     chan struct{}
	acked      chan struct{} // tells Next that there is room
	arrived    chan struct{} // tells Next that a page is there

	// Of Next.
	cursor  cursor // where the table is read next
	page    []*eventstore.StreamMessage
	size    int // of the page, in bytes, as counted by the hub
	reading bool
	changed bool  // the membership has something to tell
	err     error // why it ended

	mu        sync.Mutex
	next      eventstore.Offset         // everything below was handed over, or does not match
	backlog   backlog                   // what needs room in the window, without a group
	progress  progress                  // with one
	shares    map[int]share             // of the point, by partition
	committed map[int]eventstore.Offset // by this subscription: the next ones
	result    *fetched                  // of the read that is under way
	held      int                       // bytes of pages
	over      bool                      // closed
}

// Subscribe begins a subscription. The error is an *eventstore.Error where the
// request cannot be served as it is.
func (h *Hub) Subscribe(ctx context.Context, request eventstore.SubscribeRequest) (*Subscription, error) {
	s, err := h.subscribe(ctx, request)
	if err != nil {
		return nil, eventstore.FromPg(err)
	}
	return s, nil
}

func (h *Hub) subscribe(ctx context.Context, request eventstore.SubscribeRequest) (*Subscription, error) {
	s := &Subscription{
		hub: h, request: request, shares: map[int]share{}, committed: map[int]eventstore.Offset{},
		closed: make(chan struct{}), acked: make(chan struct{}, 1), arrived: make(chan struct{}, 1),
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	if err := s.find(ctx); err != nil {
		return nil, err
	}
	if err := s.attach(ctx); err != nil {
		if s.member != nil {
			s.member.leave()
		}
		return nil, err
	}
	reading, cancel := h.derive()
	s.cancel = cancel
	s.start = func(c cursor, below eventstore.Offset) {
		if h.reads.begin() {
			go s.fetch(reading, c, below)
		}
	}
	return s, nil
}

// check refuses what no stream could serve.
func (s *Subscription) check() error {
	if s.request.Pattern != "" {
		var err error
		if s.pattern, err = eventstore.ParsePattern(s.request.Pattern); err != nil {
			return inField("key", err)
		}
	}
	switch {
	case s.request.Window < 0:
		return invalid("window", "must not be negative")
	case s.request.Point != "" && s.hub.config.Points == nil:
		return eventstore.NewError(eventstore.PointNotFound, "This broker keeps no replication points.")
	case s.request.Point != "":
		return nil
	case s.request.Partitions != 0:
		return invalid("partitions", "needs a point")
	case s.request.Member != "":
		return invalid("member", "needs a point")
	default:
		return nil
	}
}

// inField says which field an error is about.
func inField(field string, err error) error {
	if e, ok := errors.AsType[*eventstore.Error](err); ok && e.Field == "" {
		e.Field = field
	}
	return err
}

// find finds the stream, and where in it the subscription begins.
func (s *Subscription) find(ctx context.Context) (err error) {
	if s.request.Point == "" {
		s.stream, s.next, err = s.hub.findStart(ctx, s.request.Stream, s.request.Start)
	} else {
		err = s.join(ctx)
	}
	if err != nil {
		return err
	}
	s.cursor = cursor{channel: s.stream.channel, next: s.next}
	s.subscribed.Stream, s.subscribed.Next = s.stream.name, s.at(s.next)
	s.subscribed.First, s.subscribed.End = s.stream.first, max(s.stream.end, s.next)
	return nil
}

// attach makes sure that nothing is missed from now on.
func (s *Subscription) attach(ctx context.Context) (err error) {
	if s.ring, err = s.hub.attach(s.stream.channel); err != nil {
		return err
	}
	if err := s.hub.sync(ctx, s.ring, s.stream.name); err != nil {
		forgotten := s.hub.ringOf(s.stream.channel) != s.ring
		s.hub.detach(s.ring)
		if forgotten && isAhead(err) { // what was found out is about those before
			return s.attach(ctx)
		}
		return err
	}
	return nil
}

// Subscribed says where it began.
func (s *Subscription) Subscribed() eventstore.Subscribed { return s.subscribed }

// Close ends the subscription. It may be called at any time, and again.
func (s *Subscription) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	s.over = true
	close(s.closed)
	s.cancel()
	if s.member != nil {
		s.member.leave()
	}
	s.hub.detach(s.ring)
	s.hub.pagesBytes.Add(-int64(s.held))
	s.held, s.result = 0, nil
}
