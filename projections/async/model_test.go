package async_test

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/DataDog/sketches-go/ddsketch"
	"github.com/DataDog/sketches-go/ddsketch/store"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// logged is an event as the model reads it.
type logged struct {
	Position int64
	At       time.Time
	Kind     string
	Channel  int32
	Actor    string
	DueAt    *time.Time
	Key      *string
	Stored   bool // in a queue
	IDs      []int64
	Reason   string
	Detail   string
	Leaves   bool
	Keys     []string
}

const loggedSQL = `
select e.position, e.at, e.kind::text, coalesce(e.channel_id, 0), coalesce(e.actor, ''), e.due_at, e.routing_key,
    coalesce(c.kind = 'queue', false),
    case
        when e.kind = 'message.published' then array[e.position]
        else coalesce(e.message_ids, '{}') || array(select i from unnest(e.message_ranges) r, generate_series(lower(r), upper(r) - 1) i)
    end,
    coalesce(e.data ->> 'reason', ''), coalesce(e.data ->> 'errorClass', e.data ->> 'detail', ''), coalesce(e.data ? 'to', false),
    coalesce(array(select jsonb_array_elements_text(e.data -> 'keys')), '{}')
from leat.events e
left join leat.channels c on c.id = e.channel_id
order by e.position`

// bucket is a channel and a minute.
type bucket struct {
	Channel int32
	Minute  time.Time
}

type latencies struct{ first, ack []float64 }

// activity is what a consumer did in a channel.
type activity struct {
	Channel                            int32
	Consumer                           string
	FirstSeen, LastSeen                time.Time
	Delivered, Acked, Failed, Released int64
}

// failing is a key that failed.
type failing struct {
	Channel         int32
	Key, Reason     string
	Failures, Dead  int64
	FirstAt, LastAt time.Time
	LastMessage     int64
}

// model is what the projections must say, event by event and message by message.
type model struct {
	counts    map[bucket]map[string]int64
	latencies map[bucket]*latencies
	start     map[int64]time.Time
	seen      map[int64]bool
	channelOf map[int64]int32
	keys      map[int64]string
	consumers map[[2]any]*activity
	failures  map[[3]any]*failing
}

func fold(events []logged) *model {
	m := &model{
		counts: map[bucket]map[string]int64{}, latencies: map[bucket]*latencies{}, start: map[int64]time.Time{}, seen: map[int64]bool{},
		channelOf: map[int64]int32{}, keys: map[int64]string{}, consumers: map[[2]any]*activity{}, failures: map[[3]any]*failing{},
	}
	for _, e := range events {
		m.apply(e)
	}
	return m
}

func (m *model) apply(e logged) {
	if e.Kind == "channel.deleted" {
		for id, channel := range m.channelOf {
			if channel == e.Channel {
				delete(m.start, id)
			}
		}
	}
	kind, ok := columns[e.Kind]
	if !ok {
		return
	}
	b := bucket{e.Channel, e.At.UTC().Truncate(time.Minute)}
	if m.counts[b] == nil {
		m.counts[b], m.latencies[b] = map[string]int64{}, &latencies{}
	}
	m.counts[b][kind] += int64(len(e.IDs))
	for i, id := range e.IDs {
		m.message(e, i, id, m.latencies[b])
		m.failure(e, id)
	}
	m.consumer(e)
}

// columns are those of leat.channel_minutes, by kind.
var columns = map[string]string{
	"message.published": "published", "message.copied": "copied", "message.delivered": "delivered", "message.acked": "acked",
	"message.retried": "retried", "message.lease_expired": "lease_expired", "message.released": "released",
	"message.dead_lettered": "dead_lettered", "message.recovered": "recovered", "message.expired": "expired",
	"message.purged": "purged", "message.discarded": "discarded", "message.extended": "-",
}

func (m *model) message(e logged, i int, id int64, l *latencies) {
	since := func() float64 { return max(0, e.At.Sub(m.start[id]).Seconds()) }
	_, follows := m.start[id]
	switch e.Kind {
	case "message.published", "message.copied":
		m.keys[id] = ""
		if e.Key != nil {
			m.keys[id] = *e.Key
		} else if i < len(e.Keys) {
			m.keys[id] = e.Keys[i]
		}
		if e.Stored {
			m.start[id], m.channelOf[id] = e.At, e.Channel
			if e.DueAt != nil && e.DueAt.After(e.At) {
				m.start[id] = *e.DueAt
			}
		}
	case "message.delivered":
		if follows && !m.seen[id] {
			l.first = append(l.first, since())
			m.seen[id] = true
		}
	case "message.acked":
		if follows {
			l.ack = append(l.ack, since())
		}
		delete(m.start, id)
	case "message.expired", "message.purged", "message.discarded":
		delete(m.start, id)
	case "message.recovered":
		if e.Leaves {
			delete(m.start, id)
		}
	}
}

func (m *model) consumer(e logged) {
	switch e.Kind {
	case "message.delivered", "message.acked", "message.retried", "message.released", "message.extended", "message.discarded":
	case "message.dead_lettered":
		if e.Reason == "circuit_open" || e.Actor == "leat" {
			return
		}
	default:
		return
	}
	key := [2]any{e.Channel, e.Actor}
	a := m.consumers[key]
	if a == nil {
		a = &activity{Channel: e.Channel, Consumer: e.Actor, FirstSeen: e.At, LastSeen: e.At}
		m.consumers[key] = a
	}
	if e.At.Before(a.FirstSeen) {
		a.FirstSeen = e.At
	}
	if e.At.After(a.LastSeen) {
		a.LastSeen = e.At
	}
	n := int64(len(e.IDs))
	switch e.Kind {
	case "message.delivered":
		a.Delivered += n
	case "message.acked":
		a.Acked += n
	case "message.retried", "message.dead_lettered":
		a.Failed += n
	case "message.released":
		a.Released += n
	}
}

func (m *model) failure(e logged, id int64) {
	reason, failed, dead := e.Detail, true, e.Kind == "message.dead_lettered"
	switch {
	case e.Kind == "message.retried":
		reason = orElse(reason, "retried")
	case e.Kind == "message.lease_expired":
		reason = orElse(reason, "lease_expired")
	case dead && e.Reason != "circuit_open":
		failed = e.Actor != "leat" && e.Reason != "expired"
		if e.Actor == "leat" && e.Reason == "retries_exhausted" {
			reason = orElse(reason, "lease_expired")
		}
		reason = orElse(reason, e.Reason)
	default:
		return
	}
	key := [3]any{e.Channel, m.keys[id], reason}
	f := m.failures[key]
	if f == nil {
		f = &failing{Channel: e.Channel, Key: m.keys[id], Reason: reason, FirstAt: e.At, LastAt: e.At}
		m.failures[key] = f
	}
	if failed {
		f.Failures++
	}
	if dead {
		f.Dead++
	}
	if e.At.Before(f.FirstAt) {
		f.FirstAt = e.At
	}
	if e.At.After(f.LastAt) {
		f.LastAt = e.At
	}
	f.LastMessage = max(f.LastMessage, id)
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// minuteRow is a row of leat.channel_minutes.
type minuteRow struct {
	Channel       int32
	Minute        time.Time
	Counts        []int64
	FirstDelivery []byte
	Ack           []byte
}

var countColumns = []string{
	"published", "copied", "delivered", "acked", "retried", "lease_expired", "released", "dead_lettered", "recovered", "expired",
	"purged", "discarded",
}

const minutesSQL = `
select m.channel_id, m.minute,
    array[published, copied, delivered, acked, retried, lease_expired, released, dead_lettered, recovered, expired, purged, discarded],
    m.first_delivery, m.ack
from leat.channel_minutes m
join leat.projections p on p.name = 'statistics' and p.generation = m.generation and p.state = 'live'`

// requireEqual holds the live generations of all projections against a fold of the log.
func requireEqual(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	m := fold(all[logged](t, pool, loggedSQL))
	got := map[bucket]map[string]int64{}
	for _, row := range all[minuteRow](t, pool, minutesSQL) {
		b := bucket{row.Channel, row.Minute.UTC()}
		got[b] = map[string]int64{}
		for i, n := range row.Counts {
			if n != 0 {
				got[b][countColumns[i]] = n
			}
		}
		require.NotNil(t, m.latencies[b], "%v", b)
		requireSketch(t, m.latencies[b].first, row.FirstDelivery)
		requireSketch(t, m.latencies[b].ack, row.Ack)
	}
	for b, counts := range m.counts {
		delete(counts, "-") // an extension is no number
		if len(counts) == 0 {
			delete(m.counts, b)
		}
	}
	require.Equal(t, m.counts, got)
	requireActivities(t, pool, m)
	requireFailures(t, pool, m)
	requireNothingPending(t, pool, m)
}

// requireSketch compares percentiles: each is a value of the rank, but for 1 %.
func requireSketch(t testing.TB, want []float64, data []byte) {
	t.Helper()
	if len(want) == 0 {
		require.Empty(t, data)
		return
	}
	sketch, err := ddsketch.DecodeDDSketch(data, store.DefaultProvider, nil)
	require.NoError(t, err)
	require.InDelta(t, len(want), sketch.GetCount(), 0)
	slices.Sort(want)
	for _, q := range []float64{0, 0.5, 0.9, 0.99, 1} {
		value, err := sketch.GetValueAtQuantile(q)
		require.NoError(t, err)
		exact := want[int(math.Floor(q*float64(len(want)-1)))]
		require.InDelta(t, exact, value, 0.011*exact+1e-9, "percentile %v", q)
	}
}

func requireActivities(t testing.TB, pool *pgxpool.Pool, m *model) {
	t.Helper()
	got := map[[2]any]*activity{}
	for _, a := range all[activity](t, pool, `
		select a.channel_id, a.consumer, a.first_seen, a.last_seen, a.delivered, a.acked, a.failed, a.released
		from leat.consumer_activity a
		join leat.projections p on p.name = 'consumers' and p.generation = a.generation and p.state = 'live'`) {
		got[[2]any{a.Channel, a.Consumer}] = &a
	}
	require.Equal(t, m.consumers, got)
}

func requireFailures(t testing.TB, pool *pgxpool.Pool, m *model) {
	t.Helper()
	got := map[[3]any]*failing{}
	for _, f := range all[failing](t, pool, `
		select f.channel_id, f.routing_key, f.reason, f.failures, f.dead, f.first_at, f.last_at, f.last_message
		from leat.failing_keys f
		join leat.projections p on p.name = 'failures' and p.generation = f.generation and p.state = 'live'`) {
		got[[3]any{f.Channel, f.Key, f.Reason}] = &f
	}
	require.Equal(t, m.failures, got)
}

// requireNothingPending looks for rows of messages that have ended.
func requireNothingPending(t testing.TB, pool *pgxpool.Pool, m *model) {
	t.Helper()
	if len(m.start) == 0 {
		var left int
		require.NoError(t, pool.QueryRow(context.Background(), `
			select count(*)
			from leat.pending_messages m
			join leat.projections p on p.name = 'statistics' and p.generation = m.generation and p.state = 'live'`).Scan(&left))
		require.Zero(t, left)
	}
}
