package pubsub

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"leat/api"
	"leat/api/client"
)

// subscription is one channel of messages.
type subscription struct {
	subscriber *Subscriber
	topic      string
	given      <-chan struct{} // closed when the caller's context ends
	running    <-chan struct{} // closed when nothing more is to be handed out
	out        chan *message.Message
	ready      chan struct{} // closed when the first connection stands
	once       sync.Once
	logger     watermill.LoggerAdapter
}

// run returns when the subscription has ended.
func (s *subscription) run(ctx context.Context, partitions int) error {
	if s.subscriber.config.Topics.Kind == Streams {
		return s.subscribe(ctx, partitions)
	}
	return s.consume(ctx)
}

func (s *subscription) begun() { s.once.Do(func() { close(s.ready) }) }

func (s *subscription) lost(err error, retryIn time.Duration) {
	s.logger.Info("the connection is lost, and tried again", watermill.LogFields{"err": err, "in": retryIn})
}

// report tells of an end that nobody asked for.
func (s *subscription) report(err error) {
	if err != nil && !s.ending() {
		s.logger.Error("the subscription has ended", err, nil)
	}
}

func (s *subscription) ending() bool {
	select {
	case <-s.running:
		return true
	default:
		return false
	}
}

// consume takes the messages of a queue.
func (s *subscription) consume(ctx context.Context) error {
	config := s.subscriber.config
	queue := s.topic
	if config.Topics.Kind == Exchanges {
		queue = config.Topics.groupQueue(s.topic, config.Group)
	}
	return s.subscriber.leat.Consume(ctx, queue, client.ConsumeConfig{
		Concurrency: config.Concurrency, Prefetch: config.Prefetch, Grace: config.CloseTimeout, FailFast: true,
		OnConsuming: func(api.ConsumingFrame) { s.begun() }, OnLost: s.lost,
	}, func(ctx context.Context, d api.Delivery) error {
		acked, err := s.offer(ctx, Received{
			Topic: s.topic, RoutingKey: d.RoutingKey, Content: d.Content, MessageID: d.MessageID,
			OriginMessageID: d.OriginMessageID, PublishedAt: d.PublishedAt, Attempt: d.Attempt, Priority: d.Priority,
		})
		switch {
		case errors.Is(err, errUnanswered):
			return client.ErrRelease
		case err != nil:
			s.logger.Error("a message cannot be read, and is dead", err, watermill.LogFields{"message": d.MessageID})
			return client.DeadLetter(client.WithClass("unmarshal", err))
		case !acked:
			return errNacked
		default:
			return nil
		}
	})
}

// subscribe reads a stream. A message that is nacked is offered again, and
// those behind it wait.
func (s *subscription) subscribe(ctx context.Context, partitions int) error {
	config := s.subscriber.config
	return s.subscriber.leat.Subscribe(ctx, s.topic, client.SubscribeConfig{
		From: config.From, Point: config.Group, Partitions: partitions, Concurrency: config.Concurrency,
		Grace: config.CloseTimeout, FailFast: true,
		OnSubscribed: func(api.SubscribedFrame) { s.begun() }, OnLost: s.lost,
	}, func(ctx context.Context, m client.Message) error {
		received := Received{
			Topic: s.topic, RoutingKey: m.RoutingKey, Content: m.Content, MessageID: m.MessageID,
			OriginMessageID: m.OriginMessageID, PublishedAt: m.PublishedAt, Position: new(m.Position()),
		}
		for {
			acked, err := s.offer(ctx, received)
			switch {
			case errors.Is(err, errUnanswered):
				return context.Canceled // not handled: it comes again
			case err != nil || acked:
				return err
			}
			s.pause(ctx, config.NackDelay)
		}
	})
}

var (
	errNacked     = errors.New("nacked")
	errUnanswered = errors.New("neither acked nor nacked")
)

// offer hands a message out, and waits for its ack or nack. Its context ends
// with that, with the caller's, and with ctx.
func (s *subscription) offer(ctx context.Context, received Received) (acked bool, err error) {
	msg, err := s.subscriber.config.Unmarshaler.Unmarshal(received)
	if err != nil {
		return false, err
	}
	mine, cancel := context.WithCancel(context.WithValue(ctx, receivedKey{}, received))
	defer cancel()
	msg.SetContext(mine)
	if s.ending() {
		return false, errUnanswered
	}
	select {
	case s.out <- msg:
		return s.await(ctx, msg, cancel)
	case <-s.running:
		return false, errUnanswered
	case <-ctx.Done():
		return false, errUnanswered
	}
}

// await waits for the answer. The end of the caller's context ends that of the
// message, which may still be acked.
func (s *subscription) await(ctx context.Context, msg *message.Message, cancel context.CancelFunc) (acked bool, err error) {
	given := s.given
	for {
		select {
		case <-msg.Acked():
			return true, nil
		case <-msg.Nacked():
			return false, nil
		case <-given:
			cancel()
			given = nil
		case <-ctx.Done():
			return false, errUnanswered
		}
	}
}

func (*subscription) pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
