package commands

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"leat/eventstore"
)

// PublishRequest is a batch of messages for one channel.
type PublishRequest struct {
	Channel  string
	Actor    string // who publishes, for the log; "" when not known
	Messages []Message
	// Partial stores what can be stored and reports the rest one by one. Without
	// it, one refused message refuses the request.
	Partial bool
}

// Published is what became of one message.
type Published struct {
	MessageID       eventstore.MessageID // of a duplicate: the first one's
	OriginMessageID eventstore.MessageID
	// Offset is the place in a stream, of a duplicate the first one's; nil in other
	// channels, and when the first one has left the log.
	Offset         *eventstore.Offset
	Duplicate      bool              // its dedupId was known, with the same content
	DeadLettered   bool              // it went to the dead letters at once: its key's circuit is not closed
	RoutedTo       []string          // the channels that got a copy, by links
	DeadLetteredIn []string          // those of RoutedTo where it went to the dead letters at once
	Err            *eventstore.Error // why it was not stored; only of a partial request
}

// PublishResult answers in the order of the request.
type PublishResult struct {
	Messages []Published
	Position eventstore.Position // everything that was stored is at or below it
}

// Publish stores messages durably and answers after their commit. Concurrent
// publishes share transactions. While a FIFO key, a stream or a dedupId is held by
// an open transaction of somebody else, it tries again for as long as the context lets
// it, at most Limits.PublishWait, and then answers busy.
//
// After database_unavailable it may be unknown whether the messages were stored:
// the error's text says so. A dedupId makes it safe to publish again. After the
// end of the context the messages may still be on their way: their payloads must
// not be changed.
func (b *Broker) Publish(ctx context.Context, req PublishRequest) (PublishResult, error) {
	leave, err := b.enter()
	if err != nil {
		return PublishResult{}, err
	}
	defer leave()
	p, err := b.preparePublish(ctx, b.cfg.Pool, req)
	if err != nil {
		return PublishResult{}, err
	}
	return b.publish(ctx, p)
}

// PublishTx is Publish in a transaction. It waits for whoever holds a FIFO key, a
// stream or a dedupId, and keeps them until the transaction ends: others can publish
// to a stream again only then. Brokers hear of it at the commit.
func (b *Broker) PublishTx(ctx context.Context, tx pgx.Tx, req PublishRequest) (PublishResult, error) {
	p, err := b.preparePublish(ctx, tx, req)
	if err != nil {
		return PublishResult{}, err
	}
	if len(p.pending) > 0 {
		job := &publishJob{publication: p}
		if err := run(ctx, tx, publishAll([]*publishJob{job}, publishWay{wait: true})); err != nil {
			return PublishResult{}, publishError(err)
		}
		p.settle(job.answer)
	}
	return p.result()
}

// preparePublish validates a request and resolves its channel.
func (b *Broker) preparePublish(ctx context.Context, db querier, req PublishRequest) (*publication, error) {
	if err := b.checkBatch(req); err != nil {
		return nil, err
	}
	ch, err := b.channels.find(ctx, db, req.Channel)
	if err != nil {
		return nil, err
	}
	var (
		f   faults
		now = time.Now()
		p   = newPublication(ch, req)
	)
	for i := range req.Messages {
		before := len(f.list)
		req.Messages[i].check(&f, i, b.cfg.Limits, ch, now)
		if req.Partial {
			if len(f.list) > before {
				p.refuse(i, f.list[before])
			}
			f.list = f.list[:before]
		} else if f.full() {
			break
		}
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	p.addPending()
	return p, nil
}

// checkBatch checks what is about the request as a whole.
func (b *Broker) checkBatch(req PublishRequest) error {
	limits := b.cfg.Limits
	switch n := len(req.Messages); {
	case n == 0:
		return eventstore.NewError(eventstore.BatchEmpty, "The request holds no messages.")
	case n > limits.RequestMessages:
		return eventstore.NewError(eventstore.BatchTooLarge,
			"The request holds %d messages, more than %d.", n, limits.RequestMessages)
	}
	bytes := 0
	for i := range req.Messages {
		m := &req.Messages[i]
		bytes += len(m.Payload) + len(m.Headers) + len(m.RoutingKey)
	}
	if bytes > limits.RequestBytes {
		return eventstore.NewError(eventstore.BatchTooLarge,
			"The request holds %d bytes, more than %d.", bytes, limits.RequestBytes)
	}
	var f faults
	f.label("actor", req.Actor)
	return f.err()
}

// Delays between two tries to get what somebody's transaction holds.
const (
	minHeldDelay = 5 * time.Millisecond
	maxHeldDelay = 100 * time.Millisecond
)

// publish sends what is pending until all of it is settled.
func (b *Broker) publish(ctx context.Context, p *publication) (PublishResult, error) {
	var (
		deadline  = time.Now().Add(b.cfg.Limits.PublishWait)
		delay     = minHeldDelay
		refreshed = false
		way       = b.publisher(p)
	)
	for len(p.pending) > 0 {
		job := &publishJob{publication: p}
		err := way.submit(ctx, job)
		held := errors.Is(err, &eventstore.Error{Code: eventstore.Busy})
		if err != nil && !held {
			return PublishResult{}, publishError(err)
		}
		if held {
			way = b.held // not again into a batch that others wait for
		} else {
			p.settle(job.answer)
			b.published(p, job.answer)
		}
		if p.gone {
			if refreshed {
				break
			}
			refreshed = true
			if err := b.refresh(ctx, p); err != nil {
				return PublishResult{}, err
			}
			way = b.publisher(p)
			continue
		}
		if len(p.pending) == 0 {
			break
		}
		if time.Now().After(deadline) {
			p.giveUp()
			break
		}
		if err := b.pause(ctx, delay); err != nil {
			return PublishResult{}, err
		}
		delay = min(2*delay, maxHeldDelay)
	}
	return p.result()
}

// publisher is the coalescer for a publication's channel.
func (b *Broker) publisher(p *publication) *coalescer[*publishJob] {
	switch {
	case p.channel.stream:
		return b.streams[int(p.channel.id)%len(b.streams)]
	case p.channel.fifo || p.channel.exchange: // links may lead to a FIFO queue
		return b.fifo
	default:
		return b.standard
	}
}

// refresh looks a channel up again, whose id is gone.
func (b *Broker) refresh(ctx context.Context, p *publication) error {
	b.channels.forget(p.channel.name)
	ch, err := b.channels.find(ctx, b.cfg.Pool, p.channel.name)
	if err != nil {
		return err
	}
	p.channel, p.gone = ch, false
	return nil
}

// pause waits; the error says why it was cut short.
func (b *Broker) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-b.stopping:
		return shuttingDown()
	}
}

// published wakes pollers if an answer stored something that is deliverable.
func (b *Broker) published(p *publication, answer publishAnswer) {
	if !p.deliverable || !answer.stored {
		return
	}
	ready := map[eventstore.ChannelID]struct{}{p.channel.id: {}}
	for _, to := range slices.Concat(answer.routedTo...) {
		ready[to.id] = struct{}{}
	}
	b.tell(slices.Collect(maps.Keys(ready)), true)
}
