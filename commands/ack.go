package commands

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"leat/eventstore"
)

// Ack settles messages as done, durably, and answers after the commit. Acks of
// all queues share transactions. The same receipt again is not an error.
func (b *Broker) Ack(ctx context.Context, req SettleRequest) (SettleResult, error) {
	leave, err := b.enter()
	if err != nil {
		return SettleResult{}, err
	}
	defer leave()
	s, err := b.prepareSettle(ctx, b.cfg.Pool, req)
	if err != nil {
		return SettleResult{}, err
	}
	return b.ackSettlement(ctx, s)
}

func (b *Broker) ackSettlement(ctx context.Context, s settlement) (SettleResult, error) {
	done, err := b.ack(ctx, s)
	if err != nil {
		return SettleResult{}, err
	}
	result, err := s.result(ctx, b.cfg.Pool, done.statuses, done.position, fateAcked)
	if err == nil && result.Settled > 0 && s.channel.fifo {
		b.ready(s.channel.id) // the next message of each key
	}
	return result, err
}

// AckTx is Ack in a transaction.
func (b *Broker) AckTx(ctx context.Context, tx pgx.Tx, req SettleRequest) (SettleResult, error) {
	s, err := b.prepareSettle(ctx, tx, req)
	if err != nil {
		return SettleResult{}, err
	}
	job := &ackJob{settlement: s}
	if err := run(ctx, tx, ackAll([]*ackJob{job}, true)); err != nil {
		return SettleResult{}, err
	}
	return s.result(ctx, tx, job.statuses, job.position, fateAcked)
}

// ack sends a settlement until it is done. Twice is no harm.
func (b *Broker) ack(ctx context.Context, s settlement) (*ackJob, error) {
	job := &ackJob{settlement: s}
	err := b.rounds.submit(ctx, job)
	if errors.Is(err, &eventstore.Error{Code: eventstore.Busy}) || eventstore.Unreachable(err) {
		err = b.heldAcks.submit(ctx, job)
	}
	return job, err
}

// ackJob is a settlement on its way, and what one transaction did with it.
type ackJob struct {
	settlement
	statuses []status
	position eventstore.Position
}

func (a *ackJob) size() (items, weight int) { return len(a.receipts), 0 }

// newHeldAcker is for acks that had to wait for a lock: they wait in their own
// transactions, for as long as it takes.
func (b *Broker) newHeldAcker() *coalescer[*ackJob] {
	return &coalescer[*ackJob]{
		flights:   heldFlights,
		worth:     batchWorth,
		maxItems:  batchItems,
		maxWeight: batchBytes,
		run: func(jobs []*ackJob) error {
			ctx, cancel := batchContext()
			defer cancel()
			return run(ctx, b.cfg.Pool, ackAll(jobs, true))
		},
		separable: separable,
	}
}

// The sequence is read after the function has drawn the positions of its events.
const ackSQL = `-- commands.ack
select a.statuses, (select s.last_value from leat.position_seq s)
from leat.ack_many($1, $2, $3, $4, $5, $6, $7) a (statuses)`

// ackAll acks the receipts of several settlements.
func ackAll(jobs []*ackJob, wait bool) statement {
	order := ackOrder(jobs)
	c := newAckColumns(jobs, order)
	var (
		statuses []status
		position eventstore.Position
	)
	ack := oneRow(ackSQL, []any{c.channels, c.actors, c.deliveries, c.starts, c.messages, c.fifo, wait}, &statuses, &position)
	return ack.then(func() error {
		if statuses != nil && len(statuses) != len(order) {
			return fmt.Errorf("ack %d receipts: got %d statuses", len(order), len(statuses))
		}
		for _, job := range jobs {
			job.statuses, job.position = make([]status, len(job.receipts)), position
		}
		for i, status := range statuses {
			jobs[order[i].settlement].statuses[order[i].receipt] = status
		}
		return nil
	})
}

// place is where a receipt stands in a batch.
type place struct{ settlement, receipt int }

// ackOrder puts the receipts of a batch in the order of leat.ack_many: by
// channel, actor, delivery and message.
func ackOrder(batch []*ackJob) []place {
	var order []place
	for i, s := range batch {
		for j := range s.receipts {
			order = append(order, place{i, j})
		}
	}
	compare := func(a, b place) int {
		s, t := batch[a.settlement], batch[b.settlement]
		r, u := s.receipts[a.receipt], t.receipts[b.receipt]
		return cmp.Or(
			cmp.Compare(s.channel.id, t.channel.id),
			cmp.Compare(s.actor, t.actor),
			cmp.Compare(r.Delivery, u.Delivery),
			cmp.Compare(r.Message, u.Message))
	}
	if !slices.IsSortedFunc(order, compare) {
		slices.SortFunc(order, compare)
	}
	return order
}

// ackColumns are the parameters of leat.ack_many: groups, and their messages.
type ackColumns struct {
	channels   []int32
	actors     pgtype.FlatArray[pgtype.Text]
	deliveries []int64
	starts     []int32 // from 1
	messages   []int64
	fifo       bool // some channels are
}

func newAckColumns(batch []*ackJob, order []place) *ackColumns {
	c := &ackColumns{messages: make([]int64, 0, len(order))}
	var last *ackJob
	for _, p := range order {
		s := batch[p.settlement]
		receipt := s.receipts[p.receipt]
		if last == nil || s.channel.id != last.channel.id || s.actor != last.actor ||
			int64(receipt.Delivery) != c.deliveries[len(c.deliveries)-1] {
			c.channels = append(c.channels, int32(s.channel.id))
			c.fifo = c.fifo || s.channel.fifo
			c.actors = append(c.actors, pgtype.Text{String: s.actor, Valid: s.actor != ""})
			c.deliveries = append(c.deliveries, int64(receipt.Delivery))
			c.starts = append(c.starts, int32(len(c.messages)+1))
		}
		c.messages = append(c.messages, int64(receipt.Message))
		last = s
	}
	return c
}
