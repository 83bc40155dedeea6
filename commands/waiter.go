package commands

import (
	"context"
	"errors"
	"slices"
	"time"

	"leat/eventstore"
)

// waiter is a poll that waits for its answer. Its fields belong to the broker's
// mu, but for want, deliveries and ends while claiming is set.
type waiter struct {
	req        PollRequest
	deadline   time.Time
	want       int // of the claim under way, at most req.Max
	deliveries []Delivery
	ends       time.Time     // of their lease, by this broker's clock
	err        error         // of the last attempt
	claiming   bool          // a claim for it is under way
	tried      bool          // it had an attempt
	left       bool          // nobody waits for it any more
	answered   bool          // it has its answer
	done       chan struct{} // closed when it has its answer
	trouble    chan struct{} // of a consumer: holds a sign that err passes, but is new
}

func newWaiter(req PollRequest, deadline time.Time) *waiter {
	return &waiter{req: req, deadline: deadline, done: make(chan struct{})}
}

// newConsumerWaiter waits until it is withdrawn.
func newConsumerWaiter(req PollRequest) *waiter {
	w := newWaiter(req, time.Now().Add(forever))
	w.trouble = make(chan struct{}, 1)
	return w
}

const forever = 100 * 365 * 24 * time.Hour

// filters reports whether the waiter wants certain keys, and so shares claims with
// those only that want the same.
func (w *waiter) filters() bool { return len(w.req.RoutingKeys) > 0 }

// expired reports whether the waiter may not wait for another attempt.
func (w *waiter) expired(now time.Time) bool { return !now.Before(w.deadline) }

// await puts a waiter in the line of its queue and waits for its answer.
func (b *Broker) await(ctx context.Context, ch channel, w *waiter) ([]Delivery, error) {
	d := b.join(ch, w)
	wait := time.NewTimer(time.Until(w.deadline))
	defer wait.Stop()
	stopping := b.stopping
	for {
		select {
		case <-w.done:
			return w.deliveries, w.err
		case <-wait.C:
			// If not now, then after an attempt.
			if d.dismiss(w) {
				return nil, w.err
			}
		case <-stopping:
			if d.dismiss(w) {
				return nil, shuttingDown()
			}
			stopping = nil
		case <-ctx.Done():
			d.abandon(w)
			return nil, ctx.Err()
		}
	}
}

// join adds the waiter to its dispatcher, which it starts if need be. There is
// nothing to look for if the last claim just found too little and no wake-up came
// since: the waiter has its attempt with the next one, or when its wait ends.
func (b *Broker) join(ch channel, w *waiter) *dispatcher {
	b.mu.Lock()
	defer b.mu.Unlock()
	d := b.dispatchers[ch.id]
	if d == nil {
		d = &dispatcher{broker: b, channel: ch, woken: make(chan struct{}, 1)}
		b.dispatchers[ch.id] = d
	}
	d.waiters = append(d.waiters, w)
	d.gatherer.came(len(d.waiters), false)
	now := time.Now()
	if w.filters() || w.expired(now) || now.Sub(d.drained) > fallbackEvery {
		d.wake()
	}
	if !d.running {
		d.running = true
		b.running++ // the commands that it serves may be gone before it
		go d.run()
	}
	return d
}

// dismiss takes a waiter out of the line, unless it had no attempt yet or has
// one under way, after which the dispatcher answers it.
func (d *dispatcher) dismiss(w *waiter) bool {
	d.broker.mu.Lock()
	defer d.broker.mu.Unlock()
	if w.answered || w.claiming {
		return false
	}
	if !w.tried {
		d.wake()
		return false
	}
	d.remove(w)
	return true
}

// abandon takes a waiter out whose caller went away. What was or is being
// claimed for it is given back.
func (d *dispatcher) abandon(w *waiter) {
	d.broker.giveBack(d.channel, w.req.Consumer, receiptsOf(d.withdraw(w)))
}

// withdraw takes a waiter out and answers what it got. What is being claimed for
// it is given back.
func (d *dispatcher) withdraw(w *waiter) []Delivery {
	d.broker.mu.Lock()
	defer d.broker.mu.Unlock()
	switch {
	case w.answered:
		return w.deliveries
	case w.claiming:
		w.left = true
	default:
		d.remove(w)
	}
	return nil
}

// resize changes how much a waiter wants, unless it is being served. One that
// wants nothing is taken out.
func (d *dispatcher) resize(w *waiter, most int) (out bool) {
	d.broker.mu.Lock()
	defer d.broker.mu.Unlock()
	switch {
	case w.answered || w.claiming:
	case most > 0:
		w.req.Max = most
	default:
		d.remove(w)
		return true
	}
	return false
}

// trouble is the error that a waiter was told of.
func (d *dispatcher) trouble(w *waiter) error {
	d.broker.mu.Lock()
	defer d.broker.mu.Unlock()
	return w.err
}

// note keeps the error of an attempt, after which a waiter goes on waiting, and
// tells a consumer when it is another one than before.
func (w *waiter) note(err error) {
	if w.trouble != nil && err != nil && !sameCode(err, w.err) {
		select {
		case w.trouble <- struct{}{}:
		default:
		}
	}
	w.err = err
}

func (d *dispatcher) remove(w *waiter) {
	w.left = true
	if i := slices.Index(d.waiters, w); i >= 0 {
		d.waiters = slices.Delete(d.waiters, i, i+1)
	}
}

func receiptsOf(deliveries []Delivery) []eventstore.Receipt {
	receipts := make([]eventstore.Receipt, len(deliveries))
	for i := range deliveries {
		receipts[i] = deliveries[i].Receipt
	}
	return receipts
}

// sameCode reports whether two errors are of one code, or both of none.
func sameCode(a, b error) bool {
	x, _ := errors.AsType[*eventstore.Error](a)
	y, _ := errors.AsType[*eventstore.Error](b)
	return (x == nil) == (y == nil) && (x == nil || x.Code == y.Code)
}
