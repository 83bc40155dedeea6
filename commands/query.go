package commands

import (
	"context"

	"github.com/jackc/pgx/v5"

	"leat/eventstore"
)

// querier is what a pool and a transaction have in common.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults
}

// statement is a call of one SQL function and what becomes of its answer. What
// read took in counts only if there is no error, also of the commit.
type statement struct {
	sql  string
	args []any
	read func(pgx.Rows) error
}

// oneRow is a statement that answers one row; no targets means that the answer
// does not matter. Without a row the error is pgx.ErrNoRows.
func oneRow(sql string, args []any, targets ...any) statement {
	return statement{sql: sql, args: args, read: func(rows pgx.Rows) error {
		_, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (struct{}, error) {
			if len(targets) == 0 {
				return struct{}{}, nil
			}
			return struct{}{}, row.Scan(targets...)
		})
		return err
	}}
}

// then adds what to do with the answer.
func (s statement) then(do func() error) statement {
	read := s.read
	s.read = func(rows pgx.Rows) error {
		if err := read(rows); err != nil {
			return err
		}
		return do()
	}
	return s
}

// run runs statements in one round trip and, unless db is a transaction, in one
// of their own.
func run(ctx context.Context, db querier, statements ...statement) error {
	if len(statements) == 1 {
		one := statements[0]
		rows, err := db.Query(ctx, one.sql, one.args...)
		if err == nil {
			err = one.read(rows)
		}
		return eventstore.FromPg(err)
	}
	batch := &pgx.Batch{}
	for _, s := range statements {
		batch.Queue(s.sql, s.args...).Query(s.read)
	}
	return eventstore.FromPg(db.SendBatch(ctx, batch).Close())
}

// queryRow runs a statement that answers one row and maps its errors.
func queryRow(ctx context.Context, db querier, sql string, args []any, targets ...any) error {
	return run(ctx, db, oneRow(sql, args, targets...))
}
