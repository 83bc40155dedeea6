package commands

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"leat/eventstore"
)

// ConsumeRequest asks for the messages of a queue as they come.
type ConsumeRequest struct {
	Queue       string
	Consumer    string        // who asks, for the log and for peeking; "" when not known
	Prefetch    int           // how many deliveries may be outstanding, 1 to Limits.PollMax
	Lease       time.Duration // how long each is the consumer's; 0: the queue's lease
	RoutingKeys []string      // only messages with one of these keys; none: any
}

// Consumer gets messages pushed: it waits in the line of its queue whenever it
// has room, so that all consumers of a queue in a broker share claims. Next has
// one caller at a time; the other methods may be called beside it. It is of one
// queue for good: when that is deleted, the consumer has ended.
type Consumer struct {
	broker  *Broker
	channel channel
	request ConsumeRequest
	lease   time.Duration
	leave   func()
	changed chan struct{} // holds one sign that there is more room

	// Of the caller of Next and Close.
	dispatcher *dispatcher
	waiter     *waiter // nil: not in line

	mu     sync.Mutex
	hands  outstanding
	closed bool
}

const consumeSQL = `-- commands.consume
select c.id, c.mode = 'fifo', c.kind, extract(epoch from c.lease)::float8
from leat.channels c
where c.name = $1 and c.deleted_at is null`

// Consume begins to consume a queue. The consumer counts as a command under way
// until it is closed, which Run waits for.
func (b *Broker) Consume(ctx context.Context, req ConsumeRequest) (*Consumer, error) {
	leave, err := b.enter()
	if err != nil {
		return nil, err
	}
	c := &Consumer{broker: b, request: req, leave: leave, changed: make(chan struct{}, 1), hands: newOutstanding()}
	if err := c.begin(ctx); err != nil {
		leave()
		return nil, err
	}
	return c, nil
}

func (c *Consumer) begin(ctx context.Context) error {
	poll := c.poll(c.request.Prefetch)
	if err := c.broker.checkConsume(&poll); err != nil {
		return err
	}
	// Not from the cache, which may know one that is gone.
	ch, lease, err := c.broker.findConsumed(ctx, c.request.Queue)
	if err != nil {
		return err
	}
	c.channel, c.lease = ch, lease
	if c.request.Lease != 0 {
		c.lease = c.request.Lease
	}
	return nil
}

// checkConsume is checkPoll in the words of a consumer.
func (b *Broker) checkConsume(poll *PollRequest) error {
	if most := b.cfg.Limits.PollMax; poll.Max < 1 || poll.Max > most {
		var f faults
		f.invalid(-1, "prefetch", "must be from 1 to %d", most)
		return f.err()
	}
	return b.checkPoll(poll)
}

func (b *Broker) findConsumed(ctx context.Context, name string) (ch channel, lease time.Duration, err error) {
	if !validName(name) {
		return channel{}, 0, channelNotFound(name)
	}
	var (
		kind    string
		seconds float64
	)
	ch.name = name
	err = queryRow(ctx, b.cfg.Pool, consumeSQL, []any{name}, &ch.id, &ch.fifo, &kind, &seconds)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return channel{}, 0, channelNotFound(name)
	case err != nil:
		return channel{}, 0, err
	case kind != Queue:
		return channel{}, 0, eventstore.NoQueue(name, kind)
	}
	return ch, time.Duration(seconds * float64(time.Second)), nil
}

// Lease is how long deliveries are the consumer's, as far as it was known when
// it began: without a lease of its own, an altered queue alters it.
func (c *Consumer) Lease() time.Duration { return c.lease }

// FIFO says whether the queue keeps the order of each routing key.
func (c *Consumer) FIFO() bool { return c.channel.fifo }

func (c *Consumer) poll(room int) PollRequest {
	r := c.request
	return PollRequest{Queue: r.Queue, Consumer: r.Consumer, Max: room, Lease: r.Lease, RoutingKeys: r.RoutingKeys}
}

// Next waits for messages that there is room for. It answers none, without an
// error, after idle. While the views are rebuilt or the database is away it says
// so once, by views_rebuilding, database_unavailable or busy, and is to be called
// again. After any other error, or when ctx has ended, the consumer is to be
// closed.
func (c *Consumer) Next(ctx context.Context, idle time.Duration) ([]Delivery, error) {
	timer := time.NewTimer(idle)
	defer timer.Stop()
	for {
		room, next := c.room()
		c.line(room)
		var done, trouble <-chan struct{}
		if c.waiter != nil {
			done, trouble = c.waiter.done, c.waiter.trouble
		}
		select {
		case <-done:
			return c.take()
		case <-trouble:
			return nil, c.dispatcher.trouble(c.waiter)
		case <-c.changed:
		case <-next:
		case <-timer.C:
			return nil, nil
		case <-c.broker.stopping:
			return nil, shuttingDown()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// room is how many more deliveries the consumer may have, and a sign when the
// next lease ends.
func (c *Consumer) room() (room int, next <-chan time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	end := c.hands.expire(now)
	if !end.IsZero() {
		next = time.After(end.Sub(now))
	}
	return c.request.Prefetch - c.hands.len(), next
}

// line keeps the consumer in the line of its queue for as much as it has room for.
func (c *Consumer) line(room int) {
	switch {
	case c.waiter != nil:
		if c.dispatcher.resize(c.waiter, room) {
			c.waiter = nil
		}
	case room > 0:
		c.waiter = newConsumerWaiter(c.poll(room))
		c.dispatcher = c.broker.join(c.channel, c.waiter)
	}
}

// take is what the waiter got.
func (c *Consumer) take() ([]Delivery, error) {
	w := c.waiter
	c.waiter = nil
	if w.err != nil {
		return nil, w.err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hands.add(receiptsOf(w.deliveries), w.ends)
	return w.deliveries, nil
}

// drop says that receipts are no longer in hand, whatever became of them.
func (c *Consumer) drop(receipts []eventstore.Receipt) {
	c.mu.Lock()
	n := c.hands.remove(receipts)
	c.mu.Unlock()
	if n > 0 {
		c.more()
	}
}

// more lets Next look how much room there is now.
func (c *Consumer) more() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// settlement checks receipts. They may be of any consumer of the queue.
func (c *Consumer) settlement(receipts []string) (settlement, error) {
	s, err := c.broker.checkSettle(SettleRequest{Queue: c.request.Queue, Actor: c.request.Consumer, Receipts: receipts})
	s.channel = c.channel
	return s, err
}

// Ack is Broker.Ack. What it answers about is not outstanding any more, also
// where a receipt failed.
func (c *Consumer) Ack(ctx context.Context, receipts []string) (SettleResult, error) {
	s, err := c.settlement(receipts)
	if err != nil {
		return SettleResult{}, err
	}
	result, err := c.broker.ackSettlement(ctx, s)
	if err == nil {
		c.drop(s.receipts)
	}
	return result, err
}

// Nack is Broker.Nack, of the consumer's queue; see Ack.
func (c *Consumer) Nack(ctx context.Context, req NackRequest) (SettleResult, error) {
	s, err := c.settlement(req.Receipts)
	if err != nil {
		return SettleResult{}, err
	}
	if err := req.complete(); err != nil {
		return SettleResult{}, err
	}
	result, err := c.broker.nackSettlement(ctx, c.broker.cfg.Pool, s, req, c.broker.ready)
	if err == nil {
		c.drop(s.receipts)
	}
	return result, err
}

// Release is Broker.Release; see Ack.
func (c *Consumer) Release(ctx context.Context, receipts []string) (SettleResult, error) {
	s, err := c.settlement(receipts)
	if err != nil {
		return SettleResult{}, err
	}
	result, err := c.broker.releaseSettlement(ctx, c.broker.cfg.Pool, s, c.broker.ready)
	if err == nil {
		c.drop(s.receipts)
	}
	return result, err
}

// Extend is Broker.Extend; without a lease, it is that of the consumer. Receipts
// that failed are not outstanding any more.
func (c *Consumer) Extend(ctx context.Context, receipts []string, lease time.Duration) (SettleResult, time.Time, error) {
	s, err := c.settlement(receipts)
	if err != nil {
		return SettleResult{}, time.Time{}, err
	}
	if lease == 0 {
		lease = c.request.Lease
	}
	span, err := c.broker.checkLease(lease)
	if err != nil {
		return SettleResult{}, time.Time{}, err
	}
	mine := c.inHand(s.receipts)
	result, until, left, err := c.broker.extendSettlement(ctx, c.broker.cfg.Pool, s, span)
	if err == nil {
		c.extended(mine, result.Failed, time.Now().Add(left))
	}
	return result, until, err
}

// inHand are those of the receipts that are outstanding.
func (c *Consumer) inHand(receipts []eventstore.Receipt) []eventstore.Receipt {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(receipts), func(r eventstore.Receipt) bool { return c.hands.of[r] == nil })
}

// extended moves the ends of leases. Meanwhile they may have ended here.
func (c *Consumer) extended(receipts []eventstore.Receipt, failed []FailedReceipt, ends time.Time) {
	lost := make(map[string]bool, len(failed))
	for _, f := range failed {
		lost[f.Receipt] = true
	}
	c.mu.Lock()
	c.hands.remove(receipts)
	c.hands.add(slices.DeleteFunc(receipts, func(r eventstore.Receipt) bool { return lost[r.String()] }), ends)
	c.mu.Unlock()
	c.more() // also to wait for another end
}

// Close gives back what is outstanding, at once and without counting an attempt.
// Settlements are not to be begun any more. It may be called again.
func (c *Consumer) Close() {
	c.mu.Lock()
	receipts := c.hands.all()
	closed := c.closed
	c.closed = true
	c.mu.Unlock()
	if closed {
		return
	}
	defer c.leave()
	if c.waiter != nil {
		receipts = append(receipts, receiptsOf(c.dispatcher.withdraw(c.waiter))...)
	}
	c.broker.giveBack(c.channel, c.request.Consumer, receipts)
}
