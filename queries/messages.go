package queries

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"leat/eventstore"
)

// State is where a message is.
type State string

// The states of a message: in a queue, and when it has left.
const (
	Ready    State = "ready"
	Delayed  State = "delayed"
	InFlight State = "in_flight"
	Dead     State = "dead"

	Acked     State = "acked"
	Discarded State = "discarded"
	Purged    State = "purged"
	Expired   State = "expired"
	Deleted   State = "deleted" // with its channel
)

// Message is a message as its queue knows it.
type Message struct {
	ID          eventstore.MessageID
	OriginID    eventstore.MessageID
	Channel     string
	RoutingKey  string
	Priority    int
	State       State
	Attempts    int // deliveries that count
	PublishedAt time.Time
	DueAt       *time.Time // delayed: not before
	ExpiresAt   *time.Time
	Delivery    eventstore.Position // in flight: the delivery it is part of
	LeaseUntil  *time.Time          // in flight: until when
	Owner       string              // in flight: with whom
	Reason      string              // dead: why
	Detail      string              // dead: what its last consumer said
	ErrorClass  string              // dead: as its last consumer classed it
	DiedAt      *time.Time          // dead: since
	Payload     []byte              // nil when the filter wanted none
	ContentType string
	Headers     json.RawMessage
}

// MessagesFilter chooses messages of a queue.
type MessagesFilter struct {
	State       State   // "" is any that is in the queue
	RoutingKey  *string // nil is any
	Cursor      string  // from an earlier page
	Limit       int     // 1 to MaxLimit; 0 is DefaultLimit
	WithPayload bool
}

// A page takes the first runs above the cursor, as many as it has rows, and the
// runs that the cursor lies in: no other run can hold one of its messages.
const messagesSQL = `-- queries.Messages
with runs as (
    (
        select r.*
        from leat.queue_runs r
        where r.channel_id = $1
          and r.first_id <= $2
          and $2 < any (r.ids)
          and ($4::text is null or r.routing_key = $4)
          and ($5::smallint is null or $5 = case when r.state = 1 and r.due_at <= clock_timestamp() then 0 else r.state end)
    )
    union all
    (
        select r.*
        from leat.queue_runs r
        where r.channel_id = $1
          and r.first_id > $2
          and ($4::text is null or r.routing_key = $4)
          and ($5::smallint is null or $5 = case when r.state = 1 and r.due_at <= clock_timestamp() then 0 else r.state end)
        order by r.first_id
        limit $3
    )
), page as (
    select i.id, r.*
    from runs r
    cross join lateral unnest(r.ids) i (id)
    where i.id > $2
    order by i.id
    limit $3
)
select q.id,
       q.routing_key,
       9 - q.rank,
       case when q.state = 1 and q.due_at <= clock_timestamp() then 0 else q.state end,
       q.deliveries,
       q.at,
       q.due_at,
       q.expires_at,
       coalesce(q.delivery, 0),
       coalesce(q.owner, ''),
       coalesce(q.reason, ''),
       q.died_at,
       case when $6 then q.payload end,
       coalesce(q.content_type, 'application/json'),
       coalesce(q.headers, '{}'),
       q.total
from (
    select p.*,
           e.at,
           e.payload,
           e.content_type,
           e.headers,
           count(*) over () as total,
           sum(octet_length(e.payload)) over (order by p.id rows between unbounded preceding and 1 preceding) as before
    from page p
    join leat.events e on e.position = p.id
) q
where not $6 or coalesce(q.before, 0) < $7
order by q.id`

// Messages looks into a queue without taking anything, by message id. The
// second result is the cursor of the next page, "" on the last.
func (q *Queries) Messages(ctx context.Context, queue string, f MessagesFilter) (page []Message, next string, err error) {
	after, limit, err := checkPage(f.Cursor, f.Limit)
	if err != nil {
		return nil, "", err
	}
	state, err := stateNumber(f.State)
	if err != nil {
		return nil, "", err
	}
	if f.RoutingKey != nil {
		if err := checkText("routingKey", *f.RoutingKey); err != nil {
			return nil, "", err
		}
	}
	var rows []sized[Message]
	err = q.readViews(ctx, func(tx pgx.Tx) error {
		id, err := channelID(ctx, tx, queue)
		if err != nil {
			return err
		}
		rows, err = collect(ctx, tx, withTotal(scanMessage), messagesSQL,
			id, after, limit+1, f.RoutingKey, state, f.WithPayload, pageBytes)
		return err
	})
	if err != nil {
		return nil, "", wrap(err, "look into queue %q", queue)
	}
	page, next = cut(rows, limit, Message.number)
	return in(queue, page), next, nil
}

func (m Message) number() int64 { return int64(m.ID) }

// in names the channel of the messages.
func in(queue string, page []Message) []Message {
	for i := range page {
		page[i].Channel = queue
	}
	return page
}

// runStates are the states in the order of their numbers in leat.queue_runs.
var runStates = []State{Ready, Delayed, InFlight, Dead}

func stateNumber(s State) (*int16, error) {
	if s == "" {
		return nil, nil
	}
	for i, name := range runStates {
		if name == s {
			n := int16(i)
			return &n, nil
		}
	}
	return nil, invalid("state", "must be ready, delayed, in flight or dead")
}

func scanMessage(row pgx.CollectableRow, total *int) (m Message, err error) {
	var state int16
	err = row.Scan(&m.ID, &m.RoutingKey, &m.Priority, &state, &m.Attempts, &m.PublishedAt, &m.DueAt, &m.ExpiresAt,
		&m.Delivery, &m.Owner, &m.Reason, &m.DiedAt, &m.Payload, &m.ContentType, &m.Headers, total)
	if err != nil {
		return m, err
	}
	m.OriginID = m.ID
	m.State = runStates[state]
	switch m.State {
	case InFlight:
		m.LeaseUntil, m.DueAt = m.DueAt, nil
	case Ready:
		m.DueAt = nil
	}
	return m, nil
}
