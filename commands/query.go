package commands

import (
	"context"

	"github.com/jackc/pgx/v5"

	"leat/eventstore"
)

// querier is what a pool and a transaction have in common.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// queryRow runs a statement that answers one row and maps its errors; no
// targets means that the answer does not matter. Without a row it answers
// pgx.ErrNoRows.
func queryRow(ctx context.Context, db querier, sql string, args []any, targets ...any) error {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return eventstore.FromPg(err)
	}
	_, err = pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (struct{}, error) {
		if len(targets) == 0 {
			return struct{}{}, nil
		}
		return struct{}{}, row.Scan(targets...)
	})
	return eventstore.FromPg(err)
}
