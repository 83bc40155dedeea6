package migrations

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// lockKey names the advisory lock of the runner: "leat.mig" in ASCII.
const lockKey int64 = 0x6c6561742e6d6967

const (
	tryLockTxSQL = `-- migrations.tryLockTx
select pg_try_advisory_xact_lock($1)`

	tryLockSQL = `-- migrations.tryLock
select pg_try_advisory_lock($1)`

	unlockSQL = `-- migrations.unlock
select pg_advisory_unlock($1)`
)

// querier is a pool or a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// lockTx begins a transaction that holds the migration lock until its end.
func lockTx(ctx context.Context, pool *pgxpool.Pool) (pgx.Tx, error) {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return nil, err
	}
	err = poll(ctx, func() (locked bool, err error) {
		err = tx.QueryRow(ctx, tryLockTxSQL, lockKey).Scan(&locked)
		return locked, err
	})
	if err != nil {
		rollback(ctx, tx)
		return nil, fmt.Errorf("take migration lock: %w", err)
	}
	return tx, nil
}

// rollback ends a transaction that may have been committed already.
func rollback(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	// An error means that the connection is gone, and its transaction with it.
	_ = tx.Rollback(ctx)
}

// sessionLocker gives goose the migration lock for the session it works in.
type sessionLocker struct{}

// SessionLock implements lock.SessionLocker of goose.
func (sessionLocker) SessionLock(ctx context.Context, conn *sql.Conn) error {
	return poll(ctx, func() (locked bool, err error) {
		err = conn.QueryRowContext(ctx, tryLockSQL, lockKey).Scan(&locked)
		return locked, err
	})
}

// SessionUnlock implements lock.SessionLocker of goose.
func (sessionLocker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var held bool
	return conn.QueryRowContext(ctx, unlockSQL, lockKey).Scan(&held)
}

// poll calls try until it says true, with some jitter between calls.
func poll(ctx context.Context, try func() (bool, error)) error {
	for {
		if done, err := try(); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20*time.Millisecond + rand.N(30*time.Millisecond)):
		}
	}
}
