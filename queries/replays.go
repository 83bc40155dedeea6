package queries

import (
	"context"
	"math"

	"github.com/jackc/pgx/v5"

	"leat/eventstore"
)

// ReplaysFilter chooses a page of replays.
type ReplaysFilter struct {
	Cursor string // from an earlier page
	Limit  int    // 1 to MaxLimit; 0 is DefaultLimit
}

const replaysSQL = `-- queries.Replays
select ` + eventstore.ReplayColumns + `
from leat.replays r
where r.id < $1
order by r.id desc
limit $2`

// Replays lists what was published again, or is, the last one first. The second
// result is the cursor of the next page, "" on the last.
func (q *Queries) Replays(ctx context.Context, f ReplaysFilter) (page []eventstore.Replay, next string, err error) {
	before, limit, err := checkPage(f.Cursor, f.Limit)
	if err != nil {
		return nil, "", err
	}
	if before == 0 {
		before = math.MaxInt64
	}
	page, err = collect(ctx, q.pool, scanReplay, replaysSQL, before, limit+1)
	if err != nil {
		return nil, "", wrap(err, "list replays")
	}
	if len(page) > limit {
		page = page[:limit]
		next = cursor(page[limit-1].ID).String()
	}
	return page, next, nil
}

const replaySQL = `-- queries.ReplayState
select ` + eventstore.ReplayColumns + `
from leat.replays r
where r.id = $1`

// ReplayState is how far a replay is.
func (q *Queries) ReplayState(ctx context.Context, id eventstore.Position) (eventstore.Replay, error) {
	rows, err := q.pool.Query(ctx, replaySQL, id)
	if err != nil {
		return eventstore.Replay{}, wrap(err, "look at replay %d", id)
	}
	r, err := one(rows, scanReplay, eventstore.NewError(eventstore.ReplayNotFound, "There is no replay %d.", id))
	return r, wrap(err, "look at replay %d", id)
}

func scanReplay(row pgx.CollectableRow) (r eventstore.Replay, err error) {
	return r, row.Scan(r.Columns()...)
}
