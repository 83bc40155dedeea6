package bench

import (
	"context"
	"fmt"
	"time"

	"leat/api"
	"leat/api/client"
	"leat/commands"
	"leat/eventstore"
)

// hubFlow reads a stream inside the broker's process.
type hubFlow struct {
	commandsDriver
	streams api.Streams
	stream  string
}

func (l *lab) hubFlow(ctx context.Context) (flow, error) {
	stream, err := l.declareStream(ctx)
	return hubFlow{commandsDriver{l.main.node.Commands}, l.main.node.Streams, stream}, err
}

func (f hubFlow) write(ctx context.Context, messages []commands.Message) error {
	return f.publish(ctx, f.stream, messages)
}

func (f hubFlow) read(ctx context.Context, begun func(), see func([][]byte) error) error {
	subscription, err := f.streams.Subscribe(ctx, eventstore.SubscribeRequest{
		Stream: f.stream, Start: eventstore.Start{Kind: eventstore.StartEarliest}, Actor: actor,
	})
	if err != nil {
		return err
	}
	defer subscription.Close()
	begun()
	next := subscription.Subscribed().Next.Offset
	var payloads [][]byte
	for {
		batch, err := subscription.Next(ctx, time.Minute)
		if err != nil {
			return err
		}
		payloads = payloads[:0]
		for _, m := range batch.Messages {
			if m.Offset != next {
				return fmt.Errorf("%w: offset %d instead of %d", errCount, m.Offset, next)
			}
			next++
			payloads = append(payloads, m.Payload)
		}
		if err := see(payloads); err != nil {
			return err
		}
	}
}

// socketFlow reads a stream through the Go client.
type socketFlow struct {
	commandsDriver
	client *client.Client
	stream string
}

func (l *lab) socketFlow(ctx context.Context) (flow, error) {
	stream, err := l.declareStream(ctx)
	return socketFlow{commandsDriver{l.main.node.Commands}, l.main.client, stream}, err
}

func (f socketFlow) write(ctx context.Context, messages []commands.Message) error {
	return f.publish(ctx, f.stream, messages)
}

// socketWindow is large enough to take what comes between two acks.
const socketWindow = 20_000

func (f socketFlow) read(ctx context.Context, begun func(), see func([][]byte) error) error {
	config := client.SubscribeConfig{
		From: "earliest", Window: socketWindow, MaxBatch: 1000, FailFast: true,
		OnSubscribed: func(api.SubscribedFrame) { begun() },
	}
	var payloads [][]byte
	err := f.client.SubscribeBatches(ctx, f.stream, config, func(_ context.Context, batch []client.Message) error {
		payloads = payloads[:0]
		for i := range batch {
			payloads = append(payloads, batch[i].Bytes())
		}
		return see(payloads)
	})
	if err == nil {
		err = ctx.Err()
	}
	return err
}
