package commands

import (
	"context"
	"slices"
	"time"

	"leat/eventstore"
)

// waiter is a poll that waits for its answer. Its fields belong to the broker's
// mu, but for want and deliveries while claiming is set.
type waiter struct {
	req        PollRequest
	deadline   time.Time
	want       int // of the claim under way, at most req.Max
	deliveries []Delivery
	err        error         // of the last attempt
	claiming   bool          // a claim for it is under way
	tried      bool          // it had an attempt
	left       bool          // nobody waits for it any more
	answered   bool          // it has its answer
	done       chan struct{} // closed when it has its answer
}

func newWaiter(req PollRequest, deadline time.Time) *waiter {
	return &waiter{req: req, deadline: deadline, done: make(chan struct{})}
}

// filters reports whether the waiter wants certain keys, and so claims alone.
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
	d.broker.mu.Lock()
	answered := w.answered
	if w.claiming {
		w.left = true
	} else if !answered {
		d.remove(w)
	}
	d.broker.mu.Unlock()
	if answered {
		d.giveBack(w)
	}
}

func (d *dispatcher) remove(w *waiter) {
	w.left = true
	if i := slices.Index(d.waiters, w); i >= 0 {
		d.waiters = slices.Delete(d.waiters, i, i+1)
	}
}

// giveBack releases what was claimed for a waiter that went away.
func (d *dispatcher) giveBack(w *waiter) {
	if len(w.deliveries) == 0 {
		return
	}
	receipts := make([]eventstore.Receipt, len(w.deliveries))
	for i := range w.deliveries {
		receipts[i] = w.deliveries[i].Receipt
	}
	ctx, cancel := batchContext()
	defer cancel()
	b := d.broker
	if _, err := releaseMany(ctx, b.cfg.Pool, d.channel.id, receipts, w.req.Consumer); err != nil {
		b.cfg.Logger.Warn("release messages of a poll that went away: they come back when their lease ends",
			"queue", d.channel.name, "messages", len(receipts), "error", err)
		return
	}
	b.ready(d.channel.id)
}
