package queries

import (
	"context"
	"errors"
	"slices"
	"strings"
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
	RoutingKey   *string // of message.published, and what else is of one key; nil is any
	Cursor       string  // from an earlier page
	Limit        int     // 1 to MaxLimit; 0 is DefaultLimit
}

const eventsSQL = `-- queries.Events
` + chosenSQL + `
        select e.*
        from leat.events e
        where e.position between $1 and $2` + choiceSQL + `
          and ($5::integer[] is null or e.channel_id = any ($5))
        order by e.position
        limit $9` + endOfChosenSQL

// Batch events of channels have an index, events_batches: see batchWindowSQL.
const batchEventsSQL = `-- queries.batchEvents
` + chosenSQL + `
        select b.*
        from unnest($5::integer[]) c (id)
        cross join lateral (
            select e.*
            from leat.events e
            where (e.channel_id, e.position) between (c.id, $1) and (c.id, $2)
              and e.position >= (select $1::bigint)
              and e.message_ids is not null` + choiceSQL + `
            order by e.channel_id, e.position
            limit $9
        ) b
        order by b.position
        limit $9` + endOfChosenSQL

const chosenSQL = `select ` + eventColumns + `,
       e.total
from (
    select p.*,
           count(*) over () as total,
           sum(coalesce(octet_length(p.payload), 0) + coalesce(pg_column_size(p.headers), 0) + coalesce(pg_column_size(p.message_ids), 0)
               + coalesce(pg_column_size(p.message_ranges), 0) + coalesce(pg_column_size(p.data), 0))
               over (order by p.position rows between unbounded preceding and 1 preceding) as before
    from (`

const choiceSQL = `
          and ($3::timestamptz is null or e.at >= $3)
          and ($4::timestamptz is null or e.at < $4)
          and ($6::text[] is null or e.kind = any ($6::text[]::leat.event_kind[]))
          and ($7::text is null or e.actor = $7)
          and ($8::text is null or e.routing_key = $8)`

const endOfChosenSQL = `
    ) p
) e
left join leat.channels c on c.id = e.channel_id
where coalesce(e.before, 0) < $10
order by e.position`

const channelIDsSQL = `-- queries.channelIDs
select c.id
from leat.channels c
where c.name = $1`

// Events reads a page of the log, up to the settled position. The second result
// is the cursor of the next page, "" on the last. What a page looks at is
// bounded: one of a filter that chooses little may be empty and not the last.
func (q *Queries) Events(ctx context.Context, f EventsFilter) (page []Event, next string, err error) {
	after, limit, err := checkPage(f.Cursor, f.Limit)
	if err != nil {
		return nil, "", err
	}
	if err := f.check(); err != nil {
		return nil, "", err
	}
	f.From = max(f.From, eventstore.Position(after)+1)
	page, next, err = q.events(ctx, f, limit)
	return page, next, wrap(err, "read the log")
}

func (f EventsFilter) check() error {
	err := errors.Join(checkText("channel", f.Channel), checkText("actor", f.Actor))
	if f.RoutingKey != nil {
		err = errors.Join(err, checkText("routingKey", *f.RoutingKey))
	}
	return err
}

func (q *Queries) events(ctx context.Context, f EventsFilter, limit int) (page []Event, next string, err error) {
	low, high, err := q.span(ctx, f)
	if err != nil {
		return nil, "", err
	}
	channels, err := q.channelsNamed(ctx, f.Channel)
	if err != nil || low > high {
		return nil, "", err
	}
	if f.MessageID != 0 {
		return q.eventsOfMessage(ctx, f, low, high, channels, limit)
	}
	end := high
	if f.chooses() {
		if end, err = q.windowEnd(ctx, f, channels, low, high); err != nil {
			return nil, "", err
		}
	}
	sql := eventsSQL
	if f.onlyBatches() {
		sql = batchEventsSQL
	}
	rows, err := collect(ctx, q.pool, withTotal(scanSizedEvent), sql, low, end, optionalTime(f.Since), optionalTime(f.Until),
		int32s(channels), kindNames(f.Kinds), optional(f.Actor), f.RoutingKey, limit+1, pageBytes)
	if err != nil {
		return nil, "", err
	}
	page, next = cut(rows, limit, func(e Event) int64 { return int64(e.Position) })
	if next == "" && end < high {
		next = cursor(end).String()
	}
	return page, next, nil
}

// channelsNamed are the channels that have the name, or had it; none for "".
func (q *Queries) channelsNamed(ctx context.Context, name string) ([]eventstore.ChannelID, error) {
	if name == "" {
		return nil, nil
	}
	channels, err := collect(ctx, q.pool, pgx.RowTo[eventstore.ChannelID], channelIDsSQL, name)
	if err == nil && len(channels) == 0 {
		return nil, channelNotFound(name)
	}
	return channels, err
}

// eventsOfMessage chooses from the history of a message, which is short.
func (q *Queries) eventsOfMessage(
	ctx context.Context, f EventsFilter, low, high eventstore.Position, channels []eventstore.ChannelID, limit int,
) (page []Event, next string, err error) {
	b, err := q.beginning(ctx, f.MessageID)
	if err != nil || b == nil {
		return nil, "", err
	}
	err = q.eachEvent(ctx, b, func(e Event) bool {
		switch {
		case e.Position < low || !f.takes(e, channels):
		case len(page) == limit:
			next = cursor(page[limit-1].Position).String()
		default:
			page = append(page, e)
		}
		return e.Position < high && next == ""
	})
	return page, next, err
}

// takes is what eventsSQL says of an event, but for its position.
func (f EventsFilter) takes(e Event, channels []eventstore.ChannelID) bool {
	return (f.Since.IsZero() || !e.At.Before(f.Since)) &&
		(f.Until.IsZero() || e.At.Before(f.Until)) &&
		(f.Channel == "" || slices.Contains(channels, e.ChannelID)) &&
		(len(f.Kinds) == 0 || slices.Contains(f.Kinds, e.Kind)) &&
		(f.Actor == "" || e.Actor == f.Actor) &&
		(f.RoutingKey == nil || (e.RoutingKey != nil && *e.RoutingKey == *f.RoutingKey))
}

// chooses reports whether there may be much between two events of the choice.
func (f EventsFilter) chooses() bool {
	return f.Channel != "" || len(f.Kinds) > 0 || f.Actor != "" || f.RoutingKey != nil
}

// onlyBatches reports whether the choice is of batch events of a channel.
func (f EventsFilter) onlyBatches() bool {
	return f.Channel != "" && len(f.Kinds) > 0 && !slices.ContainsFunc(f.Kinds, func(k eventstore.Kind) bool {
		return k == eventstore.MessagePublished || !strings.HasPrefix(string(k), "message.")
	})
}

func optionalTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
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
