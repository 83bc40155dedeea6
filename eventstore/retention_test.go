package eventstore_test

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"leat/eventstore"
	"leat/projections"
	"leat/queries"
)

// smallPartition is the size of partitions here; seals are not cut finer.
const smallPartition = 1024

// small is a log in small partitions.
func newSmallLog(t *testing.T) *chain {
	t.Helper()
	c := newChain(t)
	c.exec(`select leat.make_partitions($1)`, smallPartition)
	c.exec(`select leat.declare_channel('q', 'queue', 'standard', '{}', 'test')`)
	return c
}

// fill ends the partition that is written to, with messages that are done with.
func (c *chain) fill() {
	c.t.Helper()
	c.exec(`insert into leat.events (kind, channel_id, actor, routing_key, payload)
		select 'message.published', 1000, 'test', '', 'x' from generate_series(1, $1 - (select last_value % $1 from leat.position_seq) + 1)`, smallPartition)
	c.exec(`select leat.make_partitions($1)`, smallPartition)
}

func (c *chain) retention() *eventstore.Retention {
	return &eventstore.Retention{Store: c.store, Age: time.Nanosecond}
}

func (c *chain) drop() eventstore.Position {
	c.t.Helper()
	to, err := c.retention().Drop(c.t.Context())
	require.NoError(c.t, err)
	return to
}

// pins are what keeps the first partition.
func (c *chain) pins() (what []string) {
	c.t.Helper()
	state, err := c.retention().State(c.t.Context())
	require.NoError(c.t, err)
	for _, p := range state.Partitions[0].Pins {
		what = append(what, p.What)
	}
	return what
}

// whole holds the views against all of the log that is left, and makes them anew of it.
func (c *chain) whole() {
	c.t.Helper()
	views := projections.New(c.pool, slog.New(slog.DiscardHandler))
	for range 2 {
		for _, fromCheckpoint := range []bool{true, false} {
			differences, err := views.Verify(c.t.Context(), fromCheckpoint, 5)
			require.NoError(c.t, err)
			require.Empty(c.t, differences)
		}
		_, err := views.Rebuild(c.t.Context())
		require.NoError(c.t, err)
	}
}

// What nothing points into leaves the log; what is left is all that views, streams and
// points need. Whoever asks for what was before is told so.
func TestRetention(t *testing.T) {
	t.Parallel()
	c := newSmallLog(t)
	c.exec(`select leat.declare_channel('s', 'stream', 'stream', '{}', 'test')`)
	c.exec(`select leat.declare_point('s', 'p', 1, 'earliest', null, null, null, 'test'),
		leat.declare_point('s', 'g', 3, 'earliest', null, null, null, 'test')`)
	c.exec(`select leat.publish_batch('s', array['a', 'bb', 'ccc']::bytea[])`)
	c.exec(`select leat.commit_points(array[p.channel_id], array[p.name], array[p.partition], '{1}', '{null}', '{null}', '{null}',
		array[o.generation], '{null}', '{test}') from leat.point_positions p join leat.points o using (channel_id, name) where p.partition = 0`)
	c.exec(`select leat.alter_channel('s', '{"retention_messages": 1}', 'test'), leat.trim_streams(10)`)
	c.exec(`select leat.publish('q', 'x')`)
	c.exec(`select leat.ack('q', array(select receipt from leat.poll('q')))`)
	c.exec(`select leat.checkpoint(0)`)
	for range 3 {
		c.fill()
	}
	require.Equal(t, []string{"stream", "checkpoint"}, c.pins())
	require.Zero(t, c.drop())
	c.exec(`select leat.publish_batch('s', array['dddd']::bytea[]), leat.trim_streams(10)`)
	require.Equal(t, []string{"checkpoint"}, c.pins())

	q := queries.New(c.pool)
	_, cursor, err := q.Events(t.Context(), queries.EventsFilter{Limit: 1})
	require.NoError(t, err)
	to := c.drop()
	require.EqualValues(t, 3*smallPartition, to)
	c.whole()
	c.exec(`select leat.publish_batch('s', array['e']::bytea[])`)
	c.whole()

	for name, f := range map[string]queries.EventsFilter{
		"from": {From: to}, "to": {To: to}, "cursor": {Cursor: cursor}, "message": {MessageID: 7},
	} {
		_, _, err := q.Events(t.Context(), f)
		var gone *eventstore.Error
		require.ErrorAs(t, err, &gone, name)
		require.Equal(t, eventstore.EventsGone, gone.Code, name)
		require.Equal(t, to+1, gone.First, name)
	}
	_, _, err = q.History(t.Context(), 7, queries.HistoryFilter{})
	require.ErrorIs(t, err, &eventstore.Error{Code: eventstore.EventsGone})
	events, _, err := q.Events(t.Context(), queries.EventsFilter{Kinds: []eventstore.Kind{eventstore.LogDropped}})
	require.NoError(t, err)
	require.Len(t, events, 1)
	all, _, err := q.Events(t.Context(), queries.EventsFilter{Limit: 1})
	require.NoError(t, err)
	require.Greater(t, all[0].Position, to)
}

// Each of these keeps the partition that it needs, and no longer.
func TestRetentionPins(t *testing.T) {
	t.Parallel()
	c := newSmallLog(t)
	c.exec(`select leat.declare_channel('f', 'queue', 'fifo', '{}', 'test'), leat.declare_channel('e', 'stream', 'stream', '{}', 'test')`)
	settle := func(queue string) {
		c.exec(`select leat.ack($1, array(select receipt from leat.poll($1, 100)))`, queue)
	}
	for _, pin := range []struct {
		what          []string
		needs, spares string
	}{
		{[]string{"messages"}, `select leat.publish('q', 'x')`, ``},
		{[]string{"messages"}, `select leat.nack('q', array(select receipt from leat.poll('q')), 'deadLetter')`, `select leat.recover_all('q'), leat.ack('q', array(select receipt from leat.poll('q', 100)))`},
		{[]string{"dedup"}, `select leat.publish('q', 'x', dedup_id => 'd')`, `delete from leat.dedup`},
		{[]string{"circuit"}, `select leat.open_circuit('f', 'k')`, `select leat.close_circuit('f', 'k')`},
		{[]string{"projection"}, `insert into leat.projections (name, generation, version, state) values ('p', 1, 1, 'live')`, `delete from leat.projections`},
		{[]string{"stream"}, `select leat.publish('e', 'x')`, `select leat.delete_channel('e', true, 'test')`},
	} {
		if pin.what[0] == "messages" && pin.spares != "" {
			c.exec(`select leat.publish('q', 'x')`)
		}
		c.exec(pin.needs)
		if pin.what[0] == "dedup" {
			settle("q")
		}
		c.fill()
		require.Equal(t, pin.what, c.pins(), pin.needs)
		require.Zero(t, c.drop())
		if pin.spares == "" {
			settle("q")
		} else {
			c.exec(pin.spares)
		}
		require.NotZero(t, c.drop(), pin.needs)
	}
	c.whole()
}

// A copy needs the event of its origin, also one that was made while the log was
// looked at.
func TestRetentionKeepsOrigins(t *testing.T) {
	t.Parallel()
	c := newSmallLog(t)
	c.exec(`select leat.declare_channel('r', 'queue', 'standard', '{}', 'test')`)
	var id int64
	require.NoError(t, c.pool.QueryRow(t.Context(), `select leat.publish('q', 'x')`).Scan(&id))
	c.exec(`select leat.nack('q', array(select receipt from leat.poll('q')), 'deadLetter')`)
	c.fill()
	c.exec(`select leat.redrive('q', 'r', array[$1::bigint])`, id)
	c.fill()
	require.Equal(t, []string{"messages"}, c.pins())
	require.Zero(t, c.drop())
	var event *int64
	require.NoError(t, c.pool.QueryRow(t.Context(), `select leat.drop_log($1, $2, 1, '{}')`, smallPartition, smallPartition).Scan(&event))
	require.Nil(t, event)
	c.exec(`select leat.ack('r', array(select receipt from leat.poll('r')))`)
	require.NotZero(t, c.drop())
	c.whole()
}

// A replay keeps what it has yet to read, and the payloads of that, until it is done, or
// has not gone on for a day.
func TestRetentionKeepsReplays(t *testing.T) {
	t.Parallel()
	c := newSmallLog(t)
	c.exec(`select leat.declare_channel('e', 'stream', 'stream', '{}', 'test'), leat.declare_channel('to', 'queue', 'standard', '{}', 'test')`)
	start := func(source string) {
		c.exec(`select leat.start_replay(leat.plan_replay($1, 'to', null, null, null, null, null, null, null, 0, 'test'))`, source)
	}
	over := []string{`update leat.replays set finished = true`, `update leat.replays set changed_at = changed_at - interval '25 hours'`}

	for _, over := range over {
		c.exec(`select leat.publish('q', 'x')`)
		c.exec(`select leat.ack('q', array(select receipt from leat.poll('q')))`)
		start("q")
		c.fill()
		require.Equal(t, []string{"replay"}, c.pins())
		require.Zero(t, c.drop())
		c.exec(over)
		require.NotZero(t, c.drop())
	}

	// Of a stream that keeps only its last message, and of copies of what it had.
	c.exec(`select leat.publish_batch('e', array['a', 'b']::bytea[])`)
	c.exec(`select leat.declare_link('e', 'to', 'all', null, null, null, null, null, null)`)
	c.exec(`select leat.publish('e', 'c')`)
	c.exec(`select leat.ack('to', array(select receipt from leat.poll('to')))`)
	start("e")
	c.exec(`select leat.alter_channel('e', '{"retention_messages": 1}', 'test')`)
	c.fill()
	c.exec(`select leat.publish('e', 'd'), leat.trim_streams(10)`)
	require.Equal(t, []string{"replay"}, c.pins())
	c.exec(`update leat.replays set next = 3 where not finished`)
	require.Empty(t, c.pins())
	c.exec(`update leat.replays set finished = true`)

	// Of a copy whose payload is older.
	require.NotZero(t, c.drop())
	c.exec(`select leat.publish('q', 'x')`)
	c.exec(`select leat.nack('q', array(select receipt from leat.poll('q')), 'deadLetter')`)
	c.fill()
	c.exec(`select leat.redrive('q', 'to', array(select max(position) from leat.events where kind = 'message.published'))`)
	c.exec(`select leat.ack('to', array(select receipt from leat.poll('to', 100)))`)
	require.NotContains(t, c.pins(), "replay")
	start("to")
	c.exec(`update leat.replays set next = (select max(position) from leat.events where kind = 'message.copied') where not finished`)
	require.Contains(t, c.pins(), "replay")
}

// The chain goes on behind what was dropped, and tells what somebody dropped by hand.
// What is not sealed, or not archived where it has to be, stays.
func TestRetentionAndChain(t *testing.T) {
	t.Parallel()
	c := newSmallLog(t)
	retention := c.retention()
	retention.Sealed, retention.Archived = true, true
	for range 4 {
		c.fill()
	}
	to, err := retention.Drop(t.Context())
	require.NoError(t, err)
	require.Zero(t, to)
	state, err := retention.State(t.Context())
	require.NoError(t, err)
	require.True(t, slices.ContainsFunc(state.Partitions[0].Pins, func(p eventstore.LogPin) bool { return p.What == "unsealed" }))
	require.NoError(t, c.store.SealAll(t.Context(), 0))
	before := c.verify(nil)
	c.exec(`select leat.append_log('log.archived', 'test', '{"from": 1, "to": 1500}')`)
	c.exec(`select leat.append_log('log.archived', 'test', '{"from": 1501, "to": 2048}')`)
	to, err = retention.Drop(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2*smallPartition, to)

	c.append(10)
	require.NotNil(t, c.seal())
	after := c.verify(&before.End.Digest)
	require.Empty(t, after.Faults)
	require.True(t, after.Met)
	require.Less(t, after.Events, before.Events)

	c.exec(`drop table leat.events_` + "2049")
	kinds, faults := c.faults()
	require.Contains(t, kinds, eventstore.FaultRemoved)
	require.EqualValues(t, 2*smallPartition+1, faults[0].From)
}

// F40b: somebody's long transaction neither lets the log be dropped nor keeps others
// from publishing.
func TestRetentionDoesNotWait(t *testing.T) {
	t.Parallel()
	c := newSmallLog(t)
	c.fill()
	open, err := c.pool.Begin(context.Background())
	require.NoError(t, err)
	_, err = open.Exec(t.Context(), `select leat.publish('q', 'x')`)
	require.NoError(t, err)
	_, err = c.retention().Drop(t.Context())
	require.ErrorIs(t, err, &eventstore.Error{Code: eventstore.Busy})
	require.NoError(t, open.Commit(t.Context()))
	require.NotZero(t, c.drop())
	c.whole()
}
