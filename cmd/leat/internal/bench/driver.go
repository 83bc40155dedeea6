package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"leat/api"
	"leat/api/client"
	"leat/commands"
)

// driver is one way to use the broker.
type driver interface {
	publish(ctx context.Context, queue string, messages []commands.Message) error
	poll(ctx context.Context, queue string, limit int, wait time.Duration) ([]delivery, error)
	ack(ctx context.Context, queue string, deliveries []delivery) error
}

// delivery is what a consumer needs of a message.
type delivery struct {
	receipt string
	payload []byte
}

// actor is who does what the bench does, for the log.
const actor = "bench"

// errUnsettled says that a receipt did not hold: a lease ended, which is no
// figure to report.
var errUnsettled = errors.New("not every receipt was settled")

type commandsDriver struct{ broker *commands.Broker }

func (d commandsDriver) publish(ctx context.Context, queue string, messages []commands.Message) error {
	_, err := d.broker.Publish(ctx, commands.PublishRequest{Channel: queue, Actor: actor, Messages: messages})
	return err
}

func (d commandsDriver) poll(ctx context.Context, queue string, limit int, wait time.Duration) ([]delivery, error) {
	got, err := d.broker.Poll(ctx, commands.PollRequest{Queue: queue, Consumer: actor, Max: limit, Wait: wait})
	if err != nil {
		return nil, err
	}
	deliveries := make([]delivery, len(got))
	for i := range got {
		deliveries[i] = delivery{receipt: got[i].Receipt.String(), payload: got[i].Payload}
	}
	return deliveries, nil
}

func (d commandsDriver) ack(ctx context.Context, queue string, deliveries []delivery) error {
	result, err := d.broker.Ack(ctx, commands.SettleRequest{Queue: queue, Actor: actor, Receipts: receipts(deliveries)})
	if err == nil && result.Settled != len(deliveries) {
		return fmt.Errorf("ack: %w: %v", errUnsettled, result.Failed)
	}
	return err
}

type httpDriver struct{ client *client.Client }

func (d httpDriver) publish(ctx context.Context, queue string, messages []commands.Message) error {
	request := api.PublishRequest{Messages: make([]api.Message, len(messages))}
	for i, m := range messages {
		request.Messages[i] = api.Message{RoutingKey: m.RoutingKey, Payload: m.Payload}
	}
	_, err := d.client.Publish(ctx, queue, request, false)
	return err
}

func (d httpDriver) poll(ctx context.Context, queue string, limit int, wait time.Duration) ([]delivery, error) {
	got, err := d.client.Poll(ctx, queue, api.PollRequest{Max: &limit, Wait: api.Duration(wait)})
	if err != nil {
		return nil, err
	}
	deliveries := make([]delivery, len(got))
	for i := range got {
		deliveries[i] = delivery{receipt: got[i].Receipt, payload: got[i].Bytes()}
	}
	return deliveries, nil
}

func (d httpDriver) ack(ctx context.Context, queue string, deliveries []delivery) error {
	result, err := d.client.Ack(ctx, queue, receipts(deliveries)...)
	if err == nil && result.Settled != len(deliveries) {
		return fmt.Errorf("ack: %w: %v", errUnsettled, result.Failed)
	}
	return err
}

func receipts(deliveries []delivery) []string {
	texts := make([]string, len(deliveries))
	for i := range deliveries {
		texts[i] = deliveries[i].receipt
	}
	return texts
}
