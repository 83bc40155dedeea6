package bench

import (
	"context"
	"errors"
	"fmt"

	"leat/commands"
)

// place is a database for queues of one size, without a broker at work: what it
// does by itself would come in between. It is made when it is needed.
type place struct{ bed *bed }

// depth is a queue that is kept at one size.
type depth struct {
	in       *place
	mode     string
	messages int
	keys     int
	queue    string // "": not made yet
}

// depthKeys spreads the messages of a standard queue, so that a batch of
// depthBatch has runs of ten.
const (
	depthKeys  = 100
	depthBatch = 1000
)

// depthWorks claim from a small queue and from a large one.
func (l *lab) depthWorks() []work {
	large, many := max(1000, 1_000_000/l.cfg.Scale), max(1000, 100_000/l.cfg.Scale)
	small, big := &place{}, &place{}
	return append(
		l.depthPair("depth/ready", "ready",
			&depth{in: small, mode: commands.Standard, messages: 1000, keys: depthKeys},
			&depth{in: big, mode: commands.Standard, messages: large, keys: depthKeys}),
		l.depthPair("depth/keys", "keys",
			&depth{in: small, mode: commands.FIFO, messages: 1000, keys: 1000},
			&depth{in: big, mode: commands.FIFO, messages: many, keys: many})...)
}

// The sides of the depth cases.
const (
	shallow = "few"
	deep    = "many"
)

func (l *lab) depthPair(name, what string, few, many *depth) []work {
	var works []work
	for _, batch := range []int{1, 100} {
		take := func(d *depth) func(context.Context, *clock) (tally, error) {
			return func(ctx context.Context, c *clock) (tally, error) { return l.claims(ctx, c, d, batch) }
		}
		works = append(works, work{name: fmt.Sprintf("%s-%d", name, batch), sides: []side{
			{name: shallow, label: fmt.Sprintf("%d %s", few.messages, what), take: take(few)},
			{name: deep, label: fmt.Sprintf("%d %s", many.messages, what), take: take(many)},
		}})
	}
	return works
}

// claims measures polls alone. What they took is settled, and as much published
// again, while the clock stands.
func (l *lab) claims(ctx context.Context, c *clock, d *depth, batch int) (tally, error) {
	if err := l.fillDepth(ctx, d); err != nil {
		return tally{}, err
	}
	phases, polls := 10, 5
	if batch == 1 {
		polls = 100
	}
	if l.cfg.Scale > 1 {
		phases = 1
	}
	done := tally{}
	for range phases {
		var taken []commands.Delivery
		if err := c.start(ctx); err != nil {
			return done, err
		}
		for range polls {
			got, err := d.in.bed.node.Commands.Poll(ctx, commands.PollRequest{Queue: d.queue, Consumer: actor, Max: batch})
			if err != nil {
				return done, fmt.Errorf("poll: %w", err)
			}
			taken = append(taken, got...)
		}
		if err := c.stop(ctx); err != nil {
			return done, err
		}
		if len(taken) != polls*batch {
			return done, fmt.Errorf("%w: %d taken instead of %d", errCount, len(taken), polls*batch)
		}
		done.messages += len(taken)
		if err := l.replace(ctx, d, taken); err != nil {
			return done, err
		}
	}
	return done, nil
}

// fillDepth makes the queue, at its first use.
func (l *lab) fillDepth(ctx context.Context, d *depth) error {
	if d.queue != "" {
		return nil
	}
	if d.in.bed == nil {
		b, err := l.newDatabase(ctx, Parts{})
		if err != nil {
			return err
		}
		d.in.bed = b
	}
	b := d.in.bed
	queue, err := declare(ctx, b, d.mode)
	if err != nil {
		return err
	}
	keys := numbered(d.keys)
	filled, err := produce(ctx, commandsDriver{b.node.Commands}, queue, 4, depthBatch, newQuota(d.messages, 0),
		func(worker int) *deck { return &deck{keys: keys, payload: l.payload(0), next: worker * d.keys / 4} })
	if err != nil {
		return fmt.Errorf("fill: %w", err)
	}
	if err := errors.Join(b.expect(ctx, queue, filled), b.settle(ctx)); err != nil {
		return err
	}
	d.queue = queue
	return nil
}

// replace settles messages and publishes as many under the same keys.
func (l *lab) replace(ctx context.Context, d *depth, taken []commands.Delivery) error {
	settle := commands.SettleRequest{Queue: d.queue, Actor: actor}
	publish := commands.PublishRequest{Channel: d.queue, Actor: actor}
	for i := range taken {
		settle.Receipts = append(settle.Receipts, taken[i].Receipt.String())
		publish.Messages = append(publish.Messages, commands.Message{RoutingKey: taken[i].RoutingKey, Payload: taken[i].Payload})
	}
	result, err := d.in.bed.node.Commands.Ack(ctx, settle)
	if err != nil {
		return fmt.Errorf("ack: %w", err)
	}
	if result.Settled != len(taken) {
		return fmt.Errorf("ack: %w: %v", errUnsettled, result.Failed)
	}
	if _, err := d.in.bed.node.Commands.Publish(ctx, publish); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	return nil
}
