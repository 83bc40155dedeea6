package queries

import (
	"context"
	"errors"
	"math"

	"github.com/jackc/pgx/v5"

	"leat/eventstore"
)

// Event is an event of the log with the name of its channel.
type Event struct {
	eventstore.Event
	Channel string // "" when it concerns none
}

// Step by step, and no more of them than a page has, from the publish or from
// the last event of the page before, through the batch events of the channel, on
// the index events_batches, and not past the event that ends the message. An expiry ends
// it too, unless the queue dead-letters what expires: that event has the same
// time, so whatever is clearly later tells that it did not come. What a message
// that is still waiting costs is one index entry and one list of ids for each
// batch event of its channel since it was published.
const historySQL = `-- queries.History
with recursive steps as (
    (
        select e.position, e.kind, e.at, e.channel_id, true as named
        from leat.events e
        where e.position = greatest($1, $3::bigint)
          and (e.kind = 'message.published' or $1 = any (e.message_ids))
    )
    union all
    select n.position, n.kind, n.at, n.channel_id, n.named
    from steps s
    cross join lateral (
        select b.position, b.kind, b.at, b.channel_id, $1 = any (b.message_ids) as named
        from leat.events b
        where b.channel_id = s.channel_id
          and b.position > s.position
          and b.position <= $2
          and b.message_ids is not null
          and ($1 = any (b.message_ids) or (s.kind = 'message.expired' and b.at > s.at + interval '10 s'))
        order by b.position
        limit 1
    ) n
    where s.named
      and s.kind not in ('message.acked', 'message.discarded', 'message.purged')
)
select ` + eventColumns + `
from (
    select s.position
    from steps s
    where s.named
      and s.position > $3
    limit $4
) s
join leat.events e on e.position = s.position
left join leat.channels c on c.id = e.channel_id
order by e.position`

// eventColumns are what scanEvent reads, of leat.events e and leat.channels c.
const eventColumns = `e.position,
       e.at,
       e.kind::text,
       coalesce(e.channel_id, 0),
       e.delivery,
       e.due_at,
       e.expires_at,
       e.priority,
       e.routing_key,
       e.payload,
       e.content_type,
       e.headers,
       coalesce(e.actor, ''),
       e.message_ids,
       e.origin_ids,
       e.data,
       coalesce(c.name, '')`

// History is every event that names a message, in order, in pages. The second
// result is the cursor of the next page, "" on the last.
func (q *Queries) History(ctx context.Context, id eventstore.MessageID, f HistoryFilter) (page []Event, next string, err error) {
	after, limit, err := checkPage(f.Cursor, f.Limit)
	if err != nil {
		return nil, "", err
	}
	page, next, err = q.history(ctx, id, after, limit)
	if err != nil {
		return nil, "", wrap(err, "read history of message %d", id)
	}
	if len(page) == 0 && after == 0 {
		return nil, "", messageNotFound(id)
	}
	return page, next, nil
}

// HistoryFilter chooses a page of a history.
type HistoryFilter struct {
	Cursor string // from an earlier page
	Limit  int    // 1 to MaxLimit; 0 is DefaultLimit
}

// history is empty when there is no such message.
func (q *Queries) history(ctx context.Context, id eventstore.MessageID, after cursor, limit int) (page []Event, next string, err error) {
	last, err := q.death(ctx, id)
	if err != nil {
		return nil, "", err
	}
	batch := &pgx.Batch{}
	batch.Queue(plansSQL)
	batch.Queue(historySQL, id, last, after, limit+1).Query(func(rows pgx.Rows) (err error) {
		page, err = pgx.CollectRows(rows, scanEvent)
		return err
	})
	if err := q.pool.SendBatch(ctx, batch).Close(); err != nil {
		return nil, "", err
	}
	if len(page) > limit {
		page = page[:limit]
		next = cursor(page[limit-1].Position).String()
	}
	return page, next, nil
}

// eachEvent goes through the whole history of a message, page by page.
func (q *Queries) eachEvent(ctx context.Context, id eventstore.MessageID, visit func(Event) (more bool)) error {
	for after := cursor(0); ; {
		page, next, err := q.history(ctx, id, after, MaxLimit)
		if err != nil {
			return err
		}
		for _, e := range page {
			if !visit(e) {
				return nil
			}
		}
		if next == "" {
			return nil
		}
		after = cursor(page[len(page)-1].Position)
	}
}

// A dead run bears the position of its death.
const deathSQL = `-- queries.death
select r.delivery
from leat.events e
join leat.queue_runs r on r.channel_id = e.channel_id
where e.position = $1
  and e.kind = 'message.published'
  and r.state = 3
  and r.first_id <= $1
  and r.ids[cardinality(r.ids)] >= $1
  and $1 = any (r.ids)
  and r.delivery is not null
limit 1`

// death is the last event of a message that is dead, so that its history need
// not be looked for in all that came since; no bound of others. The log answers
// without the queue views too: while they are rebuilt nothing is known.
func (q *Queries) death(ctx context.Context, id eventstore.MessageID) (eventstore.Position, error) {
	last := eventstore.Position(math.MaxInt64)
	batch := &pgx.Batch{}
	batch.Queue(lockTimeoutSQL, "100ms")
	batch.Queue(plansSQL)
	batch.Queue(deathSQL, id).QueryRow(func(row pgx.Row) error { return row.Scan(&last) })
	err := q.pool.SendBatch(ctx, batch).Close()
	if errors.Is(err, pgx.ErrNoRows) || errors.Is(eventstore.FromPg(err), &eventstore.Error{Code: eventstore.Busy}) {
		return math.MaxInt64, nil
	}
	return last, err
}

func messageNotFound(id eventstore.MessageID) *eventstore.Error {
	return eventstore.NewError(eventstore.MessageNotFound, "There is no message %d in the log.", id)
}

func scanEvent(row pgx.CollectableRow) (e Event, err error) {
	err = row.Scan(eventFields(&e)...)
	return e, err
}

func scanSizedEvent(row pgx.CollectableRow, total *int) (e Event, err error) {
	err = row.Scan(append(eventFields(&e), total)...)
	return e, err
}

// eventFields are where eventColumns go.
func eventFields(e *Event) []any {
	return []any{
		&e.Position, &e.At, &e.Kind, &e.ChannelID, &e.Delivery, &e.DueAt, &e.ExpiresAt, &e.Priority,
		&e.RoutingKey, &e.Payload, &e.ContentType, &e.Headers, &e.Actor, &e.MessageIDs, &e.OriginIDs, &e.Data, &e.Channel,
	}
}
