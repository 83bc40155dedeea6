package queries

import (
	"context"
	"encoding/json"
	"strings"
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

// Message is a message as its queue, or the log, knows it.
type Message struct {
	ID          eventstore.MessageID
	OriginID    eventstore.MessageID
	Channel     string
	RoutingKey  string
	Priority    int
	Offset      *eventstore.Offset // in a stream
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
	State       State     // "" is any that is in the queue
	Reason      string    // of Dead messages, one of eventstore.DeathReasons; "" is any
	DiedAfter   time.Time // of Dead messages: or at it; zero is any
	DiedBefore  time.Time // of Dead messages; zero is any
	RoutingKey  *string   // nil is any
	AsOf        *Moment   // nil is now
	Cursor      string    // from an earlier page
	Limit       int       // 1 to MaxLimit; 0 is DefaultLimit
	WithPayload bool
}

// messagesSQL takes the first runs above the cursor, as many as the page has
// rows, and those that the cursor lies in: no other run can hold one of its
// messages. Runs come state by state, each from its index. Two states have none
// in the order of ids, and are read as a whole: what is delayed or in flight,
// and what waits in a FIFO queue.
const messagesSQL = `-- queries.Messages
with runs as (
    (
        select r.*
        from (
            select * from leat.queue_runs r where r.channel_id = $1 and ` + readyRunsSQL + `
            union all
            select * from leat.queue_runs r where r.channel_id = $1 and ` + busyRunsSQL + `
            union all
            select * from leat.queue_runs r where r.channel_id = $1 and ` + fifoRunsSQL + `
            union all
            select * from leat.queue_runs r where r.channel_id = $1 and ` + deadRunsSQL + `
        ) r
        where ` + aroundSQL + `
    )
    union all
    (
        select r.*
        from generate_series(0, 9) k (rank)
        cross join lateral (
            select *
            from leat.queue_runs r
            where r.channel_id = $1 and ` + readyRunsSQL + ` and r.rank = k.rank and ` + aheadSQL + `
        ) r
    )
    union all
    (select * from leat.queue_runs r where r.channel_id = $1 and ` + busyRunsSQL + ` and ` + aheadSQL + `)
    union all
    (select * from leat.queue_runs r where r.channel_id = $1 and ` + fifoRunsSQL + ` and ` + aheadSQL + `)
    union all
    (select * from leat.queue_runs r where r.channel_id = $1 and ` + deadRunsSQL + ` and ` + aheadSQL + `)
)` + pageOfMessagesSQL

// keyMessagesSQL is the same under one routing key, which has an index of what
// waits, in the order of ids.
const keyMessagesSQL = `-- queries.keyMessages
with runs as (
    (
        select r.*
        from (
            select * from leat.queue_runs r where r.channel_id = $1 and ` + waitingRunsSQL + `
            union all
            select * from leat.queue_runs r where r.channel_id = $1 and ` + heldRunsSQL + `
            union all
            select * from leat.queue_runs r where r.channel_id = $1 and ` + deadRunsSQL + `
        ) r
        where r.routing_key = $10 and ` + aroundSQL + `
    )
    union all
    (
        select r.*
        from generate_series(0, 9) k (rank)
        cross join lateral (
            select *
            from leat.queue_runs r
            where r.channel_id = $1 and r.routing_key = $10 and ` + waitingRunsSQL + ` and r.rank = k.rank and ` + aheadSQL + `
        ) r
    )
    union all
    (select * from leat.queue_runs r where r.channel_id = $1 and r.routing_key = $10 and ` + heldRunsSQL + ` and ` + aheadSQL + `)
    union all
    (select * from leat.queue_runs r where r.channel_id = $1 and r.routing_key = $10 and ` + deadRunsSQL + ` and ` + aheadSQL + `)
)` + pageOfMessagesSQL

// What the indexes of leat.queue_runs hold, in their own words. A state that is
// not wanted is not looked at.
const (
	readyRunsSQL   = `r.state = 0 and not r.fifo and coalesce($4::smallint, 0) = 0`
	busyRunsSQL    = `r.due_at is not null and (r.state = 2 or (r.state = 1 and not r.fifo)) and coalesce($4::smallint, 0) < 3 and ` + inStateSQL
	fifoRunsSQL    = `r.state <= 1 and r.fifo and exists (select from leat.channels c where c.id = $1 and c.mode = 'fifo') and ` + waitingSQL
	waitingRunsSQL = `r.state <= 1 and ` + waitingSQL
	heldRunsSQL    = `r.state = 2 and coalesce($4::smallint, 2) = 2`
	deadRunsSQL    = `r.state = 3 and coalesce($4::smallint, 3) = 3 and ($7::text is null or r.reason = $7) and ($8::timestamptz is null or r.died_at >= $8) and ($9::timestamptz is null or r.died_at < $9)`
	waitingSQL     = `coalesce($4::smallint, 0) < 2 and ` + inStateSQL
)

// What is due is ready, whether or not the sweeper has been there.
const (
	stateSQL   = `case when r.state = 1 and r.due_at <= statement_timestamp() then 0 else r.state end`
	inStateSQL = `($4::smallint is null or $4 = ` + stateSQL + `)`
)

// The runs that the cursor lies in, and those that follow it.
const (
	aroundSQL = `$2::bigint > 0 and r.first_id <= $2 and r.ids[cardinality(r.ids)] > $2`
	aheadSQL  = `r.first_id > $2 order by r.first_id limit $3`
)

// What the last consumer said is in the event of the death, whose position a dead
// run keeps in place of a delivery's.
const pageOfMessagesSQL = `, page as (
    select i.id, coalesce(r.origins[i.n], i.id) as origin, r.*, ` + stateSQL + ` as shown
    from runs r
    cross join lateral unnest(r.ids) with ordinality i (id, n)
    where i.id > $2
    order by i.id
    limit $3
)` + shownMessagesSQL

const shownMessagesSQL = `
select q.id,
       q.origin,
       q.routing_key,
       9 - q.rank,
       q.shown,
       q.deliveries,
       coalesce(q.at, 'epoch'),
       q.due_at,
       q.expires_at,
       coalesce(q.delivery, 0),
       coalesce(q.owner, ''),
       coalesce(q.reason, ''),
       coalesce(d.data ->> 'detail', ''),
       coalesce(d.data ->> 'errorClass', ''),
       q.died_at,
       case when $5 then q.payload end,
       coalesce(q.content_type, 'application/json'),
       coalesce(q.own_headers, '{}') || coalesce(q.headers, '{}'),
       q.total
from (
    select p.*,
           e.at,
           e.payload,
           e.content_type,
           e.headers as own_headers,
           count(*) over () as total,
           sum(case when $5 then octet_length(e.payload) else 0 end + coalesce(pg_column_size(e.headers), 0))
               over (order by p.id rows between unbounded preceding and 1 preceding) as before
    from page p
    left join leat.events e on e.position = p.origin
) q
left join leat.events d on d.position = case when q.state = 3 then q.delivery end
where coalesce(q.before, 0) < $6
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
	if f.Reason != "" && (f.State != Dead || !eventstore.IsDeathReason(f.Reason)) {
		return nil, "", invalid("reason", "must be one of %s, of dead messages", strings.Join(eventstore.DeathReasons(), ", "))
	}
	var rows []sized[Message]
	if f.AsOf != nil {
		rows, err = q.messagesAsOf(ctx, queue, f, after, limit, state)
	} else {
		rows, err = q.messagesNow(ctx, queue, f, after, limit, state)
	}
	if err != nil {
		return nil, "", wrap(err, "look into queue %q", queue)
	}
	page, next = cut(rows, limit, Message.number)
	return in(queue, page), next, nil
}

func (q *Queries) messagesNow(
	ctx context.Context, queue string, f MessagesFilter, after cursor, limit int, state *int16,
) (rows []sized[Message], err error) {
	err = q.readViews(ctx, func(tx pgx.Tx) error {
		id, err := queueID(ctx, tx, queue)
		if err != nil {
			return err
		}
		sql, args := messagesSQL, []any{
			id, after, limit + 1, state, f.WithPayload, pageBytes, optional(f.Reason),
			optionalTime(f.DiedAfter), optionalTime(f.DiedBefore),
		}
		if f.RoutingKey != nil {
			sql, args = keyMessagesSQL, append(args, *f.RoutingKey)
		}
		rows, err = collect(ctx, tx, withTotal(scanMessage), sql, args...)
		return err
	})
	return rows, err
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
	return nil, invalid("state", "must be ready, delayed, inFlight or dead")
}

func scanMessage(row pgx.CollectableRow, total *int) (m Message, err error) {
	var state int16
	err = row.Scan(&m.ID, &m.OriginID, &m.RoutingKey, &m.Priority, &state, &m.Attempts, &m.PublishedAt, &m.DueAt, &m.ExpiresAt,
		&m.Delivery, &m.Owner, &m.Reason, &m.Detail, &m.ErrorClass, &m.DiedAt, &m.Payload, &m.ContentType, &m.Headers,
		total)
	if err != nil {
		return m, err
	}
	m.State = runStates[state]
	switch m.State {
	case InFlight:
		m.LeaseUntil, m.DueAt = m.DueAt, nil
	case Ready:
		m.DueAt = nil
	case Dead:
		m.Delivery = 0 // the run has the position of its death there
	}
	return m, nil
}
