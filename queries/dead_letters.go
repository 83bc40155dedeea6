package queries

import (
	"context"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

var reasons = []string{"rejected", "non_retryable", "retries_exhausted", "expired"}

// Reasons lists why messages die: a consumer refused it, named an error class
// that the queue does not retry, failed too often; or its time was over.
func Reasons() []string { return slices.Clone(reasons) }

// DeadLettersFilter chooses dead letters of a queue.
type DeadLettersFilter struct {
	RoutingKey  *string // nil is any
	Reason      string  // one of Reasons; "" is any
	Cursor      string  // from an earlier page
	Limit       int     // 1 to MaxLimit; 0 is DefaultLimit
	WithPayload bool
}

// Like messagesSQL, on the index of dead runs. What the consumer said is in the
// event of the death, whose position a dead run keeps in place of a delivery's.
const deadLettersSQL = `-- queries.DeadLetters
with runs as (
    (
        select r.*
        from leat.queue_runs r
        where r.channel_id = $1
          and r.state = 3
          and $2::bigint > 0
          and r.first_id <= $2
          and r.ids[cardinality(r.ids)] > $2
          and ($4::text is null or r.routing_key = $4)
          and ($5::text is null or r.reason = $5)
    )
    union all
    (
        select r.*
        from leat.queue_runs r
        where r.channel_id = $1
          and r.state = 3
          and r.first_id > $2
          and ($4::text is null or r.routing_key = $4)
          and ($5::text is null or r.reason = $5)
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
       q.deliveries,
       q.at,
       coalesce(q.reason, ''),
       coalesce(d.data ->> 'detail', ''),
       coalesce(d.data ->> 'errorClass', ''),
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
           sum(case when $6 then octet_length(e.payload) else 0 end + coalesce(pg_column_size(e.headers), 0))
               over (order by p.id rows between unbounded preceding and 1 preceding) as before
    from page p
    join leat.events e on e.position = p.id
) q
left join leat.events d on d.position = q.delivery
where coalesce(q.before, 0) < $7
order by q.id`

// DeadLetters lists the dead letters of a queue by message id. The second
// result is the cursor of the next page, "" on the last.
func (q *Queries) DeadLetters(ctx context.Context, queue string, f DeadLettersFilter) (page []Message, next string, err error) {
	after, limit, err := checkPage(f.Cursor, f.Limit)
	if err != nil {
		return nil, "", err
	}
	if f.RoutingKey != nil {
		if err := checkText("routingKey", *f.RoutingKey); err != nil {
			return nil, "", err
		}
	}
	if f.Reason != "" && !slices.Contains(reasons, f.Reason) {
		return nil, "", invalid("reason", "must be one of %s", strings.Join(reasons, ", "))
	}
	var rows []sized[Message]
	err = q.readViews(ctx, func(tx pgx.Tx) error {
		id, err := channelID(ctx, tx, queue)
		if err != nil {
			return err
		}
		rows, err = collect(ctx, tx, withTotal(scanDeadLetter), deadLettersSQL,
			id, after, limit+1, f.RoutingKey, optional(f.Reason), f.WithPayload, pageBytes)
		return err
	})
	if err != nil {
		return nil, "", wrap(err, "list dead letters of %q", queue)
	}
	page, next = cut(rows, limit, Message.number)
	return in(queue, page), next, nil
}

func scanDeadLetter(row pgx.CollectableRow, total *int) (m Message, err error) {
	err = row.Scan(&m.ID, &m.RoutingKey, &m.Priority, &m.Attempts, &m.PublishedAt, &m.Reason, &m.Detail, &m.ErrorClass,
		&m.DiedAt, &m.Payload, &m.ContentType, &m.Headers, total)
	m.OriginID = m.ID
	m.State = Dead
	return m, err
}
