package bench

import (
	"context"
	"fmt"
	"log/slog"

	"leat/commands"
	"leat/projections"
	"leat/queries"
)

// rebuildPast makes the queue views anew from the whole log.
func (l *lab) rebuildPast(ctx context.Context, c *clock, p *past) (tally, error) {
	if err := c.start(ctx); err != nil {
		return tally{}, err
	}
	held, err := projections.New(p.bed.node.Pool, slog.New(slog.DiscardHandler)).Rebuild(ctx)
	if err != nil {
		return tally{}, fmt.Errorf("rebuild: %w", err)
	}
	if err := c.stop(ctx); err != nil {
		return tally{}, err
	}
	// The dead, those that wait, and the copies in two queues.
	if want := int64(4 * pastMessages); held != want {
		return tally{}, fmt.Errorf("%w: the views hold %d instead of %d", errCount, held, want)
	}
	return tally{messages: p.events}, nil
}

// asOf looks what the queue held in the middle of the log.
func (l *lab) asOf(ctx context.Context, c *clock, p *past) (tally, error) {
	q := queries.New(p.bed.node.Pool)
	moment, err := q.MomentAt(ctx, p.last/2)
	if err != nil {
		return tally{}, err
	}
	var events int
	if err := p.bed.node.Pool.QueryRow(ctx, countEventsSQL, moment.Position).Scan(&events); err != nil {
		return tally{}, fmt.Errorf("count events: %w", err)
	}
	if err := c.start(ctx); err != nil {
		return tally{}, err
	}
	was, err := q.ChannelAsOf(ctx, p.queue, moment)
	if err != nil {
		return tally{}, err
	}
	if err := c.stop(ctx); err != nil {
		return tally{}, err
	}
	if was.Dead != pastMessages || was.Ready < pastMessages {
		return tally{}, fmt.Errorf("%w: %d dead instead of %d", errCount, was.Dead, pastMessages)
	}
	return tally{messages: events}, nil
}

// republishWorks publish a range of the past again, against a first publish.
func (l *lab) republishWorks() []work {
	again := func(kind string) side {
		var source string
		return side{name: leat + " " + kind, take: func(ctx context.Context, c *clock) (_ tally, err error) {
			if source == "" {
				if source, err = l.fillSource(ctx, kind); err != nil {
					return tally{}, err
				}
			}
			return l.republish(ctx, c, source, kind)
		}}
	}
	first := side{name: "publish", label: "publish 1x1000", take: func(ctx context.Context, c *clock) (tally, error) {
		return l.publish(ctx, c, ViaCommands, 1, 1000)
	}}
	return []work{{name: "audit/republish", sides: []side{first, again(commands.Queue), again(commands.Stream)}}}
}

// republished is how many messages are published again.
const republished = 50_000

// fillSource publishes them for the first time.
func (l *lab) fillSource(ctx context.Context, kind string) (string, error) {
	source, err := l.declareOf(ctx, kind)
	if err != nil {
		return "", err
	}
	quota := newQuota(max(100, republished/l.cfg.Scale), 0)
	if _, err := l.produce(ctx, l.main.driver(ViaCommands), source, 1, 1000, quota); err != nil {
		return "", fmt.Errorf("fill: %w", err)
	}
	return source, nil
}

// declareOf makes a queue or a stream.
func (l *lab) declareOf(ctx context.Context, kind string) (string, error) {
	if kind == commands.Stream {
		return l.declareStream(ctx)
	}
	return l.declare(ctx, l.main)
}

func (l *lab) republish(ctx context.Context, c *clock, source, kind string) (tally, error) {
	target, err := l.declareOf(ctx, kind)
	if err != nil {
		return tally{}, err
	}
	broker := l.main.node.Commands
	if err := c.start(ctx); err != nil {
		return tally{}, err
	}
	done, err := broker.Republish(ctx, commands.RepublishRequest{Source: source, Target: target, Actor: actor})
	if err != nil {
		return tally{}, fmt.Errorf("republish: %w", err)
	}
	if err := c.stop(ctx); err != nil {
		return tally{}, err
	}
	messages := int(done.Messages)
	if want := max(100, republished/l.cfg.Scale); messages != want {
		return tally{}, fmt.Errorf("%w: %d published again instead of %d", errCount, messages, want)
	}
	if err := broker.DeleteChannel(ctx, actor, target, true); err != nil {
		return tally{}, fmt.Errorf("delete %s: %w", kind, err)
	}
	return tally{messages: messages}, l.main.settle(ctx)
}
