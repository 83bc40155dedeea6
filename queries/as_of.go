package queries

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"leat/eventstore"
)

// asOfWithin bounds a look into the past, which reads the log up to there.
const asOfWithin = 60 * time.Second

// Moment is a place of the log and the time of it. What an answer as of a moment says
// is what the same query would have answered then: what was due counts as ready, a
// lease that was over and not swept yet is still there.
type Moment struct {
	Position eventstore.Position // everything up to it had happened; 0 is before the first event
	At       time.Time
}

const nowSQL = `-- queries.now
select leat.settled_position(),
       s.last_value,
       clock_timestamp()
from leat.position_seq s`

// MomentAt is the moment of a position. One that is not settled, or to come, or before
// the log begins, is refused.
func (q *Queries) MomentAt(ctx context.Context, p eventstore.Position) (m Moment, err error) {
	settled, drawn, _, err := q.now(ctx)
	switch {
	case err != nil:
	case p > drawn:
		err = eventstore.NewError(eventstore.PositionAhead, "The log has not come so far: its last position is %d.", drawn)
	case p > settled:
		ahead := eventstore.NewError(eventstore.PositionAhead, "The log is settled up to %d only: something below is still open.", settled)
		ahead.RetryAfter = time.Second
		err = ahead
	default:
		var last eventstore.Position
		err = q.pool.QueryRow(ctx, probeSQL, 1, p).Scan(&last, &m.At)
		m.Position = p
		err = errors.Join(err, q.begun(ctx, p))
	}
	return m, wrap(err, "find position %d", p)
}

const lastUntilSQL = `-- queries.lastUntil
select e.position
from leat.events e
where e.position between 1 and $1
  and e.at <= $2
order by e.position desc
limit 1`

// MomentOf is the moment of a time: behind the last event that is not later. A time
// to come, or before the log begins, is refused.
func (q *Queries) MomentOf(ctx context.Context, at time.Time) (m Moment, err error) {
	settled, _, now, err := q.now(ctx)
	if err == nil && at.After(now) {
		err = eventstore.NewError(eventstore.PositionAhead, "That time is still to come: it is %s.", now.UTC().Format(time.RFC3339Nano))
	}
	if err != nil {
		return m, wrap(err, "find a time")
	}
	end, err := q.firstSince(ctx, at.Add(clockSlack), 1, settled+1)
	if err == nil {
		err = q.pool.QueryRow(ctx, lastUntilSQL, end-1, at).Scan(&m.Position)
	}
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil // before the first event
	}
	if err == nil {
		err = q.begun(ctx, m.Position)
	}
	m.At = at
	return m, wrap(err, "find a time")
}

// begun refuses what is before the log begins.
func (q *Queries) begun(ctx context.Context, p eventstore.Position) error {
	return q.stillThere(ctx, p+1)
}

func (q *Queries) now(ctx context.Context) (settled, drawn eventstore.Position, now time.Time, err error) {
	err = q.pool.QueryRow(ctx, nowSQL).Scan(&settled, &drawn, &now)
	return settled, drawn, now, err
}

// livingSQL says that a channel c was there at the position $1. The position of its
// end is in the log only, where events_channels finds it, unless it has left that.
const livingSQL = `c.epoch <= $1::bigint
  and (c.deleted_at is null or exists (
      select
      from leat.events x
      where x.channel_id = c.id
        and x.position > $1
        and x.kind = 'channel.deleted'))`

const reachesSQL = `-- queries.reaches
select leat.can_fold($1, array(
           select c.id
           from leat.channels c
           where ` + livingSQL + `
             and c.kind = 'queue'
             and ($2::integer is null or c.id = $2))),
       coalesce((select max(c.position) from leat.checkpoints c), 0)`

// reaches refuses a moment from which on the log does not tell what queues, or one of
// them, held: they held what has left it.
func (q *Queries) reaches(ctx context.Context, m Moment, channel *eventstore.ChannelID) error {
	var (
		all   bool
		first eventstore.Position
	)
	if err := q.pool.QueryRow(ctx, reachesSQL, m.Position, channel).Scan(&all, &first); err != nil || all {
		return err
	}
	e := eventstore.NewError(eventstore.EventsGone,
		"What queues held is known from position %d on: of what was before, parts have left the log, by its retention or by somebody's hand.", first)
	e.First = first
	return e
}

const settingsSQL = `-- queries.settings
select coalesce(max(x.position), 0)
from leat.log_begin b
join leat.channels c on c.epoch < b.first_position
cross join lateral (
    select e.position
    from leat.events e
    where e.channel_id = c.id
      and e.kind in ('channel.declared', 'channel.altered')
    order by e.position
    limit 1
) x
where x.position > $1
  and ` + livingSQL + `
  and c.kind <> 'stream'
  and ($2::integer is null or c.id = $2)`

// hasSettings refuses a moment at which a channel, or one of them, had settings that have
// left the log, and others since.
func (q *Queries) hasSettings(ctx context.Context, m Moment, channel *eventstore.ChannelID) error {
	var first eventstore.Position
	if err := q.pool.QueryRow(ctx, settingsSQL, m.Position, channel).Scan(&first); err != nil || first == 0 {
		return err
	}
	e := eventstore.NewError(eventstore.EventsGone,
		"What settings channels had is known from position %d on: what was before has left the log by its retention.", first)
	e.First = first
	return e
}

const channelAtSQL = `-- queries.channelAt
select c.id, c.kind
from leat.channels c
where c.name = $2
  and ` + livingSQL

// channelAt is the channel that had the name at the moment.
func (q *Queries) channelAt(ctx context.Context, name string, m Moment) (found, error) {
	missing := eventstore.NewError(eventstore.ChannelNotFound, "There was no channel %.300q at position %d.", name, m.Position)
	if checkText("channel", name) != nil {
		return found{}, missing
	}
	rows, err := q.pool.Query(ctx, channelAtSQL, m.Position, name)
	if err != nil {
		return found{}, err
	}
	return one(rows, pgx.RowToStructByPos[found], missing)
}

// queueAt is channelAt of a queue.
func (q *Queries) queueAt(ctx context.Context, name string, m Moment) (eventstore.ChannelID, error) {
	c, err := q.channelAt(ctx, name, m)
	if err == nil && c.Kind == kindExchange || c.Kind == kindStream {
		err = eventstore.NewError(eventstore.ChannelNotFound, "There was no queue %q at position %d: it was of the kind %s.", name, m.Position, c.Kind)
	}
	return c.ID, err
}

// channelsAtSQL has the channels of the moment with the settings that they had, but
// streams, which keep their past themselves.
const channelsAtSQL = `
with living as materialized (
    select (jsonb_populate_record(c, coalesce(d.data, '{}'))).*
    from leat.channels c
    left join lateral (
        select e.data
        from leat.events e
        where e.channel_id = c.id
          and e.position <= $1
          and e.kind in ('channel.declared', 'channel.altered')
        order by e.position desc
        limit 1
    ) d on true
    where ` + livingSQL + `
      and c.kind <> 'stream'
      and ($3::integer is null or c.id = $3)
), folded as (
    select f.*,
           f.state = 0 or (f.state = 1 and f.due_at <= $2) as is_ready
    from leat.fold(true, false, $1, array(select c.id from living c where c.kind = 'queue')) f
), counts as materialized (
    select f.channel_id,
           count(*) filter (where f.is_ready) as ready,
           count(*) filter (where f.state = 1 and not f.is_ready) as delayed,
           count(*) filter (where f.state = 2) as in_flight,
           count(*) filter (where f.state = 3) as dead,
           min(f.id) filter (where f.is_ready) as oldest
    from folded f
    group by f.channel_id
), open as materialized (
    select k.channel_id, count(*) as circuits
    from leat.fold_circuits($1, array(select c.id from living c where c.mode = 'fifo')) k
    group by k.channel_id
)
select ` + channelColumnsSQL + `,
       coalesce(n.ready, 0),
       coalesce(n.delayed, 0),
       coalesce(n.in_flight, 0),
       coalesce(n.dead, 0),
       coalesce(o.circuits, 0),
       coalesce($2 - e.at, interval '0'),
       0, 0, 0, 0
from living c
left join leat.channels d on d.id = c.dead_letter_to
left join counts n on n.channel_id = c.id
left join open o on o.channel_id = c.id
left join lateral (
    select e.at from leat.events e where e.position >= n.oldest order by e.position limit 1
) e on true
order by c.name`

const channelsAsOfSQL = `-- queries.channelsAsOf` + channelsAtSQL

// ChannelsAsOf lists the queues and exchanges that there were, by name, with what was
// in them.
func (q *Queries) ChannelsAsOf(ctx context.Context, m Moment) ([]ChannelStatus, error) {
	err := q.reaches(ctx, m, nil)
	if err == nil {
		err = q.hasSettings(ctx, m, nil)
	}
	if err != nil {
		return nil, wrap(err, "list channels as of %d", m.Position)
	}
	channels, err := past(ctx, q, scanChannel, channelsAsOfSQL, m.Position, m.At, nil)
	return channels, wrap(err, "list channels as of %d", m.Position)
}

// ChannelAsOf looks at the queue or exchange that had the name.
func (q *Queries) ChannelAsOf(ctx context.Context, name string, m Moment) (c ChannelStatus, err error) {
	found, err := q.channelAt(ctx, name, m)
	if err == nil && found.Kind == kindStream {
		err = invalid("asOf", "is of queues and exchanges: a stream keeps its past itself, and is read from a time on")
	}
	if err == nil {
		err = q.reaches(ctx, m, &found.ID)
	}
	if err == nil {
		err = q.hasSettings(ctx, m, &found.ID)
	}
	if err != nil {
		return c, wrap(err, "look at channel %q as of %d", name, m.Position)
	}
	channels, err := past(ctx, q, scanChannel, channelsAsOfSQL, m.Position, m.At, found.ID)
	if err != nil {
		return c, wrap(err, "look at channel %q as of %d", name, m.Position)
	}
	return channels[0], nil
}

const messagesAsOfSQL = `-- queries.messagesAsOf
with page as (
    select f.*
    from (
        select f.id, coalesce(f.origin, f.id) as origin, f.routing_key, f.rank, f.state, f.deliveries, f.due_at, f.expires_at,
            f.delivery, f.owner, f.reason, f.died_at, f.headers,
            case when f.state = 1 and f.due_at <= $12 then 0 else f.state end as shown
        from leat.fold(true, false, $11, array[$1::integer]) f
        where f.id > $2
          and ($10::text is null or f.routing_key = $10)
    ) f
    where ($4::smallint is null or f.shown = $4)
      and ($7::text is null or f.reason = $7)
      and ($8::timestamptz is null or f.died_at >= $8)
      and ($9::timestamptz is null or f.died_at < $9)
    order by f.id
    limit $3
)` + shownMessagesSQL

func (q *Queries) messagesAsOf(
	ctx context.Context, queue string, f MessagesFilter, after cursor, limit int, state *int16,
) ([]sized[Message], error) {
	m := *f.AsOf
	channel, err := q.queueAt(ctx, queue, m)
	if err == nil {
		err = q.reaches(ctx, m, &channel)
	}
	if err != nil {
		return nil, err
	}
	rows, err := past(ctx, q, withTotal(scanMessage), messagesAsOfSQL, channel, after, limit+1, state, f.WithPayload, pageBytes,
		optional(f.Reason), optionalTime(f.DiedAfter), optionalTime(f.DiedBefore), f.RoutingKey, m.Position, m.At)
	for _, r := range rows {
		if r.row.PublishedAt.Unix() == 0 { // it was alive then, and its payload has left the log since
			return nil, errors.Join(err, q.stillThere(ctx, eventstore.Position(r.row.OriginID)))
		}
	}
	return rows, err
}

const circuitsAsOfSQL = `-- queries.circuitsAsOf
select r.channel_id,
       c.name,
       r.routing_key,
       r.state,
       coalesce(r.message_id, 0),
       coalesce(r.reason, ''),
       r.opened_at,
       r.changed_at,
       r.probe_at,
       case when r.state = 'half_open' then array[r.message_id] else '{}' end
from leat.fold_circuits($1, array(
    select c.id
    from leat.channels c
    where ` + livingSQL + `
      and c.mode = 'fifo'
      and ($2::integer is null or c.id = $2))) r
join leat.channels c on c.id = r.channel_id
where ($3::text is null or r.routing_key = $3)
  and ($4::text is null or r.state = $4)
  and (r.channel_id, r.routing_key) > ($5, $6::text)
order by r.channel_id, r.routing_key
limit $7`

func (q *Queries) circuitsAsOf(ctx context.Context, f CircuitsFilter, after keyCursor, limit int) ([]Circuit, error) {
	var channel *eventstore.ChannelID
	if f.Channel != "" {
		found, err := q.channelAt(ctx, f.Channel, *f.AsOf)
		if err != nil {
			return nil, err
		}
		channel = &found.ID
	}
	if err := q.reaches(ctx, *f.AsOf, channel); err != nil {
		return nil, err
	}
	return past(ctx, q, pgx.RowToStructByPos[Circuit], circuitsAsOfSQL, f.AsOf.Position, channel, f.RoutingKey, optional(f.State),
		after.channel, after.key, limit+1)
}

const timeoutSQL = `-- queries.timeout
select set_config('statement_timeout', $1, true)`

// past is collect for statements that read the log up to some position: one at a time,
// because each may take a processor and hundreds of megabytes, and not without an end.
func past[T any](ctx context.Context, q *Queries, scan pgx.RowToFunc[T], sql string, args ...any) (list []T, err error) {
	select {
	case q.folding <- struct{}{}:
		defer func() { <-q.folding }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	err = pgx.BeginTxFunc(ctx, q.pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, timeoutSQL, strconv.FormatInt(asOfWithin.Milliseconds(), 10)); err != nil {
			return err
		}
		list, err = collect(ctx, tx, scan, sql, args...)
		return err
	})
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok && refused.Code == "57014" && ctx.Err() == nil {
		slow := eventstore.NewError(eventstore.Busy, "To read the log up to there takes longer than %s.", asOfWithin)
		slow.RetryAfter = asOfWithin
		return nil, slow
	}
	return list, err
}

const trimmedAtSQL = `-- queries.trimmedAt
select coalesce((
    select (e.data ->> 'firstOffset')::bigint
    from leat.events e
    where e.channel_id = $1
      and e.position <= $2
      and e.kind = 'stream.trimmed'
      and e.kind in ('stream.trimmed', 'point.created', 'point.committed', 'point.reset', 'point.deleted')
    order by e.position desc
    limit 1), 0) > $3`

const deletedAtSQL = `-- queries.deletedAt
select not exists (
    select
    from leat.events x
    where x.channel_id = $1
      and x.position > $2
      and x.kind = 'channel.deleted')`

// MessageAsOf says where a message was.
func (q *Queries) MessageAsOf(ctx context.Context, id eventstore.MessageID, m Moment) (Message, error) {
	message, err := q.message(ctx, id, &m)
	return message, wrap(err, "look at message %d as of %d", id, m.Position)
}

// at makes of a beginning what was known of it at the moment.
func (b *beginning) at(ctx context.Context, q *Queries, m Moment) (err error) {
	if b.Deleted {
		err = q.pool.QueryRow(ctx, deletedAtSQL, b.ChannelID, m.Position).Scan(&b.Deleted)
	}
	if err == nil && b.Trimmed {
		err = q.pool.QueryRow(ctx, trimmedAtSQL, b.ChannelID, m.Position, *b.Offset).Scan(&b.Trimmed)
	}
	return err
}
