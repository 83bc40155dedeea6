package bench

import (
	"context"
	"crypto/rand"
	"fmt"

	"leat/commands"
)

// fanTargets is how many queues an exchange of the fan-out cases has.
const fanTargets = 10

// The floor's side of the fan-out cases.
const intoOne = "one"

// fanoutWorks publish into one queue, and through an exchange into many.
func (l *lab) fanoutWorks() []work {
	var works []work
	for _, c := range []struct{ producers, batch int }{{64, 1}, {8, 100}} {
		one := side{name: intoOne, label: "into 1 queue", take: func(ctx context.Context, clk *clock) (tally, error) {
			return l.publish(ctx, clk, ViaCommands, c.producers, c.batch)
		}}
		works = append(works, work{
			name: fmt.Sprintf("fanout/%dx%d", c.producers, c.batch),
			sides: l.sides([]side{one}, func(via string) func(context.Context, *clock) (tally, error) {
				return func(ctx context.Context, clk *clock) (tally, error) {
					return l.fanOut(ctx, clk, via, c.producers, c.batch)
				}
			}),
		})
	}
	return works
}

// fanOut counts what was published, not the copies.
func (l *lab) fanOut(ctx context.Context, c *clock, via string, producers, batch int) (tally, error) {
	broker := l.main.node.Commands
	exchange := "bench-" + rand.Text()[:8]
	if _, _, err := broker.DeclareChannel(ctx, actor, commands.ChannelSpec{
		Name: exchange, Kind: commands.Exchange, Type: commands.Fanout,
	}); err != nil {
		return tally{}, fmt.Errorf("declare exchange: %w", err)
	}
	var queues []string
	for range fanTargets {
		queue, err := l.declare(ctx, l.main)
		if err != nil {
			return tally{}, err
		}
		if _, _, err := broker.DeclareLink(ctx, actor, commands.LinkSpec{Source: exchange, Target: queue}); err != nil {
			return tally{}, fmt.Errorf("declare link: %w", err)
		}
		queues = append(queues, queue)
	}
	if err := c.start(ctx); err != nil {
		return tally{}, err
	}
	sent, err := l.produce(ctx, l.main.driver(via), exchange, producers, batch, l.quota())
	if err != nil {
		return tally{}, err
	}
	if err := c.stop(ctx); err != nil {
		return tally{}, err
	}
	for _, queue := range queues {
		if err := l.main.expect(ctx, queue, sent); err != nil {
			return tally{}, err
		}
		if err := broker.DeleteChannel(ctx, actor, queue, true); err != nil {
			return tally{}, fmt.Errorf("delete queue: %w", err)
		}
	}
	return tally{messages: sent}, l.main.settle(ctx)
}
