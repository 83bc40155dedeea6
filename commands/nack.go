package commands

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"leat/eventstore"
)

// Actions of a nack.
const (
	RetryAction      = "retry"      // deliver again, by the queue's policy
	DeadLetterAction = "deadLetter" // set aside, with the reason
	DiscardAction    = "discard"    // drop
)

// NackRequest gives messages back as failed.
type NackRequest struct {
	SettleRequest
	Action     string         // default RetryAction
	Delay      *time.Duration // of a retry, instead of the policy's
	Reason     string         // up to 1,024 bytes, for the log and the dead letter
	ErrorClass string         // one on the queue's NonRetryable list dead-letters at once
}

// nackFates are the fates that each action may lead to: a retry may have been
// the last one.
var nackFates = map[string][]string{
	RetryAction:      {fateRetried, fateDeadLettered},
	DeadLetterAction: {fateDeadLettered},
	DiscardAction:    {fateDiscarded, fateDeadLettered},
}

const nackSQL = `-- commands.nack
select a.statuses, (select s.last_value from leat.position_seq s)
from leat.nack_many($1, $2, $3, $4, $5, nullif($6, ''), nullif($7, ''), nullif($8, '')) a (statuses)`

// Nack gives messages back as failed, durably. The same nack again is not an
// error. A retry of a message whose attempts are used up dead-letters it.
func (b *Broker) Nack(ctx context.Context, req NackRequest) (SettleResult, error) {
	leave, err := b.enter()
	if err != nil {
		return SettleResult{}, err
	}
	defer leave()
	return b.nack(ctx, b.cfg.Pool, req, b.ready)
}

// NackTx is Nack in a transaction.
func (b *Broker) NackTx(ctx context.Context, tx pgx.Tx, req NackRequest) (SettleResult, error) {
	return b.nack(ctx, tx, req, afterCommit)
}

// afterCommit leaves it to the owner of a transaction to wake pollers.
func afterCommit(...eventstore.ChannelID) {}

func (b *Broker) nack(
	ctx context.Context, db querier, req NackRequest, ready func(...eventstore.ChannelID),
) (SettleResult, error) {
	if err := req.complete(); err != nil {
		return SettleResult{}, err
	}
	return b.oneQueue(ctx, db, req.SettleRequest, func(s settlement) (SettleResult, error) {
		return b.nackSettlement(ctx, db, s, req, ready)
	})
}

func (b *Broker) nackSettlement(
	ctx context.Context, db querier, s settlement, req NackRequest, ready func(...eventstore.ChannelID),
) (SettleResult, error) {
	delay := pgtype.Interval{}
	if req.Delay != nil {
		delay = span(*req.Delay)
	}
	deliveries, messages := columns(s.receipts)
	result, err := s.run(ctx, db, nackFates[req.Action], nackSQL, s.channel.id, deliveries, messages,
		req.Action, delay, req.Reason, req.ErrorClass, s.actor)
	if err == nil && result.Settled > 0 {
		ready(s.channel.id)
	}
	return result, err
}

// complete sets what has a default, and checks the rest.
func (r *NackRequest) complete() error {
	if r.Action == "" {
		r.Action = RetryAction
	}
	var f faults
	if _, ok := nackFates[r.Action]; !ok {
		f.invalid(-1, "action", "must be %s, %s or %s", RetryAction, DeadLetterAction, DiscardAction)
	}
	if r.Delay != nil {
		f.between(-1, "delay", *r.Delay, 0, maxAhead)
		if r.Action != RetryAction {
			f.invalid(-1, "delay", "goes with action %s only", RetryAction)
		}
	}
	f.text(-1, "reason", r.Reason, maxReason)
	f.text(-1, "errorClass", r.ErrorClass, maxLabel)
	return f.err()
}

// run runs a statement that answers statuses and a position.
func (s settlement) run(ctx context.Context, db querier, same []string, sql string, args ...any) (SettleResult, error) {
	var (
		statuses []status
		position eventstore.Position
	)
	if err := queryRow(ctx, db, sql, args, &statuses, &position); err != nil {
		return SettleResult{}, err
	}
	return s.result(ctx, db, statuses, position, same...)
}
