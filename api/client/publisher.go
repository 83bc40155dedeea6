package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/sync/semaphore"

	"leat/api"
	"leat/eventstore"
)

// PublisherConfig tunes a publisher. The zero value is fine.
type PublisherConfig struct {
	// BatchMessages bounds the messages of a request. Default 1,000, at most 10,000.
	BatchMessages int
	// BatchBytes bounds the payloads and headers of a request; a larger message
	// goes alone. Default 1 MiB.
	BatchBytes int
	// Flights bounds the requests that are under way at once. The first leaves at
	// once, a further one only with a full batch. Default 4.
	Flights int
	// PendingBytes bounds what waits or is under way; Publish waits for room.
	// Default 64 MiB.
	PendingBytes int
	// RetryFor is how long a message is tried again, where that is safe. Default 1
	// min; negative: it is not.
	RetryFor time.Duration
}

func (c PublisherConfig) withDefaults() PublisherConfig {
	d := PublisherConfig{BatchMessages: 1000, BatchBytes: 1 << 20, Flights: 4, PendingBytes: 64 << 20, RetryFor: time.Minute}
	c.BatchMessages = min(positive(c.BatchMessages, d.BatchMessages), 10_000)
	c.BatchBytes = positive(c.BatchBytes, d.BatchBytes)
	c.Flights = positive(c.Flights, d.Flights)
	c.PendingBytes = positive(c.PendingBytes, d.PendingBytes)
	if c.RetryFor == 0 {
		c.RetryFor = d.RetryFor
	}
	return c
}

// positive is value, or fallback where that is none.
func positive[T int | time.Duration](value, fallback T) T {
	if value > 0 {
		return value
	}
	return fallback
}

// ErrClosed says that a publisher takes no more. Nothing was sent.
var ErrClosed = errors.New("the publisher is closed")

// UnansweredError says that it is not known whether a message was stored: it was
// sent, and no answer came, or none that tells. With a dedupId it can be
// published again.
type UnansweredError struct {
	Err error // why there is no answer
}

// Error says so.
func (e *UnansweredError) Error() string {
	return fmt.Sprintf("publish: it is not known whether the message was stored: %v", e.Err)
}

// Unwrap is why there is no answer.
func (e *UnansweredError) Unwrap() error { return e.Err }

// Publisher sends the messages of many callers in few requests. While a request
// is under way messages gather, and the next one takes them all: a lone message
// leaves at once, and batches grow with the load.
type Publisher struct {
	client  *Client
	channel string
	config  PublisherConfig
	room    *semaphore.Weighted                                         // of PendingBytes
	launch  func()                                                      // starts a flight
	stop    context.CancelFunc                                          // ends all flights at once
	joined  func(context.Context) (context.Context, context.CancelFunc) // a context that stop ends too
	flights sync.WaitGroup

	mu     sync.Mutex
	queue  []*publication
	bytes  int // in queue
	flying int
	closed bool
}

// publication is one message on its way.
type publication struct {
	message api.Message
	weight  int64     // in the room
	until   time.Time // no try begins later

	// The others are guarded by the publisher's mu until done is closed.
	state  publicationState
	unsure bool // it was sent at least once, without an answer that tells
	done   chan struct{}
	result api.Published
	err    error
}

type publicationState int

const (
	waiting   publicationState = iota // in the queue, or for the next try
	sent                              // under way
	withdrawn                         // by its caller, who is not interested any more
)

// NewPublisher makes a publisher into one channel. Close it.
func NewPublisher(c *Client, channel string, config PublisherConfig) *Publisher {
	config = config.withDefaults()
	p := &Publisher{client: c, channel: channel, config: config, room: semaphore.NewWeighted(int64(config.PendingBytes))}
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	p.launch = func() { p.flights.Go(func() { p.fly(ctx) }) }
	p.joined = func(of context.Context) (context.Context, context.CancelFunc) {
		of, cancel := context.WithCancel(of)
		unhook := context.AfterFunc(ctx, cancel)
		return of, func() {
			unhook()
			cancel()
		}
	}
	return p
}

// Publish stores one message, and returns when it is. A refusal is an
// *api.Problem. It tries again, within RetryFor and the context, after refusals
// that pass and where nothing was stored; after a lost answer only with a
// dedupId: without one the error is an *UnansweredError. When the context ends,
// a message that waits is not sent; for one that is under way the error is an
// *UnansweredError.
func (p *Publisher) Publish(ctx context.Context, m api.Message) (api.Published, error) {
	if err := sendable(&m); err != nil {
		return api.Published{}, err
	}
	mine := &publication{message: m, done: make(chan struct{}), until: time.Now().Add(p.config.RetryFor)}
	mine.weight = min(int64(sizeOf(&m)+publicationOverhead), int64(p.config.PendingBytes))
	if err := p.room.Acquire(ctx, mine.weight); err != nil {
		return api.Published{}, fmt.Errorf("publish: nothing was sent: %w", err)
	}
	if err := p.enqueue(mine); err != nil {
		return api.Published{}, err
	}
	select {
	case <-mine.done:
	case <-ctx.Done():
		p.abandon(ctx, mine)
	}
	return mine.result, mine.err
}

// publicationOverhead is about what a message takes beside its contents.
const publicationOverhead = 512

func sizeOf(m *api.Message) int {
	return len(m.Payload) + len(m.PayloadBase64) + len(m.Headers) + len(m.RoutingKey) + len(m.DedupID)
}

// sendable refuses what would make the whole request unreadable, or would reach
// the server as something else.
func sendable(m *api.Message) error {
	var bad string
	switch {
	case m.Payload != nil && !json.Valid(m.Payload):
		bad = "payload is not JSON; other bytes go in payloadBase64"
	case len(m.Headers) > 0 && !json.Valid(m.Headers):
		bad = "headers are not JSON"
	case !utf8.ValidString(m.RoutingKey):
		bad = "routingKey is not UTF-8"
	case !utf8.ValidString(m.DedupID):
		bad = "dedupId is not UTF-8"
	case !utf8.ValidString(m.ContentType):
		bad = "contentType is not UTF-8"
	default:
		return nil
	}
	return api.NewProblem(eventstore.InvalidField, bad)
}

func (p *Publisher) enqueue(mine *publication) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		p.room.Release(mine.weight)
		return ErrClosed
	}
	p.queue = append(p.queue, mine)
	p.bytes += sizeOf(&mine.message)
	full := len(p.queue) >= p.config.BatchMessages || p.bytes >= p.config.BatchBytes
	if p.flying == 0 || (full && p.flying < p.config.Flights) {
		p.flying++
		p.launch()
	}
	return nil
}

// abandon is for a caller whose context ended.
func (p *Publisher) abandon(ctx context.Context, mine *publication) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if mine.ended() {
		return // just in time
	}
	if i := slices.Index(p.queue, mine); i >= 0 {
		p.queue = slices.Delete(p.queue, i, i+1)
		p.bytes -= sizeOf(&mine.message)
	}
	if mine.state == sent || mine.unsure {
		mine.err = &UnansweredError{ctx.Err()}
	} else {
		mine.err = fmt.Errorf("publish: nothing was sent: %w", ctx.Err())
	}
	if mine.state == waiting {
		p.room.Release(mine.weight)
	}
	mine.state = withdrawn
}

func (m *publication) ended() bool {
	select {
	case <-m.done:
		return true
	default:
		return false
	}
}

// end answers the caller. The publisher's mu is held.
func (p *Publisher) end(m *publication, result api.Published, err error) {
	p.room.Release(m.weight)
	if m.state == withdrawn {
		return
	}
	m.result, m.err = result, err
	close(m.done)
}

// Close sends what waits, and returns when all callers have their answers. When
// the context ends, the rest is given up, and their callers are told.
func (p *Publisher) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	landed := make(chan struct{})
	go func() {
		p.flights.Wait()
		close(landed)
	}()
	select {
	case <-landed:
		p.stop()
		return nil
	case <-ctx.Done():
		p.stop()
		<-landed
		return fmt.Errorf("close publisher: %w", ctx.Err())
	}
}
