package commands

import (
	"context"
	"fmt"

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
		maxItems:  batchReceipts,
		maxWeight: batchBytes,
		size:      func(s settlement) (int, int) { return len(s.receipts), 0 },
		run: func(batch []settlement) ([]acked, error) {
			done, err := b.ackBatch(batch)
			if eventstore.Unreachable(err) {
				done, err = b.ackBatch(batch) // twice is no harm
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

// The sequence is read after the function has drawn the position of its event.
const ackSQL = `-- commands.ack
select a.statuses, (select s.last_value from leat.position_seq s)
from leat.ack_many($1, $2, $3, $4) a (statuses)`

// ackMany acks the receipts of several settlements in one transaction.
func ackMany(ctx context.Context, db querier, batch []settlement) ([]acked, error) {
	n := 0
	for _, s := range batch {
		n += len(s.receipts)
	}
	var (
		channels = make([]int32, 0, n)
		receipts = make([]eventstore.Receipt, 0, n)
		actors   = make(pgtype.FlatArray[pgtype.Text], 0, n)
	)
	for _, s := range batch {
		actor := pgtype.Text{String: s.actor, Valid: s.actor != ""}
		for range s.receipts {
			channels = append(channels, int32(s.channel.id))
			actors = append(actors, actor)
		}
		receipts = append(receipts, s.receipts...)
	}
	deliveries, messages := columns(receipts)
	var (
		statuses []status
		position eventstore.Position
	)
	err := queryRow(ctx, db, ackSQL, []any{channels, deliveries, messages, actors}, &statuses, &position)
	if err != nil {
		return nil, err
	}
	if len(statuses) != n {
		return nil, fmt.Errorf("ack %d receipts: got %d statuses", n, len(statuses))
	}
	done := make([]acked, len(batch))
	for i, s := range batch {
		done[i] = acked{statuses: statuses[:len(s.receipts):len(s.receipts)], position: position}
		statuses = statuses[len(s.receipts):]
	}
	return done, nil
}
