package bench

import (
	"context"
	"fmt"
	"time"

	"leat/eventstore"
)

// audits bounds how many messages a sample of audit/message looks at.
const audits = 200

// lookAt asks all that there is to ask about messages of one kind: where it is, what
// happened to it, and to its family. It was asked before, by as many at once as the
// broker has connections, so that it is warm: each session plans these statements once.
func (l *lab) lookAt(ctx context.Context, c *clock, p *past, kind string) (tally, error) {
	if err := p.serve(ctx); err != nil {
		return tally{}, err
	}
	latency := newLatency()
	_, err := each(ctx, int(p.bed.node.Pool.Config().MaxConns), func(ctx context.Context, _ int) (int, error) {
		for _, id := range p.messages[kind] {
			if err := p.lookAtOne(ctx, id, kind); err != nil {
				return 0, err
			}
		}
		return 0, nil
	})
	if err != nil {
		return tally{}, fmt.Errorf("warm up: %w", err)
	}
	if err := c.start(ctx); err != nil {
		return tally{}, err
	}
	n := 0
	for end := time.Now().Add(2 * l.cfg.Duration); n < pastMessages || (n < audits && time.Now().Before(end)); n++ {
		began := time.Now()
		if err := p.lookAtOne(ctx, p.messages[kind][n%pastMessages], kind); err != nil {
			return tally{}, err
		}
		if err := latency.RecordValue(max(1, time.Since(began).Microseconds())); err != nil {
			return tally{}, err
		}
	}
	return tally{messages: n, latency: latency}, c.stop(ctx)
}

// lookAtOne asks where a message is, and what happened to it and its family.
func (p *past) lookAtOne(ctx context.Context, id eventstore.MessageID, kind string) error {
	message, err := p.bed.client.Message(ctx, id)
	if err != nil {
		return err
	}
	events, err := p.bed.client.History(ctx, id)
	if err != nil {
		return err
	}
	family, err := p.bed.client.Lineage(ctx, id, "", 0)
	if err != nil {
		return err
	}
	want := map[string]struct {
		state           string
		events, members int
	}{
		settledFirst: {"acked", 3, 1}, settledLast: {"acked", 3, 1}, died: {"dead", 3, 1}, waits: {"ready", 1, 1}, copied: {"acked", 3, 4},
	}[kind]
	if message.State != want.state || len(events) != want.events || len(family.Messages) != want.members {
		return fmt.Errorf("%w: message %d is %s after %d events, with a family of %d", errCount, id, message.State, len(events), len(family.Messages))
	}
	return nil
}
