package eventstore

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Store reads the log of one database and keeps its partitions ahead of need.
type Store struct {
	// Logger is for Run. Default: slog.Default().
	Logger *slog.Logger

	pool *pgxpool.Pool
	gaps atomic.Pointer[string] // that were found last
}

// New makes a store on a migrated database.
func New(pool *pgxpool.Pool) *Store { return &Store{pool: pool} }

// querier is what a pool and a transaction have in common.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// settledPositionSQL runs apart from what is read up to it: a later statement
// sees everything that is committed below.
const settledPositionSQL = `-- eventstore.settledPosition
select leat.settled_position()`

// SettledPosition is the highest position up to which every event is committed
// or rolled back for good. Only an append that is itself still open holds it
// back; other transactions, however long, do not.
func (s *Store) SettledPosition(ctx context.Context) (Position, error) {
	return settledPosition(ctx, s.pool)
}

// SettledPositionTx is SettledPosition in a transaction. What is read up to it
// must be read by a later statement, and the isolation level must be read
// committed: an older snapshot does not hold all events below.
func (s *Store) SettledPositionTx(ctx context.Context, tx pgx.Tx) (Position, error) {
	return settledPosition(ctx, tx)
}

func settledPosition(ctx context.Context, db querier) (Position, error) {
	rows, err := db.Query(ctx, settledPositionSQL)
	if err != nil {
		return 0, FromPg(err)
	}
	position, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[Position])
	return position, FromPg(err)
}
