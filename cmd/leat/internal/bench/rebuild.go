package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"leat/projections"
)

// rebuildMessages were published to the log that views are rebuilt from. Half
// of them were delivered and settled, rebuildBatch at a time.
const (
	rebuildMessages = 300_000
	rebuildBatch    = 100
)

// rebuildWorks make the queue views anew from the log alone.
func (l *lab) rebuildWorks() []work {
	var b *bed
	messages := max(1000, rebuildMessages/l.cfg.Scale)
	return []work{{name: "rebuild/half-settled", sides: []side{{
		name: leat,
		take: func(ctx context.Context, c *clock) (done tally, err error) {
			if b == nil {
				if b, err = l.fillLog(ctx, messages); err != nil {
					return tally{}, err
				}
			}
			return l.rebuild(ctx, c, b, messages)
		},
	}}}}
}

func (l *lab) rebuild(ctx context.Context, c *clock, b *bed, messages int) (tally, error) {
	if err := c.start(ctx); err != nil {
		return tally{}, err
	}
	held, err := projections.New(b.node.Pool, slog.New(slog.DiscardHandler)).Rebuild(ctx)
	if err != nil {
		return tally{}, err
	}
	if err := c.stop(ctx); err != nil {
		return tally{}, err
	}
	if held != int64(messages-messages/2) {
		return tally{}, fmt.Errorf("%w: the views hold %d instead of %d", errCount, held, messages-messages/2)
	}
	return tally{messages: messages}, nil
}

// fillLog makes a database without a broker at work, which would checkpoint.
func (l *lab) fillLog(ctx context.Context, messages int) (*bed, error) {
	b, err := l.newDatabase(ctx, Parts{})
	if err != nil {
		return nil, err
	}
	queue, err := declare(ctx, b, l.cfg.Mode)
	if err != nil {
		return nil, err
	}
	if err := l.fill(ctx, b, queue, messages, max(l.cfg.Fill, 1000)); err != nil {
		return nil, err
	}
	from := brokerEnd{driver: commandsDriver{b.node.Commands}, queue: queue, limit: rebuildBatch}
	half := newQuota(messages/2, 0)
	_, err = each(ctx, 8, func(ctx context.Context, worker int) (done int, err error) {
		for n := half.take(rebuildBatch); n > 0; n = half.take(rebuildBatch) {
			if err := from.settleSome(ctx, worker, n); err != nil {
				return done, err
			}
			done += n
		}
		return done, nil
	})
	if err != nil {
		return nil, err
	}
	return b, errors.Join(b.expect(ctx, queue, messages-messages/2), b.settle(ctx))
}
