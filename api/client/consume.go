package client

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"leat/api"
)

// ConsumeConfig tunes a consumer of a queue. The zero value handles one message
// after the other.
type ConsumeConfig struct {
	// Concurrency is how many messages are handled at once; of a FIFO queue those of
	// one routing key in their order, one after the other. Default 1.
	Concurrency int
	// Prefetch is how many messages are taken and not settled, 1 to 1,000. Default
	// twice Concurrency, and at least 20. Fewer leave more to other consumers.
	Prefetch int
	// Lease is what is asked for each message. It is extended for as long as the
	// message waits or is handled. Default: the queue's.
	Lease time.Duration
	// RoutingKeys are the only ones to take. Default: all.
	RoutingKeys []string
	// Consumer is the name that the log gives. Default: that of the client.
	Consumer string

	// Grace is how long handlers may go on after the end of the context, before
	// theirs ends. Default 10 s.
	Grace time.Duration
	// FailFast returns the error of a first connection that cannot be made. Default
	// false: it is tried again.
	FailFast bool
	// Silence is how long the server may say nothing before the connection counts as
	// lost. Default 45 s; its signs of life come every 15 to 20 s.
	Silence time.Duration

	// OnConsuming is told of each connection, OnLost of a lost one and of when the
	// next one is tried. They must return soon. Default: nobody is told.
	OnConsuming func(api.ConsumingFrame)
	OnLost      func(err error, retryIn time.Duration)
	// Logger is told of panics of the handler, and of messages that were handled but
	// not settled: they come again. Default: nobody is told.
	Logger *slog.Logger
}

func (c ConsumeConfig) withDefaults() ConsumeConfig {
	c.Concurrency = positive(c.Concurrency, 1)
	c.Prefetch = min(positive(c.Prefetch, max(20, 2*c.Concurrency)), 1000)
	c.Grace = positive(c.Grace, 10*time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// ErrLeaseLost is the cause of the end of a handler's context, when its message
// is no longer its own: it may be with another consumer.
var ErrLeaseLost = errors.New("the lease of the message is lost")

// ErrRelease is the answer of a handler that gives its message back: it comes
// again at once, to anybody, and the attempt does not count.
var ErrRelease = errors.New("release")

// Consume takes messages of a queue and hands them to handle. The message is
// acked when that answers nil. An error brings it again by the queue's retry
// policy, or does what a NackError says; so does a panic. ErrRelease gives it
// back, and ErrStop acks it and ends the consumer.
//
// It reconnects by itself. It returns nil when the context ends, after the
// running handlers; what they did not finish, and what waits, is given back at
// once and counts no attempt. It returns an *api.Problem where going on makes no
// sense, as when the queue is gone.
//
// A message comes again if its settlement did not reach the server. The context
// of the handler ends when the message is lost to others.
func (c *Client) Consume(ctx context.Context, queue string, config ConsumeConfig,
	handle func(context.Context, api.Delivery) error,
) error {
	config = config.withDefaults()
	k := newConsumer(queue, config, handle)
	working, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	workers := k.work(working, stop)
	ended := context.AfterFunc(running, func() {
		k.lanes.close()
		_ = pause(working, config.Grace)
		cancel(context.Cause(running))
	})
	defer ended()

	err := c.hold(running, line{
		request: k.request, failFast: config.FailFast, silence: config.Silence, lost: config.OnLost,
		session: func(sock *socket) (bool, error) { return k.session(running, sock) },
	})
	if err != nil {
		cancel(err)
	}
	stop(nil)
	k.lanes.close()
	workers.Wait()
	return err
}

func (k *consumer) request() request {
	query := url.Values{"routingKeys": k.config.RoutingKeys}
	setNumber(query, "prefetch", int64(k.config.Prefetch))
	if k.config.Lease > 0 {
		query.Set("lease", k.config.Lease.String())
	}
	set(query, "consumer", k.config.Consumer)
	return request{method: http.MethodGet, path: []string{"v1", "queues", k.queue, "consume"}, query: query}
}
