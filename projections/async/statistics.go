package async

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Statistics counts what happens in each channel in each minute, and keeps sketches of
// the latencies of its messages.
type Statistics struct{}

// Name is "statistics".
func (Statistics) Name() string { return "statistics" }

// Version is that of its code.
func (Statistics) Version() int { return 1 }

// Apply reads the range, folds it in memory over the rows that it touches, and writes
// these: three round trips.
func (Statistics) Apply(ctx context.Context, tx pgx.Tx, r Range) error {
	first, then, err := readLog(ctx, tx, r)
	if err != nil {
		return err
	}
	if len(first) == 0 && len(then) == 0 {
		return nil
	}
	f := newFold(first, then)
	if err := f.load(ctx, tx, r.Generation); err != nil {
		return err
	}
	if err := f.fold(first, then); err != nil {
		return err
	}
	return f.save(ctx, tx, r.Generation)
}

const (
	dropMinutesSQL = `-- async.dropMinutes
delete from leat.channel_minutes m
where m.ctid = any (array(
    select x.ctid
    from leat.channel_minutes x
    where x.generation = $1
    limit 10000))`
	dropPendingSQL = `-- async.dropPending
delete from leat.pending_messages m
where m.ctid = any (array(
    select x.ctid
    from leat.pending_messages x
    where x.generation = $1
    limit 10000))`
)

// Drop removes rows of a generation.
func (Statistics) Drop(ctx context.Context, tx pgx.Tx, generation int) (removed int64, err error) {
	return dropFrom(ctx, tx, generation, dropMinutesSQL, dropPendingSQL)
}

func dropFrom(ctx context.Context, tx pgx.Tx, generation int, statements ...string) (removed int64, err error) {
	for _, sql := range statements {
		tag, err := tx.Exec(ctx, sql, generation)
		if err != nil {
			return 0, err
		}
		removed += tag.RowsAffected()
	}
	return removed, nil
}
