package commands

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"leat/eventstore"
)

// SettleRequest names deliveries of one queue by their receipts. A receipt that
// cannot be read refuses the request; one that no longer holds fails alone.
type SettleRequest struct {
	Queue    string
	Actor    string // who settles, for the log; "" when not known
	Receipts []string
}

// SettleResult says what became of the receipts: each is counted once, or
// listed in Failed.
type SettleResult struct {
	Settled        int
	AlreadySettled int // settled before in the same way: by this receipt, or twice in this request
	Failed         []FailedReceipt
	Position       eventstore.Position // what was settled is at or below it
}

// FailedReceipt is a receipt that changed nothing.
type FailedReceipt struct {
	Receipt string
	Code    eventstore.Code // LeaseLost, AlreadySettled or ReceiptUnknown
	Message string
}

// status of a receipt, as the SQL functions answer it.
type status int16

const (
	settled status = iota
	notInFlight
)

// settlement is a checked SettleRequest.
type settlement struct {
	channel  channel
	actor    string
	receipts []eventstore.Receipt
	repeated int // receipts that were in the request before
}

// prepareSettle checks a request and resolves its queue.
func (b *Broker) prepareSettle(ctx context.Context, db querier, req SettleRequest) (settlement, error) {
	s, err := b.checkSettle(req)
	if err != nil {
		return settlement{}, err
	}
	s.channel, err = b.channels.findQueue(ctx, db, req.Queue)
	return s, err
}

func (b *Broker) checkSettle(req SettleRequest) (settlement, error) {
	switch n := len(req.Receipts); {
	case n == 0:
		return settlement{}, eventstore.NewError(eventstore.BatchEmpty, "The request holds no receipts.")
	case n > b.cfg.Limits.Receipts:
		return settlement{}, eventstore.NewError(eventstore.BatchTooLarge,
			"The request holds %d receipts, more than %d.", n, b.cfg.Limits.Receipts)
	}
	var f faults
	f.label("actor", req.Actor)
	s := settlement{actor: req.Actor, receipts: make([]eventstore.Receipt, 0, len(req.Receipts))}
	seen := make(map[eventstore.Receipt]struct{}, len(req.Receipts))
	for i, text := range req.Receipts {
		receipt, err := eventstore.ParseReceipt(text)
		if err != nil {
			f.add(eventstore.ReceiptMalformed, i, "receipts", "%.300q is not a receipt", text)
			continue
		}
		if _, ok := seen[receipt]; ok {
			s.repeated++
			continue
		}
		seen[receipt] = struct{}{}
		s.receipts = append(s.receipts, receipt)
	}
	return s, f.err()
}

// columns are the receipts as two arrays.
func columns(receipts []eventstore.Receipt) (deliveries, messages []int64) {
	deliveries = make([]int64, len(receipts))
	messages = make([]int64, len(receipts))
	for i, r := range receipts {
		deliveries[i], messages[i] = int64(r.Delivery), int64(r.Message)
	}
	return deliveries, messages
}

// oneQueue prepares a settlement, runs it, and looks the queue up again if its
// id turns out to be gone. Commands that do not share transactions use it.
func (b *Broker) oneQueue(
	ctx context.Context, db querier, req SettleRequest, run func(settlement) (SettleResult, error),
) (SettleResult, error) {
	s, err := b.prepareSettle(ctx, db, req)
	if err != nil {
		return SettleResult{}, err
	}
	result, err := run(s)
	if _, inTx := db.(pgx.Tx); isGone(err) && !inTx {
		b.channels.forget(req.Queue)
		if s.channel, err = b.channels.findQueue(ctx, db, req.Queue); err != nil {
			return SettleResult{}, err
		}
		result, err = run(s)
	}
	return result, err
}

const fatesSQL = `-- commands.fates
select leat.receipt_fate($1, u.delivery, u.message)
from unnest($2::bigint[], $3::bigint[]) with ordinality u (delivery, message, n)
order by u.n`

// result counts the statuses of a settlement. same are the fates that the
// command itself leads to.
func (s settlement) result(
	ctx context.Context, db querier, statuses []status, position eventstore.Position, same ...string,
) (SettleResult, error) {
	result := SettleResult{AlreadySettled: s.repeated, Position: position}
	if len(statuses) != len(s.receipts) {
		return result, fmt.Errorf("settle in %s: got %d statuses for %d receipts", s.channel.name, len(statuses), len(s.receipts))
	}
	var lost []eventstore.Receipt
	for i, status := range statuses {
		if status == settled {
			result.Settled++
		} else {
			lost = append(lost, s.receipts[i])
		}
	}
	if len(lost) == 0 {
		return result, nil
	}
	deliveries, messages := columns(lost)
	rows, err := db.Query(ctx, fatesSQL, s.channel.id, deliveries, messages)
	if err != nil {
		return result, eventstore.FromPg(err)
	}
	fates, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return result, eventstore.FromPg(err)
	}
	for i, fate := range fates {
		result.addFate(lost[i], fate, same)
	}
	return result, nil
}
