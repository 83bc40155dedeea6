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
	err     error // why it ended

	mu      sync.Mutex
	next    eventstore.Offset // everything below was handed over, or does not match
	backlog backlog           // what needs room in the window
	result  *fetched          // of the read that is under way
	held    int               // bytes of pages
	over    bool              // closed
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
		hub: h, request: request,
		closed: make(chan struct{}), acked: make(chan struct{}, 1), arrived: make(chan struct{}, 1),
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	found, err := h.findStart(ctx, request.Stream, request.Start)
	if err != nil {
		return nil, err
	}
	s.stream = found.stream
	if s.ring, err = h.attach(s.stream.channel); err != nil {
		return nil, err
	}
	if err := h.sync(ctx, s.ring, s.stream.name); err != nil {
		h.detach(s.ring)
		return nil, err
	}
	s.beginAt(found.next)
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
	if s.request.Window < 0 {
		return inField("window", eventstore.NewError(eventstore.InvalidField, "must not be negative"))
	}
	return nil
}

// inField says which field an error is about.
func inField(field string, err error) error {
	if e, ok := errors.AsType[*eventstore.Error](err); ok && e.Field == "" {
		e.Field = field
	}
	return err
}

// beginAt sets the subscription to its first offset.
func (s *Subscription) beginAt(next eventstore.Offset) {
	s.next = next
	s.cursor = cursor{channel: s.stream.channel, next: next}
	s.subscribed = eventstore.Subscribed{
		Stream: s.stream.name,
		Next:   eventstore.StreamPosition{Epoch: s.stream.epoch, Offset: next},
		First:  s.stream.first,
		End:    max(s.stream.end, next),
	}
}

// Subscribed says where it began.
func (s *Subscription) Subscribed() eventstore.Subscribed { return s.subscribed }

// Ack says that everything delivered so far, up to and with the message of this
// offset, needs no room in the window any more.
func (s *Subscription) Ack(offset eventstore.Offset) error {
	s.mu.Lock()
	freed := s.backlog.ack(offset)
	s.mu.Unlock()
	if freed {
		signal(s.acked)
	}
	return nil
}

// Commit is Ack, and moves the replication point durably.
func (s *Subscription) Commit(_ context.Context, last eventstore.StreamPosition) error {
	if last.Epoch != 0 && last.Epoch != s.stream.epoch {
		return epochChanged(s.stream.name, eventstore.StreamPosition{Epoch: s.stream.epoch, Offset: s.ring.span().first})
	}
	return eventstore.NewError(eventstore.PointNotFound, "The subscription has no replication point to commit to.")
}

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
	s.hub.detach(s.ring)
	s.hub.pagesBytes.Add(-int64(s.held))
	s.held, s.result = 0, nil
}
