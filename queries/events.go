package queries

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"leat/eventstore"
)

// EventsFilter chooses events of the log. Every field narrows the choice; what
// is zero does not.
type EventsFilter struct {
	From, To     eventstore.Position // inclusive
	Since, Until time.Time           // Since inclusive, Until exclusive
	Channel      string              // also deleted ones that had the name
	Kinds        []eventstore.Kind
	MessageID    eventstore.MessageID
	Actor        string
	Cursor       string // from an earlier page
	Limit        int    // 1 to MaxLimit; 0 is DefaultLimit
}

const eventsSQL = `-- queries.Events
select ` + eventColumns + `,
       e.total
from (
    select p.*,
           count(*) over () as total,
           sum(octet_length(p.payload)) over (order by p.position rows between unbounded preceding and 1 preceding) as before
    from (
        select e.*
        from leat.events e
        where e.position between $1 and $2
          and ($3::timestamptz is null or e.at >= $3)
          and ($4::timestamptz is null or e.at < $4)
          and ($5::integer[] is null or e.channel_id = any ($5))
          and ($6::text[] is null or e.kind = any ($6::text[]::leat.event_kind[]))
          and ($7::bigint is null or e.position = $7 or $7 = any (e.message_ids))
          and ($8::text is null or e.actor = $8)
        order by e.position
        limit $9
    ) p
) e
left join leat.channels c on c.id = e.channel_id
where coalesce(e.before, 0) < $10
order by e.position`

const settledSQL = `-- queries.settled
select leat.settled_position()`

const channelIDsSQL = `-- queries.channelIDs
select c.id
from leat.channels c
where c.name = $1`

// Events reads a page of the log, up to the settled position. The second result
// is the cursor of the next page, "" on the last.
func (q *Queries) Events(ctx context.Context, f EventsFilter) (page []Event, next string, err error) {
	after, limit, err := checkPage(f.Cursor, f.Limit)
	if err != nil {
		return nil, "", err
	}
	if err := errors.Join(checkText("channel", f.Channel), checkText("actor", f.Actor)); err != nil {
		return nil, "", err
	}
	rows, err := q.events(ctx, f, after, limit)
	if err != nil {
		return nil, "", wrap(err, "read the log")
	}
	page, next = cut(rows, limit, func(e Event) int64 { return int64(e.Position) })
	return page, next, nil
}

func (q *Queries) events(ctx context.Context, f EventsFilter, after cursor, limit int) ([]sized[Event], error) {
	low := max(f.From, eventstore.Position(after)+1, eventstore.Position(f.MessageID), 1)
	high, err := q.number(ctx, settledSQL)
	if err != nil {
		return nil, err
	}
	if f.To > 0 {
		high = min(high, f.To)
	}
	if low, high, err = q.between(ctx, f, low, high); err != nil || low > high {
		return nil, err
	}
	var channels []eventstore.ChannelID
	if f.Channel != "" {
		channels, err = collect(ctx, q.pool, pgx.RowTo[eventstore.ChannelID], channelIDsSQL, f.Channel)
		if err != nil {
			return nil, err
		}
		if len(channels) == 0 {
			return nil, channelNotFound(f.Channel)
		}
	}
	return collect(ctx, q.pool, withTotal(scanSizedEvent), eventsSQL, low, high, optionalTime(f.Since), optionalTime(f.Until),
		channels, kindNames(f.Kinds), optionalID(f.MessageID), optional(f.Actor), limit+1, pageBytes)
}

// between narrows the positions by the times. Times follow positions but for
// the moment between the two draws, hence the slack.
func (q *Queries) between(ctx context.Context, f EventsFilter, low, high eventstore.Position) (from, to eventstore.Position, err error) {
	const slack = 10 * time.Second
	from, to = low, high
	if !f.Since.IsZero() {
		if from, err = q.firstSince(ctx, f.Since.Add(-slack), low, high); err != nil {
			return 0, 0, err
		}
	}
	if !f.Until.IsZero() {
		if to, err = q.firstSince(ctx, f.Until.Add(slack), from, high); err != nil {
			return 0, 0, err
		}
	}
	return from, min(to, high), nil
}

const probeSQL = `-- queries.firstSince
select e.position, e.at
from leat.events e
where e.position between $1 and $2
order by e.position
limit 1`

// firstSince bisects for the first position in low..high that is not older than
// at; high + 1 when there is none.
func (q *Queries) firstSince(ctx context.Context, at time.Time, low, high eventstore.Position) (eventstore.Position, error) {
	end := high + 1
	for low < end {
		middle := low + (end-low)/2
		found, when, err := q.probe(ctx, middle, end-1)
		switch {
		case err != nil:
			return 0, err
		case found == 0 || !when.Before(at):
			end = middle
		default:
			low = found + 1
		}
	}
	return low, nil
}

// probe finds the first event in low..high; position 0 when there is none.
func (q *Queries) probe(ctx context.Context, low, high eventstore.Position) (found eventstore.Position, at time.Time, err error) {
	err = q.pool.QueryRow(ctx, probeSQL, low, high).Scan(&found, &at)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, time.Time{}, nil
	}
	return found, at, err
}

func (q *Queries) number(ctx context.Context, sql string) (n eventstore.Position, err error) {
	err = q.pool.QueryRow(ctx, sql).Scan(&n)
	return n, err
}

func optionalTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func optionalID(id eventstore.MessageID) *eventstore.MessageID {
	if id == 0 {
		return nil
	}
	return &id
}

func kindNames(kinds []eventstore.Kind) []string {
	if len(kinds) == 0 {
		return nil
	}
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = string(k)
	}
	return names
}
