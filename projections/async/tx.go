package async

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/jackc/pgx/v5"
)

// beginner begins the transactions of watermill-sql's subscriber. Its own adapter
// for pgx would make them serializable, where the setting is read committed; would
// hide errors of rows and of commits; and would commit effects without their
// checkpoint when the subscriber is closed.
type beginner struct {
	wsql.Beginner
	runner *runner
}

// BeginTx begins a transaction for one batch, at read committed, which the two
// readings behind the settled position need.
func (b beginner) BeginTx(ctx context.Context, _ *sql.TxOptions) (wsql.Tx, error) {
	l := &look{}
	b.runner.look = l
	tx, err := b.runner.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return nil, fmt.Errorf("begin batch: %w", err)
	}
	t := &batchTx{ctx: ctx, runner: b.runner, tx: tx, look: l}
	if err := b.runner.step(ctx, tx, stepBegun); err != nil {
		return nil, errors.Join(err, t.Rollback())
	}
	return t, nil
}

// batchTx is the transaction of one batch. It commits only what has moved the
// checkpoint, and the subscriber cannot end it while the handler is at work.
type batchTx struct {
	ctx    context.Context //nolint:containedctx // Commit and Rollback of the interface have none
	runner *runner
	look   *look

	mu    sync.Mutex
	tx    pgx.Tx
	moved bool // the checkpoint
	ended bool
}

// errEnded is what a handler gets that comes late.
var errEnded = errors.New("the transaction of the batch has ended")

// work runs the handler. What fails is told by the next statement of the subscriber:
// a nack would only send the message again, into the same transaction.
func (t *batchTx) work(f func(pgx.Tx) error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return
	}
	if err := f(t.tx); err != nil {
		t.look.fail(err)
	}
}

// ExecContext is how the subscriber moves the checkpoint, the only thing that it
// executes.
func (t *batchTx) ExecContext(ctx context.Context, query string, args ...any) (wsql.Result, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return nil, errEnded
	}
	if t.look.problem != nil {
		return nil, t.look.problem
	}
	tag, err := t.tx.Exec(ctx, query, args...)
	if err == nil && tag.RowsAffected() != 1 {
		err = errors.New("the checkpoint has not moved")
	}
	if err != nil {
		return nil, err
	}
	t.moved = true
	if err := t.runner.step(ctx, t.tx, stepMoved); err != nil {
		return nil, err
	}
	return wsql.PgxResult{CommandTag: tag}, nil
}

// QueryContext is how the subscriber fetches.
func (t *batchTx) QueryContext(ctx context.Context, query string, args ...any) (wsql.Rows, error) {
	rows, err := t.tx.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return &batchRows{Rows: rows, look: t.look}, nil
}

// Commit commits, or gives up what has no checkpoint. The subscriber only logs its
// error, so the look keeps it.
func (t *batchTx) Commit() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return errEnded
	}
	t.ended = true
	if !t.moved {
		return t.tx.Rollback(context.WithoutCancel(t.ctx))
	}
	if err := t.tx.Commit(t.ctx); err != nil {
		t.look.fail(fmt.Errorf("commit batch: %w", err))
		return err
	}
	if err := t.runner.step(t.ctx, nil, stepCommitted); err != nil {
		t.look.fail(err)
	}
	return nil
}

// Rollback gives it up. It waits for the handler.
func (t *batchTx) Rollback() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return nil
	}
	t.ended = true
	return t.tx.Rollback(context.WithoutCancel(t.ctx))
}

// batchRows keep the error that ended them, which the subscriber does not ask for.
type batchRows struct {
	pgx.Rows
	look *look
}

// Next is false at the end, and at an error.
func (r *batchRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	if err := r.Err(); err != nil {
		r.look.fail(fmt.Errorf("fetch batch: %w", err))
	}
	return false
}

// Close closes them.
func (r *batchRows) Close() error {
	r.Rows.Close()
	return nil
}
