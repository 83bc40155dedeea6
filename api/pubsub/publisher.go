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

// PublisherConfig tunes a publisher. The zero value publishes into queues.
type PublisherConfig struct {
	// Topics says what topics are.
	Topics Topics
	// Marshaler makes the messages. Default: a DefaultMarshaler.
	Marshaler Marshaler
	// Gather tunes how messages of many callers share requests, and RetryFor how
	// long a publish is repeated that the server could not carry out. Defaults are
	// the client's.
	Gather client.PublisherConfig
	// CloseTimeout bounds how long Close waits for what is under way. Default 30 s.
	CloseTimeout time.Duration
}

// ErrClosed says that a publisher or subscriber is closed.
var ErrClosed = errors.New("closed")

// Publisher is a message.Publisher.
type Publisher struct {
	leat   *client.Client
	config PublisherConfig
	logger watermill.LoggerAdapter

	mu        sync.Mutex
	closed    bool
	calls     sync.WaitGroup
	gatherers map[string]*client.Publisher // by topic
}

var _ message.Publisher = (*Publisher)(nil)

// NewPublisher makes a publisher. The client stays the caller's. A nil logger
// logs nothing.
func NewPublisher(leat *client.Client, config PublisherConfig, logger watermill.LoggerAdapter) (*Publisher, error) {
	if leat == nil {
		return nil, errors.New("new publisher: there is no client")
	}
	if err := config.Topics.check(); err != nil {
		return nil, fmt.Errorf("new publisher: %w", err)
	}
	if config.Marshaler == nil {
		config.Marshaler = DefaultMarshaler{}
	}
	if config.CloseTimeout <= 0 {
		config.CloseTimeout = 30 * time.Second
	}
	if logger == nil {
		logger = watermill.NopLogger{}
	}
	return &Publisher{leat: leat, config: config, logger: logger, gatherers: map[string]*client.Publisher{}}, nil
}

// Publish stores the messages, in their order, and returns when they are stored:
// all of them, or none. Only more than 10,000 messages, or 8 MiB, go in several
// parts. The context is that of the first message. A refusal is an *api.Problem;
// an *client.UnansweredError says that a message may be stored or not.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	if len(messages) == 0 {
		return nil
	}
	gatherer, err := p.begin(topic)
	if err != nil {
		return err
	}
	defer p.calls.Done()
	batch, err := p.marshal(topic, messages)
	if err != nil {
		return fmt.Errorf("publish to %s: %w", topic, err)
	}
	ctx := messages[0].Context()
	if len(batch) == 1 {
		err = p.declaring(ctx, topic, func() error {
			_, err := gatherer.Publish(ctx, batch[0])
			return err
		})
	} else {
		err = p.publishParts(ctx, gatherer, topic, batch)
	}
	if err != nil {
		return fmt.Errorf("publish to %s: %w", topic, err)
	}
	p.logger.Trace("published", watermill.LogFields{"topic": topic, "messages": len(batch)})
	return nil
}

// begin counts a call, and answers who gathers the messages of the topic.
func (p *Publisher) begin(topic string) (*client.Publisher, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, fmt.Errorf("publish to %s: %w", topic, ErrClosed)
	}
	gatherer := p.gatherers[topic]
	if gatherer == nil {
		gatherer = client.NewPublisher(p.leat, topic, p.config.Gather)
		p.gatherers[topic] = gatherer
	}
	p.calls.Add(1)
	return gatherer, nil
}

func (p *Publisher) marshal(topic string, messages []*message.Message) ([]api.Message, error) {
	batch := make([]api.Message, len(messages))
	for i, msg := range messages {
		var err error
		if batch[i], err = p.config.Marshaler.Marshal(topic, msg); err != nil {
			return nil, fmt.Errorf("message %d, %s: %w", i, msg.UUID, err)
		}
	}
	return batch, nil
}

// declaring declares the topic when the publish finds it missing: nothing was
// stored then.
func (p *Publisher) declaring(ctx context.Context, topic string, publish func() error) error {
	err := publish()
	if codeOf(err) != eventstore.ChannelNotFound || p.config.Topics.MustExist {
		return err
	}
	if err := declare(ctx, p.leat, topic, p.config.Topics.spec()); err != nil {
		return err
	}
	p.logger.Info("declared a topic", watermill.LogFields{"topic": topic, "kind": p.config.Topics.Kind.String()})
	return publish()
}

// Bounds of a request; the server's are 10,000 messages and 16 MiB.
const (
	partMessages = 10_000
	partBytes    = 8 << 20
)

func (p *Publisher) publishParts(ctx context.Context, gatherer *client.Publisher, topic string, batch []api.Message) error {
	for len(batch) > 0 {
		n := part(batch)
		err := p.declaring(ctx, topic, func() error {
			_, err := gatherer.PublishAll(ctx, batch[:n])
			return err
		})
		if err != nil {
			return err
		}
		batch = batch[n:]
	}
	return nil
}

// part is how many messages fit into a request, at least one.
func part(batch []api.Message) int {
	bytes := 0
	for i := range batch {
		bytes += len(batch[i].Payload) + len(batch[i].PayloadBase64) + len(batch[i].Headers)
		if i > 0 && (i == partMessages || bytes > partBytes) {
			return i
		}
	}
	return len(batch)
}

// Close waits for what is under way, and takes no more. It may be called again.
func (p *Publisher) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), p.config.CloseTimeout)
	defer cancel()
	errs := []error{}
	for topic, gatherer := range p.gatherers {
		if err := gatherer.Close(ctx); err != nil {
			errs = append(errs, fmt.Errorf("close publisher to %s: %w", topic, err))
		}
	}
	p.calls.Wait()
	return errors.Join(errs...)
}
