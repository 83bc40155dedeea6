package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"leat/api"
	"leat/eventstore"
)

// SubscribeConfig says where a subscription begins and how it works. The zero
// value reads what comes from now on, message by message.
type SubscribeConfig struct {
	// From is where to begin: earliest, latest, an offset, or a time (RFC 3339). A
	// point that exists beats it. Default latest.
	From string
	// Epoch of the offset in From, to be refused if the stream is another one by
	// now. Default 0: no check.
	Epoch eventstore.Position

	// Point names the replication point to resume from and to commit to. It is made
	// at From, if there is none. Default "": the position is the caller's to keep.
	Point string
	// Partitions greater than 1 makes this a member of a group that shares the
	// stream by routing key. Default 0: as the point was made; a new one has 1.
	Partitions int
	// Member names this subscriber towards the point; the same name again takes
	// over. Default: drawn.
	Member string
	// NoCommit leaves the point where it is. Default false: what was handled is
	// committed as soon as the commit before is done.
	NoCommit bool
	// CommitEvery commits after so many messages only, or after CommitInterval, and
	// at the end. Default 0: neither waits.
	CommitEvery    int
	CommitInterval time.Duration

	// Key chooses messages by routing key: words split by dots, * is one word, #
	// zero or more. Default "": all.
	Key string
	// Window bounds the messages that came and are not handled. Default 1,000.
	Window int
	// MaxBatch bounds what SubscribeBatches hands over at once. Default 100.
	MaxBatch int
	// Concurrency is how many messages are handled at once: those of one routing key
	// in their order, one after the other. Default 1: all are.
	Concurrency int

	// Grace is how long handlers may go on after the end of the context, before
	// theirs ends. Default 10 s.
	Grace time.Duration
	// FailFast returns the error of a first connection that cannot be made. Default
	// false: it is tried again.
	FailFast bool
	// Silence is how long the server may say nothing before the connection counts as
	// lost. Default 45 s; its signs of life come every 15 to 20 s.
	Silence time.Duration

	// OnSubscribed is told of each connection, OnAssigned of the partitions of a
	// group's member whenever they change, OnLost of a lost connection and of when
	// the next one is tried. They must return soon. Default: nobody is told.
	OnSubscribed func(api.SubscribedFrame)
	OnAssigned   func(partitions []int)
	OnLost       func(err error, retryIn time.Duration)
}

func (c SubscribeConfig) withDefaults() SubscribeConfig {
	c.Window = positive(c.Window, 1000)
	c.MaxBatch = positive(c.MaxBatch, 100)
	c.Concurrency = positive(c.Concurrency, 1)
	c.Grace = positive(c.Grace, 10*time.Second)
	return c
}

// Message is a message of a stream, and the epoch of its offset.
type Message struct {
	api.StreamMessage
	Epoch eventstore.Position
}

// Position is where the message is, for good.
func (m Message) Position() api.StreamPosition {
	return api.StreamPosition{Epoch: m.Epoch, Offset: m.Offset}
}

// ErrStop ends a subscription or a consumer from its handler, without an error:
// the message counts as handled.
var ErrStop = errors.New("stop")

// GapError says that a server skipped or repeated messages, which it never may.
type GapError struct {
	Want, Got eventstore.Offset
}

// Error says which.
func (e *GapError) Error() string {
	return fmt.Sprintf("the stream is broken: offset %d came instead of %d", e.Got, e.Want)
}

// Subscribe hands each message of a stream to handle, in order. It reconnects by
// itself, and goes on with the first message that was not handled. It returns
// nil when the context ends or handle answers ErrStop, after the commit of what
// was handled; the error of handle; or an *api.Problem where going on makes no
// sense: then its Resume, if there is one, says where it would be possible.
//
// A message that was handled and not committed comes again after a crash, and
// none that was committed.
func (c *Client) Subscribe(ctx context.Context, stream string, config SubscribeConfig,
	handle func(context.Context, Message) error,
) error {
	config.MaxBatch = 1
	return c.subscribe(ctx, stream, config, func(ctx context.Context, batch []Message) error {
		return handle(ctx, batch[0])
	})
}

// SubscribeBatches is Subscribe for handlers that take what is there at once.
// With Concurrency greater than 1 that is one message.
func (c *Client) SubscribeBatches(ctx context.Context, stream string, config SubscribeConfig,
	handle func(context.Context, []Message) error,
) error {
	return c.subscribe(ctx, stream, config, handle)
}

func (c *Client) subscribe(ctx context.Context, stream string, config SubscribeConfig, handle batchHandler) error {
	s := newSubscription(c, stream, config.withDefaults(), handle)
	// Handlers go on for a while after the end of ctx.
	working, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	workers := s.work(working, stop)
	ended := context.AfterFunc(running, func() {
		s.close()
		_ = pause(working, s.config.Grace)
		cancel(context.Cause(running))
	})
	defer ended()

	err := c.hold(running, line{
		request: s.request, failFast: s.config.FailFast, silence: s.config.Silence, lost: s.config.OnLost,
		session: func(sock *socket) (bool, error) { return s.session(running, sock) },
	})
	if err != nil {
		// Somebody else may be at it now.
		cancel(err)
	}
	stop(nil)
	s.close()
	workers.Wait()
	if failure := s.failure(); failure != nil {
		return failure
	}
	return err
}

// request asks for the next connection: to go on behind what came.
func (s *subscription) request() request {
	query := url.Values{}
	s.mu.Lock()
	defer s.mu.Unlock()
	set(query, "from", s.config.From)
	setNumber(query, "epoch", int64(s.config.Epoch))
	if s.epoch != 0 {
		setNumber(query, "epoch", int64(s.epoch))
		if !s.group {
			query.Set("from", s.received.String())
		}
	}
	set(query, "point", s.config.Point)
	setNumber(query, "partitions", int64(s.config.Partitions))
	set(query, "member", s.member)
	set(query, "key", s.config.Key)
	setNumber(query, "window", int64(s.config.Window))
	return request{method: http.MethodGet, path: []string{"v1", "streams", s.stream, "subscribe"}, query: query}
}
