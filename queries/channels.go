package queries

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"leat/eventstore"
)

// Channel is a declared channel with its policy.
type Channel struct {
	ID                eventstore.ChannelID
	Name              string
	Kind              string // queue, stream or exchange
	Mode              string // of a queue: standard or fifo
	Type              string // of an exchange: direct, fanout, topic or headers
	Lease             time.Duration
	MaxDeliveries     int
	RetryStrategy     string // exponential or fixed
	BaseDelay         time.Duration
	MaxDelay          time.Duration
	Jitter            float64
	NonRetryable      []string
	DeadLetterExpired bool
	DedupWindow       time.Duration
	PriorityAgeing    time.Duration

	DeadLetterTo        string // name of a channel, "" if none
	DeadLetterRetention time.Duration
	Circuit             bool // of a FIFO queue, and what follows too
	CircuitCoolDown     time.Duration
	CircuitThreshold    int
	RetentionAge        time.Duration // of a stream, and what follows too; 0 is no bound
	RetentionBytes      int64
	RetentionMessages   int64

	DeclaredAt time.Time
	Epoch      eventstore.Position
}

// ChannelStatus is a channel and what is in it.
type ChannelStatus struct {
	Channel
	Ready          int64
	Delayed        int64
	InFlight       int64
	Dead           int64
	OpenCircuits   int64
	OldestReadyAge time.Duration // since the publish of the oldest ready message, 0 when none is ready
	Stream         StreamStatus  // of a stream
}

// StreamStatus is what is in a stream.
type StreamStatus struct {
	First  eventstore.Offset // that it keeps
	End    eventstore.Offset // that the next message will get
	Bytes  int64             // of the payloads that it keeps
	Points int64             // replication points
}

// Every run is looked at, once for all channels: a queue of a million messages
// has 5,000 runs or more.
const channelsSQL = `-- queries.Channels
with counts as materialized (
    select r.channel_id, ` + countsSQL + `
    from leat.queue_runs r
    group by r.channel_id
)` + withCountsSQL + `
where c.deleted_at is null
order by c.name`

// The predicates of the partial indexes are spelled out, so that the counts of
// one channel read its own runs; runs in flight are few, and have no index by
// channel.
const channelSQL = `-- queries.Channel
with counts as materialized (
    select r.channel_id, ` + countsSQL + `
    from (
        select * from leat.queue_runs r where r.channel_id = $1 and r.state <= 1
        union all
        select * from leat.queue_runs r where r.channel_id = $1 and r.state = 2
        union all
        select * from leat.queue_runs r where r.channel_id = $1 and r.state = 3
    ) r
    group by r.channel_id
)` + withCountsSQL + `
where c.deleted_at is null
  and c.id = $1`

const countsSQL = `sum(cardinality(r.ids)) filter (where r.state = 0 or (r.state = 1 and r.due_at <= statement_timestamp())) as ready,
        sum(cardinality(r.ids)) filter (where r.state = 1 and r.due_at > statement_timestamp()) as delayed,
        sum(cardinality(r.ids)) filter (where r.state = 2) as in_flight,
        sum(cardinality(r.ids)) filter (where r.state = 3) as dead,
        min(r.first_id) filter (where r.state = 0 or (r.state = 1 and r.due_at <= statement_timestamp())) as oldest`

const channelColumnsSQL = `c.id,
       c.name,
       c.kind,
       case when c.kind = 'queue' then c.mode else '' end,
       case when c.kind = 'exchange' then c.mode else '' end,
       c.lease,
       c.max_deliveries,
       c.retry_strategy,
       c.base_delay,
       c.max_delay,
       c.jitter,
       c.non_retryable,
       c.dead_letter_expired,
       c.dedup_window,
       c.priority_ageing,
       coalesce(d.name, ''),
       c.dead_letter_retention,
       c.mode = 'fifo' and c.circuit,
       case when c.mode = 'fifo' then c.circuit_cool_down else '0' end,
       case when c.mode = 'fifo' then c.circuit_threshold else 0 end,
       c.retention_age,
       c.retention_bytes,
       c.retention_messages,
       c.declared_at,
       leat.epoch_of(c.id, c.epoch)`

const withCountsSQL = `
select ` + channelColumnsSQL + `,
       coalesce(n.ready, 0),
       coalesce(n.delayed, 0),
       coalesce(n.in_flight, 0),
       coalesce(n.dead, 0),
       (select count(*) from leat.circuits k where k.channel_id = c.id and k.state <> 'closed'),
       coalesce(clock_timestamp() - e.at, interval '0'),
       coalesce(s.first_offset, 0),
       coalesce(h.next_offset, 0),
       coalesce(h.bytes - s.first_bytes, 0),
       (select count(*) from leat.points p where p.channel_id = c.id)
from leat.channels c
left join leat.channels d on d.id = c.dead_letter_to
left join leat.streams s on s.channel_id = c.id
left join lateral (
    select * from leat.stream_heads h where h.channel_id = c.id order by h.next_offset desc limit 1
) h on true
left join counts n on n.channel_id = c.id
left join lateral ( -- a copy has no event under its id: its own comes just after
    select e.at from leat.events e where e.position >= n.oldest order by e.position limit 1
) e on true`

// Channels lists all channels by name.
func (q *Queries) Channels(ctx context.Context) ([]ChannelStatus, error) {
	var channels []ChannelStatus
	err := q.readViews(ctx, func(tx pgx.Tx) (err error) {
		channels, err = collect(ctx, tx, scanChannel, channelsSQL)
		return err
	})
	return channels, wrap(err, "list channels")
}

// Channel looks at one channel.
func (q *Queries) Channel(ctx context.Context, name string) (ChannelStatus, error) {
	var channel ChannelStatus
	err := q.readViews(ctx, func(tx pgx.Tx) error {
		id, err := channelID(ctx, tx, name)
		if err != nil {
			return err
		}
		rows, err := tx.Query(ctx, channelSQL, id)
		if err != nil {
			return err
		}
		channel, err = one(rows, scanChannel, channelNotFound(name))
		return err
	})
	return channel, wrap(err, "look at channel %q", name)
}

func scanChannel(row pgx.CollectableRow) (c ChannelStatus, err error) {
	err = row.Scan(&c.ID, &c.Name, &c.Kind, &c.Mode, &c.Type, &c.Lease, &c.MaxDeliveries, &c.RetryStrategy, &c.BaseDelay, &c.MaxDelay,
		&c.Jitter, &c.NonRetryable, &c.DeadLetterExpired, &c.DedupWindow, &c.PriorityAgeing,
		&c.DeadLetterTo, &c.DeadLetterRetention, &c.Circuit, &c.CircuitCoolDown, &c.CircuitThreshold, &c.RetentionAge, &c.RetentionBytes, &c.RetentionMessages, &c.DeclaredAt, &c.Epoch,
		&c.Ready, &c.Delayed, &c.InFlight, &c.Dead, &c.OpenCircuits, &c.OldestReadyAge,
		&c.Stream.First, &c.Stream.End, &c.Stream.Bytes, &c.Stream.Points)
	c.OldestReadyAge = max(c.OldestReadyAge, 0)
	return c, err
}

const channelIDSQL = `-- queries.channelID
select c.id, c.kind
from leat.channels c
where c.name = $1
  and c.deleted_at is null`

// channelID finds a channel.
func channelID(ctx context.Context, tx querier, name string) (eventstore.ChannelID, error) {
	c, err := findChannel(ctx, tx, name)
	return c.ID, err
}

// queueID finds a queue.
func queueID(ctx context.Context, tx querier, name string) (eventstore.ChannelID, error) {
	c, err := findChannel(ctx, tx, name)
	switch {
	case err != nil:
		return 0, err
	case c.Kind == kindExchange, c.Kind == kindStream:
		return 0, eventstore.NoQueue(name, c.Kind)
	}
	return c.ID, nil
}

// Kinds of channels that are no queues.
const (
	kindExchange = "exchange"
	kindStream   = "stream"
)

// found is what is asked of a channel first.
type found struct {
	ID   eventstore.ChannelID
	Kind string
}

// findChannel finds a channel. A name that the server cannot take is the name of
// no channel.
func findChannel(ctx context.Context, tx querier, name string) (found, error) {
	if checkText("channel", name) != nil {
		return found{}, channelNotFound(name)
	}
	rows, err := tx.Query(ctx, channelIDSQL, name)
	if err != nil {
		return found{}, err
	}
	return one(rows, pgx.RowToStructByPos[found], channelNotFound(name))
}
