package queries

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"leat/eventstore"
)

// Limits of pages.
const (
	DefaultLimit = 100
	MaxLimit     = 1000
)

// rebuildingRetry is when to ask again while the views are rebuilt.
const rebuildingRetry = time.Second

// Queries reads through a pool.
type Queries struct {
	pool    *pgxpool.Pool
	folding chan struct{} // full while a look into the past reads the log
}

// New reads through the pool.
func New(pool *pgxpool.Pool) *Queries { return &Queries{pool: pool, folding: make(chan struct{}, 1)} }

const lockTimeoutSQL = `-- queries.lockTimeout
select set_config('lock_timeout', $1, true)`

const lockViewsSQL = `-- queries.lockViews
lock table leat.views_alive, leat.queue_runs in access share mode`

// Queue tables swing between empty and full: a plan must not. And whoever looks
// takes one processor.
const plansSQL = `-- queries.plans
select set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true),
       set_config('max_parallel_workers_per_gather', '0', true),
       set_config('jit', 'off', true)`

const viewsAliveSQL = `-- queries.viewsAlive
select leat.views_alive()`

// readViews runs read in one snapshot in which the queue views are whole. The
// lock comes before the snapshot: a rebuild truncates, and a snapshot does not
// protect from that.
func (q *Queries) readViews(ctx context.Context, read func(pgx.Tx) error) error {
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err := pgx.BeginTxFunc(ctx, q.pool, options, func(tx pgx.Tx) error {
		var alive bool
		batch := &pgx.Batch{}
		batch.Queue(lockTimeoutSQL, "2s")
		batch.Queue(plansSQL)
		batch.Queue(lockViewsSQL)
		batch.Queue(viewsAliveSQL).QueryRow(func(row pgx.Row) error { return row.Scan(&alive) })
		if err := tx.SendBatch(ctx, batch).Close(); err != nil {
			return err
		}
		if !alive {
			return rebuilding()
		}
		return read(tx)
	})
	return eventstore.FromPg(err)
}

// one is for queries whose row may not be there.
func one[T any](rows pgx.Rows, scan pgx.RowToFunc[T], missing *eventstore.Error) (T, error) {
	v, err := pgx.CollectExactlyOneRow(rows, scan)
	if errors.Is(err, pgx.ErrNoRows) {
		return v, missing
	}
	return v, err
}

func rebuilding() *eventstore.Error {
	e := eventstore.NewError(eventstore.ViewsRebuilding, "The queue views are being rebuilt from the log; try again soon.")
	e.RetryAfter = rebuildingRetry
	return e
}

func channelNotFound(name string) *eventstore.Error {
	return eventstore.NewError(eventstore.ChannelNotFound, "There is no channel %q.", name)
}

func invalid(field, format string, args ...any) *eventstore.Error {
	e := eventstore.NewError(eventstore.InvalidField, format, args...)
	e.Field = field
	return e
}

// checkLimit gives the number of rows to read; 0 asks for the default.
func checkLimit(limit int) (int, error) {
	switch {
	case limit == 0:
		return DefaultLimit, nil
	case limit < 0 || limit > MaxLimit:
		return 0, invalid("limit", "must be from 1 to %d", MaxLimit)
	default:
		return limit, nil
	}
}

// checkText refuses what the server cannot take as text.
func checkText(field, text string) error {
	if strings.IndexByte(text, 0) >= 0 || !utf8.ValidString(text) {
		return invalid(field, "must be UTF-8 without NUL")
	}
	return nil
}

// optional makes the parameter of a filter: null for none.
func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func collect[T any](ctx context.Context, tx querier, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scan)
}

// querier is a pool, a connection or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, eventstore.FromPg(err))...)
}
