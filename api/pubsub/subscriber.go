package pubsub

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"leat/api"
	"leat/api/client"
	"leat/eventstore"
)

// SubscriberConfig tunes a subscriber. The zero value takes messages of queues,
// one after the other.
type SubscriberConfig struct {
	// Topics says what topics are.
	Topics Topics
	// Group is the consumer group: its subscribers share the messages of a topic.
	// Exchanges need one, queues are one each. Default "": a subscriber of a stream
	// reads all of it, and keeps no position.
	Group string
	// Unmarshaler makes the messages. Default: a DefaultMarshaler.
	Unmarshaler Unmarshaler
	// Concurrency is how many messages of a subscription are out at once, waiting for
	// their ack; those of one routing key of a FIFO queue or of a stream one after the
	// other. Default 1.
	Concurrency int
	// Prefetch is how many messages a subscription to a queue takes, 1 to 1,000.
	// Default: the client's. Fewer leave more to other subscribers.
	Prefetch int

	// From is where reading of a stream begins: earliest, latest, an offset, or a
	// time (RFC 3339). A group goes on where it was. Default earliest.
	From string
	// Partitions is how many subscribers can share a stream as a group, 2 to 64, or 1
	// for one at a time, from whom the next one takes over. The group keeps the number
	// that it began with. Default: that one, 16 for a new group.
	Partitions int
	// NackDelay is when a nacked message of a stream comes again, with all those
	// behind it waiting; a queue has its policy. Default 10 ms.
	NackDelay time.Duration

	// CloseTimeout is how long messages that are out may still be acked after Close or
	// the end of the context. Default 10 s.
	CloseTimeout time.Duration
}

func (c SubscriberConfig) withDefaults() SubscriberConfig {
	if c.Unmarshaler == nil {
		c.Unmarshaler = DefaultMarshaler{}
	}
	if c.From == "" {
		c.From = "earliest"
	}
	if c.NackDelay <= 0 {
		c.NackDelay = 10 * time.Millisecond
	}
	if c.CloseTimeout <= 0 {
		c.CloseTimeout = 10 * time.Second
	}
	return c
}

func (c SubscriberConfig) check() error {
	if err := c.Topics.check(); err != nil {
		return err
	}
	switch {
	case c.Topics.Kind == Queues && c.Group != "":
		return errors.New("the subscribers of a queue are one group: a topic with several is an exchange or a stream")
	case c.Topics.Kind == Exchanges && c.Group == "":
		return errors.New("an exchange keeps no messages: its subscribers need a group")
	case c.Group == "" && c.Partitions != 0:
		return errors.New("partitions are of a group")
	default:
		return nil
	}
}

// Subscriber is a message.Subscriber.
type Subscriber struct {
	leat   *client.Client
	config SubscriberConfig
	logger watermill.LoggerAdapter

	stop   context.CancelFunc                                          // ends all subscriptions
	joined func(context.Context) (context.Context, context.CancelFunc) // a context that stop ends too

	mu            sync.Mutex
	closed        bool
	subscriptions sync.WaitGroup
}

var (
	_ message.Subscriber           = (*Subscriber)(nil)
	_ message.SubscribeInitializer = (*Subscriber)(nil)
)

// NewSubscriber makes a subscriber. The client stays the caller's. A nil logger
// logs nothing.
func NewSubscriber(leat *client.Client, config SubscriberConfig, logger watermill.LoggerAdapter) (*Subscriber, error) {
	if leat == nil {
		return nil, errors.New("new subscriber: there is no client")
	}
	if err := config.check(); err != nil {
		return nil, fmt.Errorf("new subscriber: %w", err)
	}
	if logger == nil {
		logger = watermill.NopLogger{}
	}
	root, stop := context.WithCancel(context.Background())
	joined := func(given context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(given)
		unhook := context.AfterFunc(root, cancel)
		return ctx, func() {
			unhook()
			cancel()
		}
	}
	return &Subscriber{leat: leat, config: config.withDefaults(), logger: logger, stop: stop, joined: joined}, nil
}

// initializeWithin bounds SubscribeInitialize, which has no context.
const initializeWithin = time.Minute

// SubscribeInitialize declares the topic, and what the group needs of it: from
// then on the group misses nothing.
func (s *Subscriber) SubscribeInitialize(topic string) error {
	ctx, cancel := context.WithTimeout(context.Background(), initializeWithin)
	defer cancel()
	if _, err := s.initialize(ctx, topic); err != nil {
		return fmt.Errorf("initialize subscribers to %s: %w", topic, err)
	}
	return nil
}

// initialize answers in how many partitions the group reads a stream.
func (s *Subscriber) initialize(ctx context.Context, topic string) (partitions int, err error) {
	topics := s.config.Topics
	if !topics.MustExist {
		if err := declare(ctx, s.leat, topic, topics.spec()); err != nil {
			return 0, err
		}
	}
	switch {
	case topics.Kind == Exchanges && !topics.MustExist:
		return 0, bind(ctx, s.leat, topics, topic, s.config.Group)
	case topics.Kind == Streams && s.config.Group != "":
		return s.point(ctx, topic)
	default:
		return 0, nil
	}
}

// defaultPartitions of a new group are more than it is likely to have members.
const defaultPartitions = 16

// point makes the replication point of the group, unless it is there.
func (s *Subscriber) point(ctx context.Context, topic string) (partitions int, err error) {
	spec := api.PointSpec{From: s.config.From, Partitions: s.config.Partitions}
	point, err := s.leat.Point(ctx, topic, s.config.Group)
	if codeOf(err) == eventstore.PointNotFound || (err == nil && spec.Partitions != 0) {
		if spec.Partitions == 0 {
			spec.Partitions = defaultPartitions
		}
		point, err = s.leat.DeclarePoint(ctx, topic, s.config.Group, spec)
		if codeOf(err) == eventstore.PointConflict && s.config.Partitions == 0 {
			point, err = s.leat.Point(ctx, topic, s.config.Group) // somebody else was faster
		}
	}
	if err != nil {
		return 0, fmt.Errorf("declare replication point %s: %w", s.config.Group, err)
	}
	return len(point.Partitions), nil
}

// Subscribe returns when the subscription has begun. Its channel is closed after
// the end of the context, after Close, or when the broker says that going on
// makes no sense, which the logger is told as an error.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	if err := s.begin(); err != nil {
		return nil, fmt.Errorf("subscribe to %s: %w", topic, err)
	}
	running, stop := s.joined(ctx)
	one := &subscription{
		subscriber: s, topic: topic, given: ctx.Done(), running: running.Done(),
		out: make(chan *message.Message), ready: make(chan struct{}),
		logger: s.logger.With(watermill.LogFields{"topic": topic, "group": s.config.Group}),
	}
	end := func() {
		stop()
		s.subscriptions.Done()
	}
	partitions, err := s.initialize(running, topic)
	if err != nil {
		end()
		return nil, fmt.Errorf("subscribe to %s: %w", topic, err)
	}
	ended := make(chan error, 1)
	go func() {
		err := one.run(running, partitions)
		one.report(err)
		close(one.out)
		ended <- err
		end()
	}()
	select {
	case <-one.ready:
		return one.out, nil
	case err := <-ended:
		if err != nil {
			return nil, fmt.Errorf("subscribe to %s: %w", topic, err)
		}
		return one.out, nil
	}
}

func (s *Subscriber) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	s.subscriptions.Add(1)
	return nil
}

// Close ends all subscriptions, and returns when their channels are closed. What
// is out may be acked until CloseTimeout. It may be called again.
func (s *Subscriber) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop()
	s.subscriptions.Wait()
	return nil
}
