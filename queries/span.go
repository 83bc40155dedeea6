package queries

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"leat/eventstore"
)

// A page of a filtered log looks at so many events at most: a tenth of a second
// of work when they have to come from disk.
const (
	windowEvents  = 50_000 // of the log
	windowBatches = 10_000 // of the batch events of a channel
)

// Times follow positions, but for transactions that waited for a lock between
// reading the clock and drawing the position. An event that waited longer than
// this is not found by its time.
const clockSlack = time.Minute

// span is where the events of a filter lie: low to high, both inclusive.
func (q *Queries) span(ctx context.Context, f EventsFilter) (low, high eventstore.Position, err error) {
	low = max(f.From, eventstore.Position(f.MessageID), 1)
	// Read before the events, in a statement of its own.
	if high, err = eventstore.New(q.pool).SettledPosition(ctx); err != nil {
		return 0, 0, err
	}
	if f.To > 0 {
		high = min(high, f.To)
	}
	end := high + 1
	if !f.Since.IsZero() {
		if low, err = q.firstSince(ctx, f.Since.Add(-clockSlack), low, end); err != nil {
			return 0, 0, err
		}
	}
	if !f.Until.IsZero() {
		if end, err = q.firstSince(ctx, f.Until.Add(clockSlack), low, end); err != nil {
			return 0, 0, err
		}
	}
	return low, end - 1, nil
}

// The latest of a few neighbours, since a single one may have waited.
const probeSQL = `-- queries.firstSince
select coalesce(max(e.position), 0),
       coalesce(max(e.at), 'epoch')
from (
    select e.position, e.at
    from leat.events e
    where e.position between $1 and $2
    order by e.position desc
    limit 20
) e`

// firstSince bisects for the first position in low..end-1 up to which anything
// is not older than at; end when all of it is.
func (q *Queries) firstSince(ctx context.Context, at time.Time, low, end eventstore.Position) (eventstore.Position, error) {
	for low < end {
		var (
			middle = low + (end-low)/2
			last   eventstore.Position // up to middle; 0 when nothing is there
			latest time.Time
		)
		err := q.pool.QueryRow(ctx, probeSQL, low, middle).Scan(&last, &latest)
		switch {
		case err != nil:
			return 0, err
		case last == 0 || latest.Before(at):
			low = middle + 1
		default:
			end = last
		}
	}
	return low, nil
}

const windowSQL = `-- queries.window
select e.position
from leat.events e
where e.position between $1 and $2
order by e.position
offset $3
limit 1`

// Channel by channel: only then does the index events_batches know the order. The
// channel is compared as part of a row: else the primary key has the order too, and
// leads through the whole log. The lower position once more, for the partitions:
// not as a number, of which the planner would think that little lies beyond it.
const batchWindowSQL = `-- queries.batchWindow
select min(coalesce(w.position, $2))
from unnest($4::integer[]) c (id)
left join lateral (
    select e.position
    from leat.events e
    where (e.channel_id, e.position) between (c.id, $1) and (c.id, $2)
      and e.position >= (select $1::bigint)
      and e.message_ids is not null
    order by e.channel_id, e.position
    offset $3
    limit 1
) w on true`

// windowEnd is the last position from low on that a page of the filter looks at.
func (q *Queries) windowEnd(
	ctx context.Context, f EventsFilter, channels []eventstore.ChannelID, low, high eventstore.Position,
) (end eventstore.Position, err error) {
	if f.onlyBatches() {
		err = q.pool.QueryRow(ctx, batchWindowSQL, low, high, windowBatches-1, int32s(channels)).Scan(&end)
	} else {
		err = q.pool.QueryRow(ctx, windowSQL, low, high, windowEvents-1).Scan(&end)
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return high, nil
	}
	return end, err
}
