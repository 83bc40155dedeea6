package projections

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const setDurableSQL = `-- projections.set_durable
select leat.set_durable_views($1)`

// SetDurable makes the views survive a crash of PostgreSQL, at the cost of WAL
// for each of their changes, or undoes that; it reports whether that was news. A
// change writes the views anew while polls, settlements and publishes wait. It
// gives up after 5 seconds when somebody's open transaction is in the way.
func (v *Views) SetDurable(ctx context.Context, durable bool) (changed bool, err error) {
	err = pgx.BeginFunc(ctx, v.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "set local lock_timeout = '5s'"); err != nil {
			return err
		}
		return tx.QueryRow(ctx, setDurableSQL, durable).Scan(&changed)
	})
	if err != nil {
		return false, fmt.Errorf("set durability of queue views: %w", err)
	}
	return changed, nil
}
