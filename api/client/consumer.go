package client

import (
	"context"
	"errors"
	"sync"
	"time"

	"leat/api"
	"leat/eventstore"
)

// consumer is what outlives the connections: the deliveries that are here, and
// who handles them.
type consumer struct {
	queue  string
	config ConsumeConfig
	handle func(context.Context, api.Delivery) error
	lanes  *lanes[*held]
	// changed has a token when there is something to settle.
	changed chan struct{}
	idle    chan struct{} // closed when no handler will run any more

	mu       sync.Mutex
	sessions int
	fifo     bool             // the routing keys of the queue have an order
	held     map[string]*held // by receipt
	outbox   []settlement     // to be sent
}

// held is a delivery that is not settled.
type held struct {
	delivery api.Delivery
	session  int
	lost     bool // to others
	renewed  time.Time
	cancel   context.CancelCauseFunc // of its handler; nil while it waits
}

// settlement is what becomes of deliveries.
type settlement struct {
	held []*held
	nack *api.NackFrame // nil: an ack, or a release
	back bool           // a release
}

func (s settlement) ack() bool { return s.nack == nil && !s.back }

func (s settlement) receipts() []string {
	receipts := make([]string, len(s.held))
	for i, h := range s.held {
		receipts[i] = h.delivery.Receipt
	}
	return receipts
}

func newConsumer(queue string, config ConsumeConfig, handle func(context.Context, api.Delivery) error) *consumer {
	return &consumer{
		queue: queue, config: config, handle: handle, lanes: newLanes[*held](),
		changed: make(chan struct{}, 1), idle: make(chan struct{}), held: map[string]*held{},
	}
}

// work starts the handlers; stop is called when one of them wants no more.
func (k *consumer) work(ctx context.Context, stop context.CancelCauseFunc) *sync.WaitGroup {
	var workers sync.WaitGroup
	for range k.config.Concurrency {
		workers.Go(func() {
			for {
				h, ok := k.lanes.next()
				if !ok {
					return
				}
				if errors.Is(k.call(ctx, h), ErrStop) {
					k.lanes.close()
					stop(ErrStop)
				}
			}
		})
	}
	go func() {
		workers.Wait()
		close(k.idle)
	}()
	return &workers
}

// call runs the handler on one delivery, and settles it.
func (k *consumer) call(ctx context.Context, h *held) error {
	mine, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	k.mu.Lock()
	lost := h.lost
	h.cancel = cancel
	if lost {
		k.forget(h)
	}
	k.mu.Unlock()
	if lost {
		k.lanes.finish(h.delivery.RoutingKey)
		return nil
	}
	err := safely(func() error { return k.handle(mine, h.delivery) })
	if failure, ok := errors.AsType[*panicError](err); ok {
		k.config.Logger.Error("handler panicked", "queue", k.queue, "message", h.delivery.MessageID,
			"panic", failure.value, "stack", string(failure.stack))
	}
	k.settle(h, err, ctx.Err() != nil)
	k.lanes.finish(h.delivery.RoutingKey)
	return err
}

// settle puts the outcome of a handler into the outbox. A handler that failed
// since it was told to end says nothing about the message.
func (k *consumer) settle(h *held, err error, ending bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	h.cancel = nil
	s := settlement{held: []*held{h}}
	switch {
	case err == nil || errors.Is(err, ErrStop): // also of a message that seems lost: the server knows
		k.outbox = append(k.outbox, s)
		signal(k.changed)
		return
	case h.lost || h.session != k.sessions:
		k.forget(h) // it was given back already
		return
	case ending || errors.Is(err, ErrRelease):
		s.back = true
	default:
		frame := nackOf(err)
		s.nack = &frame
	}
	k.outbox = append(k.outbox, s)
	if k.fifo {
		k.giveBack(h.delivery.RoutingKey)
	}
	signal(k.changed)
}

// giveBack releases what waits of a routing key, which must not overtake one
// that comes again. The mu is held.
func (k *consumer) giveBack(key string) {
	waiting := k.lanes.drop(func(h *held) bool { return h.delivery.RoutingKey == key })
	if len(waiting) > 0 {
		k.outbox = append(k.outbox, settlement{held: waiting, back: true})
	}
}

// forget is for what is settled, or somebody else's. The mu is held.
func (k *consumer) forget(h *held) {
	if k.held[h.delivery.Receipt] == h {
		delete(k.held, h.delivery.Receipt)
	}
}

// begin takes note of a new connection. What the one before brought was given
// back when it ended; what is acked since then may still be in time.
func (k *consumer) begin(fifo bool) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sessions++
	k.fifo = fifo
	return k.sessions
}

// end takes note that a connection is gone.
func (k *consumer) end() {
	waiting := k.lanes.drop(func(*held) bool { return true })
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, h := range waiting {
		k.forget(h)
	}
	for _, h := range k.held {
		k.lose(h)
	}
	kept := k.outbox[:0]
	for _, s := range k.outbox {
		if s.ack() {
			kept = append(kept, s)
			continue
		}
		for _, h := range s.held {
			k.forget(h)
		}
	}
	k.outbox = kept
}

// lose tells the handler that the message is another's. The mu is held.
func (k *consumer) lose(h *held) {
	h.lost = true
	if h.cancel != nil {
		h.cancel(ErrLeaseLost)
	}
}

// accept takes deliveries that came.
func (k *consumer) accept(deliveries []api.Delivery, session int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	for i := range deliveries {
		h := &held{delivery: deliveries[i], session: session, renewed: now}
		k.held[h.delivery.Receipt] = h
		k.lanes.push(h.delivery.RoutingKey, k.fifo, h)
	}
}

// stale are the receipts whose lease was not renewed for so long.
func (k *consumer) stale(session int, age time.Duration) (receipts []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	for receipt, h := range k.held {
		if h.session == session && !h.lost && now.Sub(h.renewed) >= age {
			h.renewed = now
			receipts = append(receipts, receipt)
		}
	}
	return receipts
}

// failed takes note of receipts that did nothing. The mu is held.
func (k *consumer) failed(failed []api.FailedReceipt, settling bool) {
	for _, f := range failed {
		h := k.held[f.Receipt]
		if h == nil {
			continue
		}
		if settling {
			k.config.Logger.Warn("handled, but not settled: the message comes again", "queue", k.queue,
				"message", h.delivery.MessageID, "receipt", f.Receipt, "code", f.Code)
		} else if f.Code != eventstore.AlreadySettled {
			k.lose(h)
		}
	}
}
