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
	done, err := b.acks.submit(ctx, s)
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
	done, err := ackMany(ctx, tx, []settlement{s})
	if err != nil {
		return SettleResult{}, err
	}
	return s.result(ctx, tx, done[0].statuses, done[0].position, fateAcked)
}

// acked is what one transaction did with a settlement.
type acked struct {
	statuses []status
	position eventstore.Position
}

func (b *Broker) newAcker() *coalescer[settlement, acked] {
	return &coalescer[settlement, acked]{
		flights:   ackFlights,
		worth:     batchWorth,
		maxItems:  batchReceipts,
		maxWeight: batchBytes,
		size:      func(s settlement) (int, int) { return len(s.receipts), 0 },
		run: func(batch []settlement) ([]acked, error) {
			done, err := b.ackBatch(batch)
			if eventstore.Unreachable(err) || errors.Is(err, &eventstore.Error{Code: eventstore.Busy}) {
				done, err = b.ackBatch(batch) // twice is no harm, and of a deadlock nothing was done
			}
			return done, err
		},
		separable: separable,
	}
}

func (b *Broker) ackBatch(batch []settlement) ([]acked, error) {
	ctx, cancel := batchContext()
	defer cancel()
	return ackMany(ctx, b.cfg.Pool, batch)
}

// The sequence is read after the function has drawn the positions of its events.
const ackSQL = `-- commands.ack
select a.statuses, (select s.last_value from leat.position_seq s)
from leat.ack_many($1, $2, $3, $4, $5, $6) a (statuses)`

// ackMany acks the receipts of several settlements in one transaction.
func ackMany(ctx context.Context, db querier, batch []settlement) ([]acked, error) {
	order := ackOrder(batch)
	c := newAckColumns(batch, order)
	var (
		statuses []status
		position eventstore.Position
	)
	err := queryRow(ctx, db, ackSQL, []any{c.channels, c.actors, c.deliveries, c.starts, c.messages, c.fifo}, &statuses, &position)
	if err != nil {
		return nil, err
	}
	if statuses != nil && len(statuses) != len(order) {
		return nil, fmt.Errorf("ack %d receipts: got %d statuses", len(order), len(statuses))
	}
	done := make([]acked, len(batch))
	for i, s := range batch {
		done[i] = acked{statuses: make([]status, len(s.receipts)), position: position}
	}
	for i, status := range statuses {
		done[order[i].settlement].statuses[order[i].receipt] = status
	}
	return done, nil
}

// place is where a receipt stands in a batch.
type place struct{ settlement, receipt int }

// ackOrder puts the receipts of a batch in the order of leat.ack_many: by
// channel, actor, delivery and message.
func ackOrder(batch []settlement) []place {
	var order []place
	for i, s := range batch {
		for j := range s.receipts {
			order = append(order, place{i, j})
		}
	}
	compare := func(a, b place) int {
		s, t := &batch[a.settlement], &batch[b.settlement]
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

func newAckColumns(batch []settlement, order []place) *ackColumns {
	c := &ackColumns{messages: make([]int64, 0, len(order))}
	var last *settlement
	for _, p := range order {
		s := &batch[p.settlement]
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
