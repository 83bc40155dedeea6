package bench

import (
	"context"
	"fmt"
)

// drainSizes are how many messages are drained, by batch, where the user does
// not say.
var drainSizes = map[int]int{1: 1500, 10: 10_000, 100: 40_000}

// drainWorks poll and ack what waits in a queue.
func (l *lab) drainWorks() []work {
	var works []work
	for _, c := range []struct{ consumers, batch int }{
		{1, 1}, {8, 1}, {1, 10}, {8, 10}, {1, 100}, {8, 100},
	} {
		messages := l.drainSize(c.batch)
		floors := []side{
			{name: "delete", take: l.drainFloor(c.consumers, messages, deleteEnd{limit: c.batch})},
			{name: "lease+delete", take: l.drainFloor(c.consumers, messages, leaseEnd{limit: c.batch})},
		}
		works = append(works, work{
			name: fmt.Sprintf("drain/%dx%d", c.consumers, c.batch),
			sides: l.sides(floors, func(via string) func(context.Context, *clock) (tally, error) {
				return func(ctx context.Context, clk *clock) (tally, error) {
					return l.drain(ctx, clk, via, c.consumers, c.batch, messages)
				}
			}),
		})
	}
	return works
}

func (l *lab) drainSize(batch int) int {
	if l.cfg.Messages > 0 {
		return l.cfg.Messages
	}
	return max(1, drainSizes[batch]/l.cfg.Scale)
}

func (l *lab) drain(ctx context.Context, c *clock, via string, consumers, batch, messages int) (tally, error) {
	queue, err := l.declare(ctx, l.main)
	if err != nil {
		return tally{}, err
	}
	if err := l.fill(ctx, l.main, queue, messages, l.cfg.Fill); err != nil {
		return tally{}, err
	}
	if err := l.main.settle(ctx); err != nil {
		return tally{}, err
	}
	from := brokerEnd{driver: l.main.driver(via), queue: queue, limit: batch}
	if err := c.start(ctx); err != nil {
		return tally{}, err
	}
	if err := drain(ctx, from, consumers, messages); err != nil {
		return tally{}, err
	}
	if err := c.stop(ctx); err != nil {
		return tally{}, err
	}
	return tally{messages: messages}, l.main.expect(ctx, queue, 0)
}

// fill publishes messages, in batches.
func (l *lab) fill(ctx context.Context, b *bed, queue string, messages, batch int) error {
	producers := 64 // of small batches, which then share commits
	if batch >= 100 {
		producers = 4
	}
	if _, err := l.produce(ctx, commandsDriver{b.node.Commands}, queue, producers, batch, newQuota(messages, 0)); err != nil {
		return fmt.Errorf("fill: %w", err)
	}
	return b.expect(ctx, queue, messages)
}

// cycleWorks publish, poll and ack a batch, again and again, by workers that share
// a queue: the cost of a message's whole way.
func (l *lab) cycleWorks() []work {
	var works []work
	for _, workers := range []int{1, 8} {
		works = append(works, work{
			name: fmt.Sprintf("cycle/%dx100", workers),
			sides: l.sides(nil, func(via string) func(context.Context, *clock) (tally, error) {
				return func(ctx context.Context, clk *clock) (tally, error) {
					return l.cycle(ctx, clk, via, workers, 100)
				}
			}),
		})
	}
	return works
}

func (l *lab) cycle(ctx context.Context, c *clock, via string, workers, batch int) (tally, error) {
	queue, err := l.declare(ctx, l.main)
	if err != nil {
		return tally{}, err
	}
	from := brokerEnd{driver: l.main.driver(via), queue: queue, limit: batch}
	if err := c.start(ctx); err != nil {
		return tally{}, err
	}
	run := l.quota()
	done, err := each(ctx, workers, func(ctx context.Context, worker int) (done int, err error) {
		cards := deck{keys: l.keys, payload: l.payload(0), next: worker}
		for n := run.take(batch); n > 0; n = run.take(batch) {
			if err := from.publish(ctx, queue, cards.deal(n)); err != nil {
				return done, fmt.Errorf("publish: %w", err)
			}
			// As many as were published: perhaps another worker's.
			if err := from.settleSome(ctx, worker, n); err != nil {
				return done, err
			}
			done += n
		}
		return done, nil
	})
	if err != nil {
		return tally{}, err
	}
	if err := c.stop(ctx); err != nil {
		return tally{}, err
	}
	if err := l.main.expect(ctx, queue, 0); err != nil {
		return tally{}, err
	}
	return tally{messages: done}, l.main.settle(ctx)
}
