package commands

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"leat/eventstore"
)

// PollRequest asks for messages of a queue.
type PollRequest struct {
	Queue       string
	Consumer    string        // who asks, for the log and for peeking; "" when not known
	Max         int           // at most so many messages, 1 to Limits.PollMax
	Wait        time.Duration // how long to wait for the first one, 0 to Limits.PollWait
	Lease       time.Duration // how long they are the consumer's; 0: the queue's lease
	RoutingKeys []string      // only messages with one of these keys; none: any
}

// Delivery is one message handed out under a lease. It is the consumer's until
// LeaseUntil; the receipt settles it.
type Delivery struct {
	Receipt         eventstore.Receipt
	MessageID       eventstore.MessageID
	OriginMessageID eventstore.MessageID
	Channel         string
	RoutingKey      string
	Payload         []byte
	ContentType     string
	Headers         json.RawMessage
	Priority        int
	Attempt         int // 1 at the first delivery
	PublishedAt     time.Time
	LeaseUntil      time.Time
}

// Poll hands out up to Max messages, in the order of the queue. It answers as
// soon as there is one, and empty, without an error, when the wait is over. At
// least one attempt is made whatever the wait.
//
// While the views are rebuilt or the database is away it goes on trying for the
// time of the wait, and then answers views_rebuilding or database_unavailable.
// When the context ends, messages that were claimed for the caller are given
// back.
func (b *Broker) Poll(ctx context.Context, req PollRequest) ([]Delivery, error) {
	leave, err := b.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := b.checkPoll(&req); err != nil {
		return nil, err
	}
	deadline := time.Now().Add(req.Wait)
	deliveries, err := b.pollOnce(ctx, req, deadline)
	if isGone(err) { // deleted, and perhaps declared again
		b.channels.forget(req.Queue)
		deliveries, err = b.pollOnce(ctx, req, deadline)
	}
	return deliveries, err
}

func (b *Broker) pollOnce(ctx context.Context, req PollRequest, deadline time.Time) ([]Delivery, error) {
	for {
		ch, err := b.channels.findQueue(ctx, b.cfg.Pool, req.Queue)
		if err == nil {
			return b.await(ctx, ch, newWaiter(req, deadline))
		}
		if !passes(err) || !time.Now().Add(retryEvery).Before(deadline) {
			return nil, err
		}
		if err := b.pause(ctx, retryEvery); err != nil {
			return nil, err
		}
	}
}

// passes reports whether a poll may wait for the end of an error.
func passes(err error) bool {
	e, ok := errors.AsType[*eventstore.Error](err)
	return ok && (e.Code == eventstore.ViewsRebuilding || e.Code == eventstore.DatabaseUnavailable || e.Code == eventstore.Busy)
}

func (b *Broker) checkPoll(req *PollRequest) error {
	var (
		f      faults
		limits = b.cfg.Limits
	)
	f.label("consumer", req.Consumer)
	if req.Max < 1 || req.Max > limits.PollMax {
		f.invalid(-1, "max", "must be from 1 to %d", limits.PollMax)
	}
	f.between(-1, "wait", req.Wait, 0, limits.PollWait)
	if req.Lease != 0 {
		f.between(-1, "lease", req.Lease, limits.LeaseMin, limits.LeaseMax)
	}
	if len(req.RoutingKeys) > limits.RoutingKeys {
		f.invalid(-1, "routingKeys", "has more than %d keys", limits.RoutingKeys)
	}
	for i, key := range req.RoutingKeys {
		f.key(i, "routingKeys", key)
	}
	return f.err()
}

// PollTx hands out what is ready now, in a transaction: the messages are the
// caller's when it commits. It does not wait; Wait must be 0.
func (b *Broker) PollTx(ctx context.Context, tx pgx.Tx, req PollRequest) ([]Delivery, error) {
	if err := b.checkPoll(&req); err != nil {
		return nil, err
	}
	if req.Wait != 0 {
		var f faults
		f.invalid(-1, "wait", "must be 0 in a transaction")
		return nil, f.err()
	}
	ch, err := b.channels.findQueue(ctx, tx, req.Queue)
	if err != nil {
		return nil, err
	}
	w := newWaiter(req, time.Time{})
	w.want = req.Max
	job := &claimJob{channel: ch, waiters: []*waiter{w}, grain: 1}
	err = run(ctx, tx, job.claim(true))
	return w.deliveries, job.conclude(ctx, tx, err)
}
