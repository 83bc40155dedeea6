package queries

import (
	"context"

	"github.com/jackc/pgx/v5"

	"leat/eventstore"
)

// Event is an event of the log with the name of its channel.
type Event struct {
	eventstore.Event
	Channel string // "" when it concerns none
}

// Step by step through the batch events of the channel, on the index
// events_batches, and not past the event that ends the message. An expiry ends
// it too, unless the queue dead-letters what expires: that event has the same
// time, so whatever is clearly later tells that it did not come.
const historySQL = `-- queries.History
with recursive steps as (
    (
        select e.position, e.kind, e.at, e.channel_id, true as named
        from leat.events e
        where e.position = $1
          and e.kind = 'message.published'
    )
    union all
    select n.position, n.kind, n.at, n.channel_id, n.named
    from steps s
    cross join lateral (
        select b.position, b.kind, b.at, b.channel_id, $1 = any (b.message_ids) as named
        from leat.events b
        where b.channel_id = s.channel_id
          and b.position > s.position
          and b.message_ids is not null
          and ($1 = any (b.message_ids) or (s.kind = 'message.expired' and b.at > s.at + interval '10 s'))
        order by b.position
        limit 1
    ) n
    where s.named
      and s.kind not in ('message.acked', 'message.discarded', 'message.purged')
)
select ` + eventColumns + `
from steps s
join leat.events e on e.position = s.position
left join leat.channels c on c.id = e.channel_id
where s.named
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

// History is every event that names a message, in order.
func (q *Queries) History(ctx context.Context, id eventstore.MessageID) ([]Event, error) {
	events, err := q.history(ctx, id)
	if err != nil {
		return nil, wrap(err, "read history of message %d", id)
	}
	if len(events) == 0 {
		return nil, messageNotFound(id)
	}
	return events, nil
}

// history is empty when there is no such message.
func (q *Queries) history(ctx context.Context, id eventstore.MessageID) ([]Event, error) {
	return collect(ctx, q.pool, scanEvent, historySQL, id)
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
