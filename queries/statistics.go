package queries

import (
	"context"
	"time"

	"github.com/DataDog/sketches-go/ddsketch"
	"github.com/DataDog/sketches-go/ddsketch/store"
	"github.com/jackc/pgx/v5"

	"leat/eventstore"
)

const (
	// MaxStatisticsSpan bounds the time between From and To.
	MaxStatisticsSpan = 31 * 24 * time.Hour
	// MaxStatisticsSteps bounds the intervals of a channel in one answer.
	MaxStatisticsSteps = 2000
)

// StatisticsFilter chooses statistics. Times are rounded to minutes: From down, To up.
type StatisticsFilter struct {
	Channel  string // "" is all
	From, To time.Time
	Step     time.Duration // whole minutes; 0: one interval
}

// Counts are of what happened to messages in a channel.
type Counts struct {
	Published, Copied, Delivered, Acked, Retried, LeaseExpired, Released, DeadLettered, Recovered, Expired, Purged, Discarded int64
}

// Latencies are of messages, in seconds; the percentiles are right by 1 %.
type Latencies struct {
	Count              int64
	P50, P90, P99, Max time.Duration
}

// Statistics are of one channel in one interval.
type Statistics struct {
	Channel  string
	From, To time.Time
	Counts
	FirstDelivery Latencies // since the publish, or the due time
	Ack           Latencies
}

const statisticsSQL = `-- queries.Statistics
select c.name,
       m.minute,
       m.published,
       m.copied,
       m.delivered,
       m.acked,
       m.retried,
       m.lease_expired,
       m.released,
       m.dead_lettered,
       m.recovered,
       m.expired,
       m.purged,
       m.discarded,
       m.first_delivery,
       m.ack
from leat.projections p
cross join leat.channels c
join leat.channel_minutes m on m.generation = p.generation and m.channel_id = c.id
where p.name = 'statistics'
  and p.state = 'live'
  and c.deleted_at is null
  and ($1::integer is null or c.id = $1)
  and m.minute >= $2
  and m.minute < $3
order by c.name, m.minute`

// Statistics answers what happened in channels, by name and time. Intervals without
// anything are left out. The filter is answered as it was rounded.
func (q *Queries) Statistics(ctx context.Context, f StatisticsFilter) ([]Statistics, StatisticsFilter, error) {
	if err := f.round(); err != nil {
		return nil, f, err
	}
	channel, err := q.linked(ctx, f.Channel)
	if err != nil {
		return nil, f, wrap(err, "read statistics")
	}
	rows, err := q.pool.Query(ctx, statisticsSQL, channel, f.From, f.To)
	if err != nil {
		return nil, f, wrap(err, "read statistics")
	}
	s := summary{filter: f}
	if err := s.read(rows); err != nil {
		return nil, f, wrap(err, "read statistics")
	}
	return s.list, f, nil
}

func (f *StatisticsFilter) round() error {
	f.From = f.From.UTC().Truncate(time.Minute)
	f.To = f.To.UTC().Add(time.Minute - time.Nanosecond).Truncate(time.Minute)
	switch span := f.To.Sub(f.From); {
	case span <= 0:
		return invalid("to", "must be after from")
	case span > MaxStatisticsSpan:
		return invalid("from", "must be at most 31 days before to")
	case f.Step == 0:
		f.Step = span
	case f.Step < time.Minute || f.Step%time.Minute != 0:
		return invalid("step", "must be whole minutes")
	case span > MaxStatisticsSteps*f.Step:
		return invalid("step", "must not divide the time into more than %d intervals", MaxStatisticsSteps)
	}
	return nil
}

// summary adds minutes up.
type summary struct {
	filter     StatisticsFilter
	list       []Statistics
	first, ack *ddsketch.DDSketch // of the last of list
}

func (s *summary) read(rows pgx.Rows) error {
	var (
		channel    string
		minute     time.Time
		n          Counts
		first, ack []byte
	)
	_, err := pgx.ForEachRow(rows, []any{
		&channel, &minute, &n.Published, &n.Copied, &n.Delivered, &n.Acked, &n.Retried, &n.LeaseExpired, &n.Released, &n.DeadLettered,
		&n.Recovered, &n.Expired, &n.Purged, &n.Discarded, &first, &ack,
	}, func() error {
		if err := s.interval(channel, minute); err != nil {
			return err
		}
		s.list[len(s.list)-1].add(&n)
		if err := merge(&s.first, first); err != nil {
			return err
		}
		return merge(&s.ack, ack)
	})
	if err != nil {
		return err
	}
	return s.end()
}

// interval makes the interval of a minute the last one.
func (s *summary) interval(channel string, minute time.Time) error {
	f := s.filter
	since := minute.Sub(f.From)
	from := f.From.Add(since - since%f.Step)
	if len(s.list) > 0 {
		if last := &s.list[len(s.list)-1]; last.Channel == channel && last.From.Equal(from) {
			return nil
		}
	}
	if err := s.end(); err != nil {
		return err
	}
	to := from.Add(f.Step)
	if to.After(f.To) {
		to = f.To
	}
	s.list = append(s.list, Statistics{Channel: channel, From: from, To: to})
	return nil
}

// end works out the percentiles of the last interval.
func (s *summary) end() (err error) {
	if len(s.list) == 0 {
		return nil
	}
	last := &s.list[len(s.list)-1]
	if last.FirstDelivery, err = latenciesOf(s.first); err != nil {
		return err
	}
	last.Ack, err = latenciesOf(s.ack)
	s.first, s.ack = nil, nil
	return err
}

func (c *Counts) add(n *Counts) {
	c.Published += n.Published
	c.Copied += n.Copied
	c.Delivered += n.Delivered
	c.Acked += n.Acked
	c.Retried += n.Retried
	c.LeaseExpired += n.LeaseExpired
	c.Released += n.Released
	c.DeadLettered += n.DeadLettered
	c.Recovered += n.Recovered
	c.Expired += n.Expired
	c.Purged += n.Purged
	c.Discarded += n.Discarded
}

func merge(into **ddsketch.DDSketch, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	if *into != nil {
		return (*into).DecodeAndMergeWith(data)
	}
	sketch, err := ddsketch.DecodeDDSketch(data, store.DefaultProvider, nil)
	*into = sketch
	return err
}

func latenciesOf(sketch *ddsketch.DDSketch) (l Latencies, err error) {
	if sketch == nil || sketch.IsEmpty() {
		return l, nil
	}
	values, err := sketch.GetValuesAtQuantiles([]float64{0.5, 0.9, 0.99, 1})
	if err != nil {
		return l, err
	}
	l.Count = int64(sketch.GetCount())
	for i, to := range []*time.Duration{&l.P50, &l.P90, &l.P99, &l.Max} {
		*to = time.Duration(values[i] * float64(time.Second)).Round(time.Microsecond)
	}
	return l, nil
}

// Activity is what a consumer did in a channel.
type Activity struct {
	Channel             string
	Consumer            string
	FirstSeen, LastSeen time.Time
	Delivered           int64 // to it
	Acked               int64
	Failed              int64 // retried or dead-lettered by it
	Released            int64
}

const consumersSQL = `-- queries.Consumers
select c.name,
       a.consumer,
       a.first_seen,
       a.last_seen,
       a.delivered,
       a.acked,
       a.failed,
       a.released
from leat.projections p
join leat.consumer_activity a on a.generation = p.generation
join leat.channels c on c.id = a.channel_id and c.deleted_at is null
where p.name = 'consumers'
  and p.state = 'live'
  and ($1::integer is null or a.channel_id = $1)
order by a.last_seen desc, c.name, a.consumer
limit $2`

// Consumers lists who took or settled messages, the last one first. channel "" is any.
func (q *Queries) Consumers(ctx context.Context, channel string, limit int) ([]Activity, error) {
	return ranked[Activity](ctx, q, "list consumers", consumersSQL, channel, limit)
}

// Failing is a routing key of a channel that failed, and a reason.
type Failing struct {
	Channel         string
	RoutingKey      string
	Reason          string // the error class, else the consumer's words, else the broker's
	Failures        int64  // attempts
	Dead            int64  // messages that became dead letters
	FirstAt, LastAt time.Time
	LastMessage     eventstore.MessageID
}

const failuresSQL = `-- queries.Failures
select c.name,
       k.routing_key,
       k.reason,
       k.failures,
       k.dead,
       k.first_at,
       k.last_at,
       k.last_message
from leat.projections p
join leat.failing_keys k on k.generation = p.generation
join leat.channels c on c.id = k.channel_id and c.deleted_at is null
where p.name = 'failures'
  and p.state = 'live'
  and ($1::integer is null or k.channel_id = $1)
order by k.failures + k.dead desc, k.last_at desc, c.name, k.routing_key, k.reason
limit $2`

// Failures lists the keys and reasons that failed most. channel "" is any.
func (q *Queries) Failures(ctx context.Context, channel string, limit int) ([]Failing, error) {
	return ranked[Failing](ctx, q, "list failures", failuresSQL, channel, limit)
}

func ranked[T any](ctx context.Context, q *Queries, what, sql, channel string, limit int) ([]T, error) {
	limit, err := checkLimit(limit)
	if err != nil {
		return nil, err
	}
	id, err := q.linked(ctx, channel)
	if err != nil {
		return nil, wrap(err, "%s", what)
	}
	list, err := collect(ctx, q.pool, pgx.RowToStructByPos[T], sql, id, limit)
	return list, wrap(err, "%s", what)
}
