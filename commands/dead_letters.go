package commands

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"leat/eventstore"
)

// DeadLetters chooses dead letters of a queue: one of IDs, Filter and All.
type DeadLetters struct {
	Queue  string
	Actor  string // for the log; "" when not known
	IDs    []eventstore.MessageID
	Filter *DeadLettersFilter
	All    bool
	// Progress is told after each transaction what was done so far. Default: nobody is.
	Progress func(DeadLettersResult)
}

// DeadLettersFilter narrows the choice by each field that is set.
type DeadLettersFilter struct {
	RoutingKey   *string // nil is any
	Reason       string  // one of eventstore.DeathReasons; "" is any
	DiedAfter    time.Time
	DiedBefore   time.Time // default: the beginning of the command, so that what dies again stays
	FromID, ToID eventstore.MessageID
}

// DeadLettersResult says what was done to the chosen dead letters.
type DeadLettersResult struct {
	Done        int64               // recovered, or removed
	CircuitOpen int64               // stay because the circuit of their key is not closed
	Remaining   int64               // of a filter, or all: are still there, CircuitOpen included
	Failed      []FailedMessage     // of ids
	Position    eventstore.Position // what was done is at or below it
}

// FailedMessage is a message that stays as it was.
type FailedMessage struct {
	ID      eventstore.MessageID
	Code    eventstore.Code // MessageNotDead, MessageNotFound, Unroutable or Busy
	Message string
}

const purgeDeadSQL = `-- commands.purgeDead
select p.purged, 0, 0, coalesce(p.next, 0), (select s.last_value from leat.position_seq s)
from leat.purge_dead($1, ` + deadFilterSQL + `, $8, nullif($9, ''), $10) p`

const purgeDeadIDsSQL = `-- commands.purgeDeadIDs
select p.statuses, (select s.last_value from leat.position_seq s)
from leat.purge_dead_ids($1, $2, nullif($3, '')) p (statuses)`

// PurgeDeadLetters removes dead letters for good; the log keeps them. Many go in
// several transactions: what an error leaves is for the next call.
func (b *Broker) PurgeDeadLetters(ctx context.Context, req DeadLetters) (DeadLettersResult, error) {
	leave, err := b.enter()
	if err != nil {
		return DeadLettersResult{}, err
	}
	defer leave()
	return b.purgeDead(ctx, b.cfg.Pool, req)
}

// PurgeDeadLettersTx is PurgeDeadLetters in a transaction.
func (b *Broker) PurgeDeadLettersTx(ctx context.Context, tx pgx.Tx, req DeadLetters) (DeadLettersResult, error) {
	return b.purgeDead(ctx, tx, req)
}

func (b *Broker) purgeDead(ctx context.Context, db querier, req DeadLetters) (DeadLettersResult, error) {
	if err := b.checkDead(req); err != nil {
		return DeadLettersResult{}, err
	}
	return b.onDead(ctx, db, req, deadCommand{
		page: func(ch channel, filter []any, after int64) (string, []any) {
			args := append([]any{ch.id}, filter...)
			return purgeDeadSQL, append(args, after, req.Actor, b.cfg.Limits.DeadLetterPage)
		},
		byID: func(ch channel, ids []int64) (string, []any) {
			return purgeDeadIDsSQL, []any{ch.id, ids, req.Actor}
		},
		done: afterCommit,
	})
}

// deadCommand is what a command does with the dead letters that were chosen.
type deadCommand struct {
	page func(ch channel, filter []any, after int64) (sql string, args []any)
	byID func(ch channel, ids []int64) (sql string, args []any)
	done func(...eventstore.ChannelID) // after each commit that did something
}

// onDead runs a command on what was chosen.
func (b *Broker) onDead(ctx context.Context, db querier, req DeadLetters, cmd deadCommand) (DeadLettersResult, error) {
	ch, err := b.channels.find(ctx, db, req.Queue)
	if err != nil {
		return DeadLettersResult{}, err
	}
	work := deadWork{deadCommand: cmd, b: b, db: db, ch: ch, tell: req.Progress}
	result, err := work.run(ctx, req)
	if _, inTx := db.(pgx.Tx); isGone(err) && !inTx {
		b.channels.forget(req.Queue)
		if work.ch, err = b.channels.find(ctx, db, req.Queue); err != nil {
			return result, err
		}
		return work.run(ctx, req)
	}
	return result, err
}

// deadWork is a command on its way.
type deadWork struct {
	deadCommand
	b      *Broker
	db     querier
	ch     channel
	tell   func(DeadLettersResult)
	result DeadLettersResult
}

func (w *deadWork) run(ctx context.Context, req DeadLetters) (DeadLettersResult, error) {
	w.result = DeadLettersResult{}
	var err error
	if req.IDs != nil {
		err = w.ids(ctx, req.IDs)
	} else {
		err = w.pages(ctx, req.Filter)
	}
	return w.result, err
}

// What somebody else has in hand is tried again, but not for ever.
const (
	firstBusyPause = 20 * time.Millisecond
	maxBusyPause   = time.Second
	busyPatience   = 5 * time.Second
)

// again waits before another try, and says whether there is one: a transaction
// must not hold what it has for so long.
func (w *deadWork) again(ctx context.Context, since time.Time, pause *time.Duration) (bool, error) {
	if _, inTx := w.db.(pgx.Tx); inTx || time.Since(since) > busyPatience {
		return false, nil
	}
	timer := time.NewTimer(*pause)
	defer timer.Stop()
	*pause = min(2**pause, maxBusyPause)
	select {
	case <-timer.C:
		return true, nil
	case <-w.b.stopping:
		return false, shuttingDown()
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// goOn tells between two transactions whether there may be another.
func (w *deadWork) goOn(ctx context.Context) error {
	select {
	case <-w.b.stopping:
		return shuttingDown()
	default:
		return ctx.Err()
	}
}

const deadStartSQL = `-- commands.deadStart
select clock_timestamp()`

// pages goes through all that is dead, page by page, until nothing is left that
// could be done.
func (w *deadWork) pages(ctx context.Context, f *DeadLettersFilter) error {
	var start time.Time
	if err := queryRow(ctx, w.db, deadStartSQL, nil, &start); err != nil {
		return err
	}
	filter := f.args(start)
	for begin, pause := time.Now(), firstBusyPause; ; {
		busy, err := w.pass(ctx, filter)
		if err != nil {
			return err
		}
		if busy == 0 {
			break
		}
		if more, err := w.again(ctx, begin, &pause); err != nil {
			return err
		} else if !more {
			break
		}
	}
	return w.remaining(ctx, f.args(time.Time{}))
}

// pass is one way through the pages; busy counts what others had in hand.
func (w *deadWork) pass(ctx context.Context, filter []any) (busy int64, err error) {
	w.result.CircuitOpen = 0
	for after := int64(0); ; {
		if err := w.goOn(ctx); err != nil {
			return 0, err
		}
		var done, open, others, next int64
		sql, args := w.page(w.ch, filter, after)
		if err := queryRow(ctx, w.db, sql, args, &done, &open, &others, &next, &w.result.Position); err != nil {
			return 0, err
		}
		w.result.Done += done
		w.result.CircuitOpen += open
		busy += others
		w.did(done)
		if next == 0 {
			return busy, nil
		}
		after = next
	}
}

func (w *deadWork) did(n int64) {
	if n > 0 {
		w.done(w.ch.id)
	}
	if w.tell != nil {
		w.tell(w.result)
	}
}

const remainingSQL = `-- commands.remaining
select p.circuit_open + p.others
from leat.passed_over($1, ` + deadFilterSQL + `, 0, 9223372036854775807) p`

func (w *deadWork) remaining(ctx context.Context, filter []any) error {
	return queryRow(ctx, w.db, remainingSQL, append([]any{w.ch.id}, filter...), &w.result.Remaining)
}

// Statuses of messages that were named, as leat.dead_statuses has them.
const (
	deadDone int16 = iota
	deadNot
	deadUnknown
	deadBusy
	deadUnroutable
)

// ids runs the command on messages that are named, each once.
func (w *deadWork) ids(ctx context.Context, named []eventstore.MessageID) error {
	left := make([]int64, 0, len(named))
	seen := make(map[eventstore.MessageID]bool, len(named))
	for _, id := range named {
		if !seen[id] {
			seen[id] = true
			left = append(left, int64(id))
		}
	}
	for begin, pause := time.Now(), firstBusyPause; ; {
		busy, err := w.try(ctx, left)
		if err != nil {
			return err
		}
		if len(busy) == 0 {
			return nil
		}
		more, err := w.again(ctx, begin, &pause)
		if err != nil {
			return err
		}
		if !more {
			for _, id := range busy {
				w.fail(id, eventstore.Busy, "Somebody else has it, or its key, in hand.")
			}
			return nil
		}
		left = busy
	}
}

// try runs the command on messages; busy are those that others had in hand.
func (w *deadWork) try(ctx context.Context, ids []int64) (busy []int64, err error) {
	var statuses []int16
	sql, args := w.byID(w.ch, ids)
	if err := queryRow(ctx, w.db, sql, args, &statuses, &w.result.Position); err != nil {
		return nil, err
	}
	before := w.result.Done
	for i, s := range statuses {
		switch s {
		case deadDone:
			w.result.Done++
		case deadNot:
			w.fail(ids[i], eventstore.MessageNotDead, "It is not among the dead letters.")
		case deadUnknown:
			w.fail(ids[i], eventstore.MessageNotFound, "There is no such message in this queue.")
		case deadUnroutable:
			w.fail(ids[i], eventstore.Unroutable, "No link leads it anywhere.")
		case deadBusy:
			busy = append(busy, ids[i])
		}
	}
	w.did(w.result.Done - before)
	return busy, nil
}

func (w *deadWork) fail(id int64, code eventstore.Code, message string) {
	w.result.Failed = append(w.result.Failed, FailedMessage{ID: eventstore.MessageID(id), Code: code, Message: message})
}

// deadFilterSQL is a leat.dead_filter of the parameters from $2 on.
const deadFilterSQL = `row($2::text, $3::text, $4::timestamptz, $5::timestamptz, $6::bigint, $7::bigint)::leat.dead_filter`

// args are the parameters of deadFilterSQL. What died at start or later is left
// out, unless start is zero.
func (f *DeadLettersFilter) args(start time.Time) []any {
	if f == nil {
		f = &DeadLettersFilter{}
	}
	before := f.DiedBefore
	if !start.IsZero() && (before.IsZero() || start.Before(before)) {
		before = start
	}
	return []any{
		f.RoutingKey,
		pgtype.Text{String: f.Reason, Valid: f.Reason != ""},
		given(f.DiedAfter), given(before),
		pgtype.Int8{Int64: int64(f.FromID), Valid: f.FromID != 0},
		pgtype.Int8{Int64: int64(f.ToID), Valid: f.ToID != 0},
	}
}

// given is a time that may be missing.
func given(t time.Time) pgtype.Timestamptz { return pgtype.Timestamptz{Time: t, Valid: !t.IsZero()} }

// checkDead checks a choice.
func (b *Broker) checkDead(req DeadLetters) error {
	var f faults
	f.label("actor", req.Actor)
	ways := 0
	for _, given := range []bool{req.IDs != nil, req.Filter != nil, req.All} {
		if given {
			ways++
		}
	}
	switch {
	case ways != 1:
		return eventstore.NewError(eventstore.InvalidRequest, "The request needs one of ids, filter and all, and has %d.", ways)
	case req.IDs != nil && len(req.IDs) == 0:
		return eventstore.NewError(eventstore.BatchEmpty, "The request holds no ids.")
	case len(req.IDs) > b.cfg.Limits.DeadLetterIDs:
		return eventstore.NewError(eventstore.BatchTooLarge,
			"The request holds %d ids, more than %d.", len(req.IDs), b.cfg.Limits.DeadLetterIDs)
	}
	for i, id := range req.IDs {
		if id <= 0 {
			f.invalid(i, "ids", "must be greater than 0")
		}
	}
	if req.Filter != nil {
		req.Filter.check(&f)
	}
	return f.err()
}

func (f *DeadLettersFilter) check(faults *faults) {
	if *f == (DeadLettersFilter{}) {
		faults.invalid(-1, "filter", "chooses nothing: for all dead letters say so")
	}
	if f.RoutingKey != nil {
		faults.key(-1, "filter.routingKey", *f.RoutingKey)
	}
	if f.Reason != "" && !eventstore.IsDeathReason(f.Reason) {
		faults.invalid(-1, "filter.reason", "must be one of %s", strings.Join(eventstore.DeathReasons(), ", "))
	}
	if f.FromID < 0 {
		faults.invalid(-1, "filter.fromId", "must be greater than 0")
	}
	if f.ToID < 0 {
		faults.invalid(-1, "filter.toId", "must be greater than 0")
	}
}
