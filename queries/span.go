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

const endsSQL = `-- queries.ends
select leat.settled_position(),
       s.last_value,
       coalesce((select b.first_position from leat.log_begin b), 1)
from leat.position_seq s`

// span is where the events of a filter lie: low to high, both inclusive. It is to be
// known before they are read, in a statement of its own. A cursor, or a beginning,
// that the log has not reached is refused.
func (q *Queries) span(ctx context.Context, f *EventsFilter, after eventstore.Position) (reach, error) {
	var low, high, drawn, begin eventstore.Position
	err := q.pool.QueryRow(ctx, endsSQL).Scan(&high, &drawn, &begin)
	if err != nil {
		return reach{}, err
	}
	if f.From > drawn+1 || after > drawn {
		return reach{}, eventstore.NewError(eventstore.PositionAhead, "The log has not come so far: its last position is %d.", drawn)
	}
	if f.beginsBefore(begin, after) {
		return reach{}, eventsGone(begin)
	}
	low = max(f.From, eventstore.Position(f.MessageID), begin)
	if f.To > 0 {
		high = min(high, f.To)
	}
	switch {
	case after == 0:
	case f.Backwards:
		high = min(high, after-1)
	default:
		low = max(low, after+1)
	}
	end := high + 1
	if !f.Since.IsZero() {
		if low, err = q.firstSince(ctx, f.Since.Add(-clockSlack), low, end); err != nil {
			return reach{}, err
		}
	}
	if !f.Until.IsZero() {
		if end, err = q.firstSince(ctx, f.Until.Add(clockSlack), low, end); err != nil {
			return reach{}, err
		}
	}
	return reach{low, end - 1}, q.whole(ctx, low, end-1)
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

const windowBackSQL = `-- queries.windowBack
select e.position
from leat.events e
where e.position between $1 and $2
order by e.position desc
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
    select e.position` + windowBatchesSQL + `
    order by e.channel_id, e.position
    offset $3
    limit 1
) w on true`

const batchWindowBackSQL = `-- queries.batchWindowBack
select max(coalesce(w.position, $1))
from unnest($4::integer[]) c (id)
left join lateral (
    select e.position` + windowBatchesSQL + `
    order by e.channel_id desc, e.position desc
    offset $3
    limit 1
) w on true`

const windowBatchesSQL = `

    from leat.events e
    where (e.channel_id, e.position) between (c.id, $1) and (c.id, $2)
      and e.position >= (select $1::bigint)
      and e.message_ids is not null`

// nextWindow is the first or, backwards, the last part of what is left: what is looked
// at in one go.
func (r *Replay) nextWindow(ctx context.Context) (reach, error) {
	sql, size := windowSQL, windowEvents
	switch {
	case r.filter.onlyBatches() && r.filter.Backwards:
		sql, size = batchWindowBackSQL, windowBatches
	case r.filter.onlyBatches():
		sql, size = batchWindowSQL, windowBatches
	case r.filter.Backwards:
		sql = windowBackSQL
	}
	args := []any{r.all.low, r.all.high, size - 1}
	if r.filter.onlyBatches() {
		args = append(args, int32s(r.channels))
	}
	var end eventstore.Position
	err := r.queries.pool.QueryRow(ctx, sql, args...).Scan(&end)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return r.all, nil
	case r.filter.Backwards:
		return reach{end, r.all.high}, err
	default:
		return reach{r.all.low, end}, err
	}
}
