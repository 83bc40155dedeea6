package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"leat/commands"
)

const (
	// steadyRate is the messages per second while projections and seals are looked at.
	steadyRate = 10_000
	// steadyBatch is how many messages a publish has then, and a poll.
	steadyBatch = 100
	// sealAge is how old an event may be without a seal then.
	sealAge = 500 * time.Millisecond
	// followWithin is how long projections may take at the end.
	followWithin = time.Minute
)

// without is the side without what goes along with the log.
const without = "without"

// besideWorks measure what follows the log while messages come at a fixed rate, and
// the same without it.
func (l *lab) besideWorks() []work {
	var projecting, sealing *bed
	return []work{
		{name: "audit/projections", sides: []side{
			{name: without, take: func(ctx context.Context, c *clock) (tally, error) {
				return l.steady(ctx, c, l.main, nil)
			}},
			{name: leat, take: func(ctx context.Context, c *clock) (tally, error) {
				b, err := l.bedWith(ctx, &projecting, Parts{Projections: true})
				if err != nil {
					return tally{}, err
				}
				return l.steady(ctx, c, b, b.followed)
			}},
		}},
		{name: "audit/sealing", sides: []side{
			{name: without, take: func(ctx context.Context, c *clock) (tally, error) {
				return l.steadyPublish(ctx, c, l.main)
			}},
			{name: leat, take: func(ctx context.Context, c *clock) (tally, error) {
				b, err := l.bedWith(ctx, &sealing, Parts{Seal: sealAge})
				if err != nil {
					return tally{}, err
				}
				return l.steadyPublish(ctx, c, b)
			}},
		}},
	}
}

// bedWith makes a bed at its first use.
func (l *lab) bedWith(ctx context.Context, made **bed, with Parts) (*bed, error) {
	if *made != nil {
		return *made, nil
	}
	b, err := l.newBed(ctx, with)
	if err != nil {
		return nil, err
	}
	*made = b
	return b, nil
}

// steady publishes, delivers and acks at a fixed rate, and waits for who follows.
func (l *lab) steady(ctx context.Context, c *clock, b *bed, follow func(context.Context) error) (tally, error) {
	queue, err := declare(ctx, b, commands.Standard)
	if err != nil {
		return tally{}, err
	}
	if err := b.settle(ctx); err != nil {
		return tally{}, err
	}
	if err := l.warmConnections(ctx, b, queue); err != nil {
		return tally{}, err
	}
	if follow != nil {
		if err := follow(ctx); err != nil {
			return tally{}, err
		}
	}
	d := b.driver(ViaCommands)
	s := l.newStream(brokerEnd{driver: d, queue: queue, limit: steadyBatch}, true)
	s.rate, s.batch, s.lasts, s.follow = steadyRate, steadyBatch, 7*l.cfg.Duration, follow
	s.send = func(ctx context.Context, _ int, payload []byte) error {
		cards := deck{keys: l.keys, payload: payload}
		return d.publish(ctx, queue, cards.deal(steadyBatch))
	}
	done, err := s.run(ctx, c)
	if err != nil {
		return tally{}, err
	}
	return done, b.expect(ctx, queue, 0)
}

const behindSQL = `-- bench.behind
select count(*) < 3
       or min(p.position) < (select max(e.position) from leat.events e)
from leat.projections p
where p.state = 'live'`

// followed waits until all projections have seen the whole log.
func (b *bed) followed(ctx context.Context) error {
	for end := time.Now().Add(followWithin); ; {
		var behind bool
		if err := b.node.Pool.QueryRow(ctx, behindSQL).Scan(&behind); err != nil {
			return fmt.Errorf("look at projections: %w", err)
		}
		if !behind {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("projections are behind after %s", followWithin)
		}
		if err := waitUntil(ctx, time.Now().Add(5*time.Millisecond)); err != nil {
			return err
		}
	}
}

// steadyPublish publishes at a fixed rate, and takes the time from when a publish was
// due.
func (l *lab) steadyPublish(ctx context.Context, c *clock, b *bed) (tally, error) {
	queue, err := declare(ctx, b, commands.Standard)
	if err != nil {
		return tally{}, err
	}
	if err := l.warmConnections(ctx, b, queue); err != nil {
		return tally{}, err
	}
	const every = time.Second * steadyBatch / steadyRate
	sendings := (l.cfg.Messages + steadyBatch - 1) / steadyBatch
	if sendings == 0 {
		sendings = int(4 * l.cfg.Duration / every)
	}
	d, latency := b.driver(ViaCommands), newLatency()
	cards := deck{keys: l.keys, payload: l.payload(0)}
	if err := c.start(ctx); err != nil {
		return tally{}, err
	}
	start := time.Now()
	for i := range sendings {
		due := start.Add(time.Duration(i) * every)
		if err := waitUntil(ctx, due); err != nil {
			return tally{}, err
		}
		if err := d.publish(ctx, queue, cards.deal(steadyBatch)); err != nil {
			return tally{}, fmt.Errorf("publish: %w", err)
		}
		if err := latency.RecordValue(max(1, time.Since(due).Microseconds())); err != nil {
			return tally{}, err
		}
	}
	if err := c.stop(ctx); err != nil {
		return tally{}, err
	}
	done := tally{messages: sendings * steadyBatch, latency: latency}
	if err := b.expect(ctx, queue, done.messages); err != nil {
		return tally{}, err
	}
	if _, err := b.node.Commands.Purge(ctx, queue, actor); err != nil {
		return tally{}, fmt.Errorf("purge: %w", err)
	}
	return done, b.settle(ctx)
}

func newLatency() *hdrhistogram.Histogram { return hdrhistogram.New(1, time.Minute.Microseconds(), 3) }
