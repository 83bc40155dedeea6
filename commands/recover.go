package commands

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"leat/eventstore"
)

// RecoverRequest brings dead letters back to life.
type RecoverRequest struct {
	DeadLetters
	To  string        // another channel, where they become new messages; "" is their own queue, under the same ids
	TTL time.Duration // from the recovery on; 0 is none, whatever the messages had
}

const recoverSQL = `-- commands.recover
select r.recovered, r.circuit_open, r.busy, coalesce(r.next, 0), (select s.last_value from leat.position_seq s)
from leat.recover_dead($1, ` + deadFilterSQL + `, $8, $9, nullif($10, ''), $11) r`

const recoverIDsSQL = `-- commands.recoverIDs
select r.statuses, (select s.last_value from leat.position_seq s)
from leat.recover_ids($1, $2, $3, nullif($4, '')) r (statuses)`

const redriveSQL = `-- commands.redrive
select r.recovered, r.circuit_open, r.busy, coalesce(r.next, 0), (select s.last_value from leat.position_seq s)
from leat.redrive_dead($1, ` + deadFilterSQL + `, $8, $9, $10, nullif($11, ''), $12) r`

const redriveIDsSQL = `-- commands.redriveIDs
select r.statuses, (select s.last_value from leat.position_seq s)
from leat.redrive_ids($1, $2, $3, $4, nullif($5, '')) r (statuses)`

// redrivePage is how many dead letters go to another channel in one transaction:
// there they cost as much as a publish.
const redrivePage = 10_000

// Recover makes dead letters ready in their queue, under the same ids and as if
// they had never been delivered. A recovered message of a FIFO key comes before
// all newer ones. Ids are recovered whatever the circuit of their key is; a
// filter, or all, passes over keys whose circuit is not closed. With To they leave
// for another channel instead, as new messages with the same origins, and go on
// along its links; what has no route there stays.
//
// Many are recovered in several transactions, a FIFO key in one; an error, or
// the end of the context, leaves what was not reached as it was, for the next
// call. What dies again meanwhile stays dead.
func (b *Broker) Recover(ctx context.Context, req RecoverRequest) (DeadLettersResult, error) {
	leave, err := b.enter()
	if err != nil {
		return DeadLettersResult{}, err
	}
	defer leave()
	return b.recover(ctx, b.cfg.Pool, req, b.ready)
}

// RecoverTx is Recover in a transaction.
func (b *Broker) RecoverTx(ctx context.Context, tx pgx.Tx, req RecoverRequest) (DeadLettersResult, error) {
	return b.recover(ctx, tx, req, afterCommit)
}

func (b *Broker) recover(
	ctx context.Context, db querier, req RecoverRequest, ready func(...eventstore.ChannelID),
) (DeadLettersResult, error) {
	if err := b.checkDead(req.DeadLetters); err != nil {
		return DeadLettersResult{}, err
	}
	var f faults
	if req.To != "" {
		f.name("to", req.To)
	}
	f.between(-1, "ttl", req.TTL, 0, maxAhead)
	if err := f.err(); err != nil {
		return DeadLettersResult{}, err
	}
	ttl := pgtype.Interval{}
	if req.TTL > 0 {
		ttl = span(req.TTL)
	}
	if req.To != "" {
		return b.redrive(ctx, db, req, ttl)
	}
	return b.onDead(ctx, db, req.DeadLetters, deadCommand{
		page: func(ch channel, filter []any, after int64) (string, []any) {
			args := append([]any{ch.id}, filter...)
			return recoverSQL, append(args, after, ttl, req.Actor, b.cfg.Limits.DeadLetterPage)
		},
		byID: func(ch channel, ids []int64) (string, []any) {
			return recoverIDsSQL, []any{ch.id, ids, ttl, req.Actor}
		},
		done: ready,
	})
}

func (b *Broker) redrive(ctx context.Context, db querier, req RecoverRequest, ttl pgtype.Interval) (DeadLettersResult, error) {
	page := min(b.cfg.Limits.DeadLetterPage, redrivePage)
	return b.onDead(ctx, db, req.DeadLetters, deadCommand{
		page: func(ch channel, filter []any, after int64) (string, []any) {
			args := append([]any{ch.id}, filter...)
			return redriveSQL, append(args, after, req.To, ttl, req.Actor, page)
		},
		byID: func(ch channel, ids []int64) (string, []any) {
			return redriveIDsSQL, []any{ch.id, ids, req.To, ttl, req.Actor}
		},
		done: b.redriven(ctx, db, req.To),
	})
}

// redriven tells pollers: of the target, and here of all, because links lead on.
func (b *Broker) redriven(ctx context.Context, db querier, to string) func(...eventstore.ChannelID) {
	if _, inTx := db.(pgx.Tx); inTx {
		return afterCommit
	}
	return func(...eventstore.ChannelID) {
		b.Wake()
		if target, err := b.channels.find(ctx, db, to); err == nil { // an exchange is no queue, and has no pollers
			b.ready(target.id)
		}
	}
}
