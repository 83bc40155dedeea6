package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"leat/api"
)

// PublishAll stores messages in their order, all or none, by a request of their
// own, and returns when they are. It tries again as Publish does: after a lost
// answer only if each message has a dedupId.
func (p *Publisher) PublishAll(ctx context.Context, messages []api.Message) ([]api.Published, error) {
	weight, deduplicated := int64(0), true
	for i := range messages {
		if err := sendable(&messages[i]); err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
		weight += int64(sizeOf(&messages[i]) + publicationOverhead)
		deduplicated = deduplicated && messages[i].DedupID != ""
	}
	weight = min(weight, int64(p.config.PendingBytes))
	if err := p.room.Acquire(ctx, weight); err != nil {
		return nil, fmt.Errorf("publish: nothing was sent: %w", err)
	}
	defer p.room.Release(weight)
	if !p.depart() {
		return nil, ErrClosed
	}
	defer p.flights.Done()
	ctx, cancel := p.joined(ctx)
	defer cancel()
	return p.repeat(ctx, messages, deduplicated)
}

// depart counts a flight, unless the publisher is closed.
func (p *Publisher) depart() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.flights.Add(1)
	}
	return !p.closed
}

func (p *Publisher) repeat(ctx context.Context, messages []api.Message, deduplicated bool) ([]api.Published, error) {
	until := time.Now().Add(p.config.RetryFor)
	unsure := false
	var wait backoff
	for {
		result, err := p.client.Publish(ctx, p.channel, api.PublishRequest{Messages: messages}, false)
		if err == nil {
			return result.Messages, nil
		}
		f := fateOf(err)
		unsure = unsure || f.unsure
		after := wait.next()
		if problem, ok := errors.AsType[*api.Problem](err); ok {
			after = max(after, problem.RetryAfter)
		}
		if again := f.passes && (!f.unsure || deduplicated) && time.Now().Before(until); again && pause(ctx, after) {
			continue
		}
		if unsure {
			err = &UnansweredError{err}
		}
		return nil, err
	}
}
