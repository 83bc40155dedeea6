package commands

import (
	"context"
	"slices"
	"time"
)

// Times and bounds of the dispatchers.
const (
	fallbackEvery = time.Second            // a waiting poll looks again without a wake-up
	retryEvery    = 250 * time.Millisecond // while the views or the database are away
	claimTimeout  = 10 * time.Second
	claimWaiters  = 100  // served by one claim
	claimMessages = 2000 // asked for by one claim
	claimShare    = 100  // of them, that a waiter may count on
	fullScanShare = 20   // full scans take at most 1/20 of the time
)

// dispatcher serves the polls of one queue: one claim at a time, for all that
// wait, whenever something may have become ready.
type dispatcher struct {
	broker  *Broker
	channel channel
	woken   chan struct{} // holds one wake-up

	// Guarded by the broker's mu.
	waiters  []*waiter // in the order of their arrival
	running  bool
	drained  time.Time // when the last claim found too little, if no wake-up came since
	gatherer gatherer

	// Of the running goroutine.
	from   bounds
	full   pacer
	flow   flow
	short  bool // the last claim was bounded and found too little
	likely int  // messages that the last claim found
}

// pacer spaces out what is dear: it may take 1/20 of the time.
type pacer struct {
	ended time.Time
	took  time.Duration
}

// due reports whether it may run again, and otherwise when.
func (p *pacer) due(now time.Time) (at time.Time, ok bool) {
	at = p.ended.Add(fullScanShare * p.took)
	return at, !now.Before(at)
}

// ran notes a run.
func (p *pacer) ran(start time.Time) {
	p.ended = time.Now()
	p.took = p.ended.Sub(start)
}

// wake makes the dispatcher look again. The caller holds the broker's mu.
func (d *dispatcher) wake() {
	d.drained = time.Time{}
	select {
	case d.woken <- struct{}{}:
	default:
	}
}

// run serves waiters until there are none.
func (d *dispatcher) run() {
	defer d.broker.leave()
	timer := time.NewTimer(d.pause())
	defer timer.Stop()
	for {
		select {
		case <-d.woken:
		case <-timer.C:
		}
		d.gather()
		pause := retryEvery
		if err := d.round(); err == nil {
			pause = d.pause()
		}
		if d.rest() {
			return
		}
		timer.Reset(pause)
	}
}

// gather waits a moment for those who were served together to be back.
func (d *dispatcher) gather() {
	d.broker.mu.Lock()
	wait := d.gatherer.wait(len(d.waiters), false)
	d.broker.mu.Unlock()
	wait()
}

// pause is how long it may rest without a wake-up.
func (d *dispatcher) pause() time.Duration {
	if !d.short {
		return fallbackEvery
	}
	at, _ := d.full.due(time.Now())
	return min(fallbackEvery, time.Until(at))
}

// rest ends the goroutine if nobody waits.
func (d *dispatcher) rest() bool {
	d.broker.mu.Lock()
	defer d.broker.mu.Unlock()
	d.running = len(d.waiters) > 0
	return !d.running
}

// round makes an attempt for everybody who waits. An error is one that passes.
func (d *dispatcher) round() error {
	d.short = false
	open, filtering := d.line()
	if err := d.serve(open); err != nil {
		d.conclude(filtering, err)
		return err
	}
	for len(filtering) > 0 {
		same, others := alike(filtering)
		group, rest := d.take(same)
		filtering = slices.Concat(rest, others)
		if len(group) == 0 {
			continue // they went
		}
		err := d.claimAlone(&claimJob{channel: d.channel, waiters: group, grain: 1})
		if d.conclude(group, err); passes(err) {
			d.conclude(filtering, err)
			return err
		}
	}
	return nil
}

// alike are the waiters that filter as the first one does: they can share a claim.
func alike(filtering []*waiter) (same, others []*waiter) {
	for _, w := range filtering {
		if slices.Equal(w.req.RoutingKeys, filtering[0].req.RoutingKeys) {
			same = append(same, w)
		} else {
			others = append(others, w)
		}
	}
	return same, others
}

// line answers who waits, in the order of arrival: those that take any message,
// and those that filter.
func (d *dispatcher) line() (open, filtering []*waiter) {
	d.broker.mu.Lock()
	defer d.broker.mu.Unlock()
	for _, w := range d.waiters {
		if w.filters() {
			filtering = append(filtering, w)
		} else {
			open = append(open, w)
		}
	}
	return open, filtering
}

// take marks the next waiters for one claim; rest are those behind them.
func (d *dispatcher) take(line []*waiter) (group, rest []*waiter) {
	d.broker.mu.Lock()
	defer d.broker.mu.Unlock()
	d.gatherer.begin()
	sure := 0
	for i, w := range line {
		if w.left {
			continue
		}
		share := min(w.req.Max, claimShare)
		if len(group) == claimWaiters || sure+share > claimMessages {
			rest = line[i:]
			break
		}
		sure += share
		w.claiming, w.want = true, w.req.Max
		group = append(group, w)
	}
	ration(group)
	return group, rest
}

// ration bounds what the waiters of a claim want together: those that want much
// get the same. One alone gets what it wants.
func ration(group []*waiter) {
	if len(group) < 2 {
		return
	}
	left := claimMessages
	greedy := slices.SortedFunc(slices.Values(group), func(a, b *waiter) int { return a.want - b.want })
	for i, w := range greedy {
		w.want = min(w.want, left/(len(greedy)-i))
		left -= w.want
	}
}

// serve claims for waiters that take any message, until nothing is left for
// them. A bounded scan that finds too little does for those who can wait: the
// next full one is not far. The others get a full one now.
func (d *dispatcher) serve(line []*waiter) error {
	_, full := d.full.due(time.Now())
	for len(line) > 0 {
		group, rest := d.take(line)
		if len(group) == 0 {
			return nil
		}
		start := time.Now()
		err := d.scan(group, full)
		if err != nil {
			d.conclude(group, err)
			d.conclude(rest, err)
			if !passes(err) {
				err = nil
			}
			return err
		}
		served, unserved, enough := split(group)
		d.claimed(len(served), time.Since(start), enough)
		d.conclude(served, nil)
		line = slices.Concat(unserved, rest)
		switch {
		case enough:
		case !full && d.mustBeSure(line):
			full = true
		default:
			d.short = !full
			d.conclude(line, nil)
			return nil
		}
	}
	return nil
}

// claimed notes a claim. If it found too little, nothing is left until a wake-up.
func (d *dispatcher) claimed(served int, took time.Duration, enough bool) {
	d.broker.mu.Lock()
	defer d.broker.mu.Unlock()
	if served > 0 {
		d.gatherer.done(served, took)
	}
	if !enough && len(d.woken) == 0 {
		d.drained = time.Now()
	}
}

// split tells who got something, and whether all got all that they wanted.
func split(group []*waiter) (served, unserved []*waiter, enough bool) {
	enough = true
	for _, w := range group {
		enough = enough && len(w.deliveries) == w.want
		if len(w.deliveries) > 0 {
			served = append(served, w)
		} else {
			unserved = append(unserved, w)
		}
	}
	return served, unserved, enough
}

// mustBeSure reports whether somebody would be answered empty now.
func (d *dispatcher) mustBeSure(line []*waiter) bool {
	d.broker.mu.Lock()
	defer d.broker.mu.Unlock()
	now := time.Now()
	return slices.ContainsFunc(line, func(w *waiter) bool { return w.expired(now) })
}

// scan is one claim for waiters that take any message.
func (d *dispatcher) scan(group []*waiter, full bool) error {
	job := &claimJob{channel: d.channel, waiters: group, grain: d.flow.grain(time.Now(), len(group))}
	if full {
		start := time.Now()
		if err := d.claimAlone(job); err != nil {
			return err
		}
		d.full.ran(start)
	} else {
		job.from, job.likely = &d.from, d.likely
		if err := d.claimInRound(job); err != nil {
			return err
		}
	}
	d.likely = 0
	for _, w := range group {
		d.likely += len(w.deliveries)
	}
	d.flow.add(time.Now(), d.likely)
	d.from.follow(group, d.channel.fifo)
	return nil
}

// claimInRound runs a short claim.
func (d *dispatcher) claimInRound(job *claimJob) error {
	b := d.broker
	err := b.rounds.submit(context.Background(), job)
	ctx, cancel := batchContext()
	defer cancel()
	return job.conclude(ctx, b.cfg.Pool, err)
}

// claimAlone runs a claim that may take long, when the broker has a connection to
// spare for it.
func (d *dispatcher) claimAlone(job *claimJob) error {
	b := d.broker
	b.claims <- struct{}{}
	defer func() { <-b.claims }()
	ctx, cancel := context.WithTimeout(context.Background(), claimTimeout)
	defer cancel()
	err := run(ctx, b.cfg.Pool, job.claim(false))
	return job.conclude(ctx, b.cfg.Pool, err)
}

// conclude ends an attempt for waiters: those that got something, that may not
// wait any longer, or whose error does not pass, have their answer.
func (d *dispatcher) conclude(waiters []*waiter, err error) {
	var back []*waiter
	b := d.broker
	b.mu.Lock()
	if isGone(err) && b.dispatchers[d.channel.id] == d {
		delete(b.dispatchers, d.channel.id)
	}
	now := time.Now()
	for _, w := range waiters {
		claiming := w.claiming
		w.claiming, w.tried = false, true
		switch {
		case w.left && claiming:
			d.remove(w)
			back = append(back, w)
		case w.left:
		case len(w.deliveries) > 0:
			d.answer(w, nil)
		case b.closed && err == nil:
			d.answer(w, shuttingDown())
		case w.expired(now) || b.closed || (err != nil && !passes(err)):
			d.answer(w, err)
		default:
			w.note(err)
		}
	}
	b.mu.Unlock()
	for _, w := range back {
		d.broker.giveBack(d.channel, w.req.Consumer, receiptsOf(w.deliveries))
	}
}

func (d *dispatcher) answer(w *waiter, err error) {
	d.remove(w)
	w.answered, w.err = true, err
	close(w.done)
}
