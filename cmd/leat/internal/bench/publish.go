package bench

import (
	"context"
	"fmt"
)

// publishWorks publish: singles against one INSERT and COMMIT each, batches
// against COPY.
func (l *lab) publishWorks() []work {
	var works []work
	for _, c := range []struct{ producers, batch int }{
		{1, 1}, {8, 1}, {64, 1}, {1, 100}, {8, 100}, {64, 100}, {1, 1000}, {8, 1000},
	} {
		floor := side{name: "copy", take: l.copyFloor(c.producers, c.batch)}
		if c.batch == 1 {
			floor = side{name: "insert", take: l.insertFloor(c.producers)}
		}
		works = append(works, work{
			name: fmt.Sprintf("publish/%dx%d", c.producers, c.batch),
			sides: l.sides([]side{floor}, func(via string) func(context.Context, *clock) (tally, error) {
				return func(ctx context.Context, clk *clock) (tally, error) {
					return l.publish(ctx, clk, via, c.producers, c.batch)
				}
			}),
		})
	}
	return works
}

func (l *lab) publish(ctx context.Context, c *clock, via string, producers, batch int) (tally, error) {
	queue, err := l.declare(ctx, l.main)
	if err != nil {
		return tally{}, err
	}
	if err := c.start(ctx); err != nil {
		return tally{}, err
	}
	sent, err := l.produce(ctx, l.main.driver(via), queue, producers, batch, l.quota())
	if err != nil {
		return tally{}, err
	}
	if err := c.stop(ctx); err != nil {
		return tally{}, err
	}
	if err := l.main.expect(ctx, queue, sent); err != nil {
		return tally{}, err
	}
	if _, err := l.main.node.Commands.Purge(ctx, queue, actor); err != nil {
		return tally{}, fmt.Errorf("purge: %w", err)
	}
	return tally{messages: sent}, l.main.settle(ctx)
}
