package ws

import (
	"context"
	"errors"
	"sync"

	"leat/api"
	"leat/eventstore"
)

// settling is a settlement that a frame asks for.
type settling struct {
	id       int64
	receipts int
	do       func(ctx context.Context) (api.SettleResult, error)
}

// settler settles frames of one type, and answers them in their order.
type settler struct {
	context context.Context //nolint:containedctx // of the settlements, which outlive the session by a moment
	atOnce  int             // so many are settled at the same time

	mu       sync.Mutex
	waiting  []settling
	receipts int // that wait
	working  bool
	finished bool
	idle     sync.WaitGroup // the goroutine that works
}

// maxReceipts bounds what may wait.
const maxReceipts = 20_000

// add never blocks: the goroutine that reads also reads the answers to pings.
func (q *settler) add(ctx context.Context, s *session, one settling) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.finished {
		return context.Cause(ctx)
	}
	if q.receipts+one.receipts+len(q.waiting) > maxReceipts {
		return eventstore.NewError(eventstore.Busy, "%d settlements wait for the database.", len(q.waiting))
	}
	q.waiting = append(q.waiting, one)
	q.receipts += one.receipts
	if !q.working {
		q.working = true
		q.idle.Go(func() { q.work(ctx, s) })
	}
	return nil
}

// finish waits for what was added. No more is taken in.
func (q *settler) finish() {
	q.mu.Lock()
	q.finished = true
	q.mu.Unlock()
	q.idle.Wait()
}

func (q *settler) take() []settling {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(len(q.waiting), q.atOnce)
	if n == 0 {
		q.working = false
		q.waiting = nil
		return nil
	}
	batch := q.waiting[:n:n]
	q.waiting = q.waiting[n:]
	for _, one := range batch {
		q.receipts -= one.receipts
	}
	return batch
}

// outcome is what became of a settlement.
type outcome struct {
	result api.SettleResult
	err    error
}

// work settles until nothing waits. What waits together is settled at the same
// time, so that the broker makes one transaction of it where it can.
func (q *settler) work(ctx context.Context, s *session) {
	for batch := q.take(); batch != nil; batch = q.take() {
		outcomes := make([]outcome, len(batch))
		var all sync.WaitGroup
		for i, one := range batch[1:] {
			all.Go(func() { outcomes[i+1].result, outcomes[i+1].err = one.do(q.context) })
		}
		outcomes[0].result, outcomes[0].err = batch[0].do(q.context)
		all.Wait()
		for i := range batch {
			if err := answer(ctx, s, batch[i].id, &outcomes[i]); err != nil {
				s.end(err) // and the rest is settled all the same
			}
		}
	}
}

// answer tells what became of a settlement. What is no refusal ends the session.
func answer(ctx context.Context, s *session, id int64, o *outcome) error {
	if o.err == nil {
		r := &o.result
		return s.send(ctx, api.SettledFrame{
			Type: api.FrameSettled, ID: id, Settled: r.Settled, AlreadySettled: r.AlreadySettled, Failed: r.Failed,
			LeaseUntil: r.LeaseUntil, Position: r.Position,
		})
	}
	if _, ok := errors.AsType[*eventstore.Error](eventstore.FromPg(o.err)); !ok {
		return o.err
	}
	p, _ := api.ProblemOf(o.err)
	return s.send(ctx, api.ErrorFrame{Type: api.FrameError, Problem: s.named(p), ID: &id})
}

// named adds to a problem what names the session.
func (s *session) named(p *api.Problem) *api.Problem {
	p.Instance, p.RequestID = s.path, s.id
	return p
}
