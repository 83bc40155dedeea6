package queries

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"leat/eventstore"
)

// The event of a copy lies behind its id: a transaction draws all its ids and then
// the positions of the events that list them, while others draw theirs. It is
// looked for among so many events of copies, and positions, behind the id.
const (
	copyEvents    = 100_000
	copyPositions = 10_000_000
)

// maxAncestors bounds the way from a message up to its origin.
const maxAncestors = 1000

// beginning is how a message came to be.
type beginning struct {
	ID         eventstore.MessageID
	Origin     eventstore.MessageID // itself when it was published
	Parent     eventstore.MessageID // 0 when it was published
	Cause      string               // of a copy: link, dead_letter, redrive or republish
	Position   eventstore.Position  // of its event
	Channel    string
	ChannelID  eventstore.ChannelID
	Exchange   bool // the channel stores nothing
	Deleted    bool // so is the channel
	RoutingKey string
	Priority   int
	At         time.Time
	DueAt      *time.Time
	ExpiresAt  *time.Time
	Offset     *eventstore.Offset // in a stream
	Trimmed    bool               // the stream keeps it no longer
}

// unsettled tells that no consumer settles the message.
func (b *beginning) unsettled() bool { return b.Exchange || b.Offset != nil }

// beginningSQL finds the event of a message m.id. No copy has the position of an
// event as its id.
const beginningSQL = `
    select m.id,
           e.position,
           e.at,
           e.channel_id,
           e.priority,
           e.due_at,
           e.expires_at,
           e.stream_offset + coalesce(n.place, 1) - 1 as stream_offset,
           coalesce(e.routing_key, e.data -> 'keys' ->> (n.place - 1), '') as routing_key,
           coalesce(e.origin_ids[n.place], m.id) as origin,
           coalesce((e.data -> 'parents' ->> (n.place - 1))::bigint, e.origin_ids[n.place]) as parent,
           case when n.place is not null then (e.data ->> 'from')::bigint end as routed
    from (
        select f.position
        from leat.events f
        where f.position = m.id
          and f.kind = 'message.published'
        union all
        (
            select c.position
            from (
                select c.position, c.message_ids
                from leat.events c
                where c.kind = 'message.copied'
                  and c.position > m.id
                  and c.position <= least(m.id, 9223372036854775807 - $3::bigint) + $3
                order by c.position
                limit $4
            ) c
            where m.id = any (c.message_ids)
              and not exists (select from leat.events f where f.position = m.id)
            limit 1
        )
    ) b
    join leat.events e on e.position = b.position
    cross join lateral (
        select array_position(case when e.kind = 'message.copied' then e.message_ids end, m.id)
    ) n (place)`

const beginningsSQL = `-- queries.beginnings
with recursive path as (
    select b.*, 0 as up
    from (select $1::bigint) m (id)
    cross join lateral (` + beginningSQL + `
    ) b
    union all
    select b.*, m.up + 1
    from (
        select p.parent, p.up
        from path p
        where p.parent is not null
          and p.up < $2
    ) m (id, up)
    cross join lateral (` + beginningSQL + `
    ) b
)
select p.id,
       p.origin,
       coalesce(p.parent, 0),
       coalesce(r.data ->> 'cause', ''),
       p.position,
       c.name,
       c.id,
       c.kind = 'exchange',
       c.deleted_at is not null,
       p.routing_key,
       coalesce(p.priority, 0),
       p.at,
       p.due_at,
       p.expires_at,
       p.stream_offset,
       coalesce(p.stream_offset < s.first_offset, false)
from path p
join leat.channels c on c.id = p.channel_id
left join leat.streams s on s.channel_id = c.id
left join leat.events r on r.position = p.routed
order by p.up`

// ancestry is a message, what it was copied from, and so on, to its origin or so
// many steps up; nothing when there is no such message.
func (q *Queries) ancestry(ctx context.Context, id eventstore.MessageID, steps int) ([]beginning, error) {
	return plannedOnce(ctx, q.pool, scanBeginning, beginningsSQL, id, steps, copyPositions, copyEvents)
}

// beginning is nil when there is no such message.
func (q *Queries) beginning(ctx context.Context, id eventstore.MessageID) (*beginning, error) {
	found, err := q.ancestry(ctx, id, 0)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

func scanBeginning(row pgx.CollectableRow) (b beginning, err error) {
	err = row.Scan(&b.ID, &b.Origin, &b.Parent, &b.Cause, &b.Position, &b.Channel, &b.ChannelID, &b.Exchange, &b.Deleted,
		&b.RoutingKey, &b.Priority, &b.At, &b.DueAt, &b.ExpiresAt, &b.Offset, &b.Trimmed)
	return b, err
}

// planned is collect with the settings of plansSQL.
func planned[T any](ctx context.Context, db batcher, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	return plannedIn(ctx, db, &pgx.Batch{}, scan, sql, args...)
}

// The plan for any message is the one for each, and takes far longer to make than to
// run: milliseconds, which the server would spend on each call.
const anyPlanSQL = `-- queries.anyPlan
select set_config('plan_cache_mode', 'force_generic_plan', true)`

// plannedOnce is planned for statements that a session plans at their first call.
func plannedOnce[T any](ctx context.Context, db batcher, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	batch := &pgx.Batch{}
	batch.Queue(anyPlanSQL)
	return plannedIn(ctx, db, batch, scan, sql, args...)
}

// plannedIn is planned with more settings, which are in the batch.
func plannedIn[T any](
	ctx context.Context, db batcher, batch *pgx.Batch, scan pgx.RowToFunc[T], sql string, args ...any,
) (list []T, err error) {
	batch.Queue(plansSQL)
	batch.Queue(sql, args...).Query(func(rows pgx.Rows) (err error) {
		list, err = pgx.CollectRows(rows, scan)
		return err
	})
	err = db.SendBatch(ctx, batch).Close()
	return list, err
}

// batcher is a pool or a transaction.
type batcher interface {
	SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults
}
