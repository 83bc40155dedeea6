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

// A message's events are found in two ways: walkSQL goes through the batch events of
// its channel that are near to its id, and lateSQL looks up those that are not.
const near = "16384" // positions, as in the index events_late

// walkSQL goes step by step, and no more of them than it is asked for, from
// m.after on, which is a message's id or an event that names it, through the near
// batch events of its channel, on the index events_batches, and not past the event that
// ends the message. What a message that is still waiting costs is one index entry
// and one list of ids for each of them.
// What no consumer settles (m.unsettled) is in no events beyond its transaction.
// A step looks at m.most batch events at most, if that is not null, and is a cut
// when they did not name the message.
//
// Some events may be the last or be followed by more of the same transaction: an
// expiry by a death, a death by the copy to another channel. Those have much the
// same time, so whatever is clearly later tells that they did not come.
//
// A message may be published again at any time, which republishedSQL finds: the walk
// passes over it.
const walkSQL = `
    with recursive steps as (
        select m.after as position, e.kind, e.at, e.data, true as named, false as cut,
            e.kind in ('message.acked', 'message.discarded', 'message.purged') as ended, false as probe
        from (select) s
        left join leat.events e on e.position = m.after
        union all
        select n.position, n.kind, n.at, n.data, n.named, n.cut,
            s.ended or n.kind in ('message.acked', 'message.discarded', 'message.purged')
                or (n.kind = 'message.routed' and (m.unsettled or n.data ->> 'cause' = 'redrive'))
                or (n.kind = 'message.copied' and m.unsettled),
            s.probe or n.kind = 'circuit.half_opened'
        from steps s
        cross join lateral (
            select b.position, b.kind, b.at, b.data, b.named, not b.named and not b.late as cut
            from (
                select b.position, b.kind, b.at, b.data,
                    row_number() over (order by b.channel_id, b.position) as n,
                    b.position - m.id <= ` + near + ` and ` + namesSQL + ` as named,
                    b.position - m.id > ` + near + ` or coalesce(b.at > s.at + interval '10 s' and (
                        s.position >= m.death
                        or s.ended
                        or s.kind = 'message.expired'
                        or (s.kind = 'message.recovered' and s.data ? 'to')
                        or (s.kind = 'message.published' and m.unsettled)), false) as late
                from (
                    select b.position, b.kind, b.at, b.data, b.channel_id, b.message_ids, b.message_ranges
                    from leat.events b
                    where (b.channel_id, b.position) > (m.channel, s.position)
                      and b.channel_id <= m.channel
                      and b.position > s.position
                      and b.message_ids is not null
                    order by b.channel_id, b.position
                    limit m.most
                ) b
            ) b
            where b.named or b.late or b.n = m.most
            limit 1 -- in the order from below: a sort here would read all of it
        ) n
        where s.named
          and (s.ended is not true or (s.probe and s.kind not in ('circuit.closed', 'circuit.opened')))
    )
`

const walkedSQL = `
    select s.position, s.cut
    from steps s
    where (s.named or s.cut)
      and s.kind is not null`

// namesSQL tells whether a batch event b belongs to the history of m.
const namesSQL = `(leat.names(b.message_ids, b.message_ranges, m.id)
                        and (b.kind <> 'message.routed' or b.data ->> 'cause' <> 'republish'))`

// lateSQL finds the events that name m and are not near, unless a walk has met the end of
// m before: by the index events_late, whose expressions it repeats. The difference of
// positions tells it from the primary key, which tempts.
const lateSQL = `
    select b.position, false as cut
    from leat.events b
    where b.channel_id = m.channel` + spreadSQL + ` = 0
      and b.message_ids[1] = m.id` + isLateSQL + `
    union all
    select b.position, false
    from (values (4096), (1048576)) w (spread)
    join leat.events b
        on b.channel_id = m.channel` + spreadSQL + ` = w.spread
        and b.message_ids[1] between m.id - w.spread and m.id + w.spread` + isLateSQL + `
    union all
    select b.position, false
    from leat.events b
    where b.channel_id = m.channel` + spreadSQL + ` = -1` + isLateSQL

const spreadSQL = `
      and case
              when b.message_ranges is not null then -1
              when b.message_ids[1] = all (b.message_ids) then 0
              when b.message_ids[1] - 4096 <= all (b.message_ids) and b.message_ids[1] + 4096 >= all (b.message_ids) then 4096
              when b.message_ids[1] - 1048576 <= all (b.message_ids) and b.message_ids[1] + 1048576 >= all (b.message_ids) then 1048576
              else -1
          end`

const isLateSQL = `
      and (b.position - ` + near + ` >= any (b.message_ids) or b.message_ranges is not null)
      and b.position - m.id > ` + near + `
      and ` + namesSQL + `
      and coalesce((select bool_or(s.ended and not s.probe) from steps s where s.named), false) = false`

// republishedSQL finds where m was published again, on the index events_republished.
const republishedSQL = `
    select r.position, false as cut
    from leat.events r
    where r.channel_id = m.channel
      and r.position > m.id
      and r.kind = 'message.routed'
      and r.data ->> 'cause' = 'republish'
      and leat.names(r.message_ids, r.message_ranges, m.id)`

// What was published again is no place from which a walk can go on.
const historySQL = `-- queries.History
select ` + eventColumns + `
from (
    select s.position
    from (
        select $1::bigint as id, $4::integer as channel, $5::boolean as unsettled, $2::bigint as death, null::bigint as most,
            case
                when exists (
                    select
                    from leat.events p
                    where p.position = $3::bigint
                      and p.kind = 'message.routed'
                      and p.data ->> 'cause' = 'republish')
                then $1::bigint
                else greatest($1::bigint, $3::bigint)
            end as after
    ) m
    cross join lateral (
        ` + walkSQL + `
        (` + walkedSQL + `
          and s.position > $3
        limit $6)
        union all
        (select l.position, l.cut
        from (` + lateSQL + `
        ) l
        where l.position > $3
        order by l.position
        limit $6)
        union all
        (` + republishedSQL + `
          and r.position > $3::bigint
        order by r.position
        limit $6)
    ) s
    order by s.position
    limit $6
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
       e.stream_offset,
       e.due_at,
       e.expires_at,
       e.priority,
       e.routing_key,
       e.payload,
       e.content_type,
       e.headers,
       coalesce(e.actor, ''),
       e.message_ids,
       case
           when e.message_ranges is not null
           then array(select unnest(array[lower(r), upper(r) - 1]) from unnest(e.message_ranges) r)
       end,
       e.origin_ids,
       e.data,
       coalesce(c.name, '')`

// History is a page of what happened to a message.
type History struct {
	OriginID eventstore.MessageID
	Events   []Event
}

// History is every event that names a message, in order, in pages. The second
// result is the cursor of the next page, "" on the last.
func (q *Queries) History(ctx context.Context, id eventstore.MessageID, f HistoryFilter) (h History, next string, err error) {
	after, limit, err := checkPage(f.Cursor, f.Limit)
	if err != nil {
		return h, "", err
	}
	b, err := q.beginning(ctx, id)
	if err == nil && b == nil {
		return h, "", q.messageNotFound(ctx, id)
	}
	if err == nil {
		h.OriginID = b.Origin
		h.Events, next, err = q.history(ctx, b, after, limit)
		if err == nil && next == "" {
			err = q.wholeStory(ctx, b, h.Events)
		}
	}
	return h, next, wrap(err, "read history of message %d", id)
}

// HistoryFilter chooses a page of a history.
type HistoryFilter struct {
	Cursor string // from an earlier page
	Limit  int    // 1 to MaxLimit; 0 is DefaultLimit
}

func (q *Queries) history(ctx context.Context, b *beginning, after cursor, limit int) (page []Event, next string, err error) {
	deaths, err := q.deaths(ctx, []beginning{*b})
	if err != nil {
		return nil, "", err
	}
	page, err = plannedOnce(ctx, q.pool, scanEvent, historySQL, b.ID, deaths[0], after, b.ChannelID, b.unsettled(), limit+1)
	if err != nil {
		return nil, "", err
	}
	if len(page) > limit {
		page = page[:limit]
		next = cursor(page[limit-1].Position).String()
	}
	return page, next, nil
}

// eachEvent goes through the whole history of a message, page by page.
func (q *Queries) eachEvent(ctx context.Context, b *beginning, visit func(Event) (more bool)) error {
	for after := cursor(0); ; {
		page, next, err := q.history(ctx, b, after, MaxLimit)
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
const deathsSQL = `-- queries.deaths
select m.n,
       d.position
from unnest($1::bigint[], $2::integer[]) with ordinality m (id, channel, n)
cross join lateral (
    select r.delivery
    from leat.queue_runs r
    where r.channel_id = m.channel
      and r.state = 3
      and r.first_id <= m.id
      and r.ids[cardinality(r.ids)] >= m.id
      and m.id = any (r.ids)
      and r.delivery is not null
    limit 1
) d (position)`

// never is the death of what is not dead.
const never = eventstore.Position(math.MaxInt64)

// deaths are the last events of messages that are dead, so that their histories
// need not be looked for in all that came since; never of others. The log answers
// without the queue views too: while they are rebuilt nothing is known.
func (q *Queries) deaths(ctx context.Context, messages []beginning) ([]eventstore.Position, error) {
	ids, channels, list := places(messages)
	for i := range list {
		list[i] = never
	}
	var (
		n     int
		death eventstore.Position
	)
	batch := &pgx.Batch{}
	batch.Queue(lockTimeoutSQL, "100ms")
	batch.Queue(plansSQL)
	batch.Queue(deathsSQL, ids, channels).Query(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&n, &death}, func() error {
			list[n-1] = death
			return nil
		})
		return err
	})
	err := q.pool.SendBatch(ctx, batch).Close()
	if errors.Is(eventstore.FromPg(err), &eventstore.Error{Code: eventstore.Busy}) {
		return list, nil
	}
	return list, err
}

// places are the messages for a statement, and a list to fill for them.
func places(messages []beginning) (ids []int64, channels []int32, list []eventstore.Position) {
	for _, b := range messages {
		ids = append(ids, int64(b.ID))
		channels = append(channels, int32(b.ChannelID))
	}
	return ids, channels, make([]eventstore.Position, len(messages))
}

func scanEvent(row pgx.CollectableRow) (e Event, err error) {
	return e, scanEventInto(row, &e)
}

// scanEventInto reads eventColumns, and what comes after them.
func scanEventInto(row pgx.CollectableRow, e *Event, more ...any) error {
	var ends []eventstore.MessageID
	err := row.Scan(append([]any{
		&e.Position, &e.At, &e.Kind, &e.ChannelID, &e.Delivery, &e.Offset, &e.DueAt, &e.ExpiresAt, &e.Priority,
		&e.RoutingKey, &e.Payload, &e.ContentType, &e.Headers, &e.Actor, &e.MessageIDs, &ends, &e.OriginIDs, &e.Data, &e.Channel,
	}, more...)...)
	for i := 0; i+1 < len(ends); i += 2 {
		e.MessageRanges = append(e.MessageRanges, eventstore.MessageRange{First: ends[i], Last: ends[i+1]})
	}
	return err
}
