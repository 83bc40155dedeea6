package queries

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"leat/eventstore"
)

// Projection is a generation of an asynchronous projection.
type Projection struct {
	Name           string
	Generation     int
	Version        int    // of the code that makes it
	State          string // live, building or retired
	Stopped        bool
	Position       eventstore.Position // up to where the log is in it
	Settled        eventstore.Position // up to where it could be
	MovedAt        time.Time
	Lag            time.Duration // age of the first event that is not in it
	FailedPosition *eventstore.Position
	FailedAt       *time.Time
	Error          string
}

const projectionsSQL = `-- queries.Projections
select p.name,
       p.generation,
       p.version,
       p.state,
       p.stopped,
       p.position,
       greatest(s.settled, p.position),
       p.moved_at,
       greatest(coalesce(clock_timestamp() - n.at, '0'), '0'),
       p.failed_position,
       p.failed_at,
       coalesce(p.error, '')
from (select leat.settled_position() as settled) s
cross join leat.projections p
left join lateral (
    select e.at
    from leat.events e
    where e.position > p.position
      and e.position <= s.settled
    order by e.position
    limit 1
) n on true
order by p.name, p.generation`

// Projections lists the asynchronous projections with their lag.
func (q *Queries) Projections(ctx context.Context) ([]Projection, error) {
	list, err := collect(ctx, q.pool, pgx.RowToStructByPos[Projection], projectionsSQL)
	return list, wrap(err, "list projections")
}

const livePositionSQL = `-- queries.livePosition
select coalesce(max(p.position), 0)
from leat.projections p
where p.name = $1
  and p.state = 'live'`

// How often a query looks whether a projection has come far enough.
const arrivalLook = 25 * time.Millisecond

// Arrive waits until queries of an asynchronous projection see everything of the log up
// to a position: what a command answered, so that one reads what one wrote. It waits
// no longer than patience, and answers how far the projection is.
func (q *Queries) Arrive(ctx context.Context, projection string, at eventstore.Position, patience time.Duration) (eventstore.Position, error) {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		var position eventstore.Position
		if err := q.pool.QueryRow(ctx, livePositionSQL, projection).Scan(&position); err != nil {
			return 0, wrap(err, "look how far %s is", projection)
		}
		if position >= at {
			return position, nil
		}
		select {
		case <-ctx.Done():
			return position, ctx.Err()
		case <-deadline.C:
			e := eventstore.NewError(eventstore.Busy, "The projection %s is at position %d; it has not come to %d yet.", projection, position, at)
			e.RetryAfter = time.Second
			return position, e
		case <-time.After(arrivalLook):
		}
	}
}
