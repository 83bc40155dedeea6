package projections_test

import (
	"context"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"leat/eventstore"
)

// modelPartition is the size of the log's partitions: rebuilds leave gaps as large.
const modelPartition = 65536

// modelStream is the stream t of the model, behind the exchange x and the FIFO
// queue f: all that it got, and from where on it keeps it.
type modelStream struct {
	origins []int64
	keys    []string
	first   int
}

// declareStream makes the stream, with nothing in it.
func (m *model) declareStream(t *rapid.T) {
	m.stream = modelStream{}
	m.exec(t, `select leat.declare_channel('t', 'stream', 'stream', '{}', 'test')`)
	m.exec(t, `select leat.declare_link('x', 't')`)
}

func (s *modelStream) enter(origin int64, key string) {
	s.origins, s.keys = append(s.origins, origin), append(s.keys, key)
}

// trim keeps so many messages at most.
func (m *model) trim(t *rapid.T) {
	kept := rapid.IntRange(1, 10).Draw(t, "kept")
	m.exec(t, `select leat.alter_channel('t', jsonb_build_object('retention_messages', $1::bigint), 'test')`, kept)
	m.exec(t, `select leat.trim_streams(1000)`)
	m.exec(t, `select leat.alter_channel('t', '{"retention_messages": 0}', 'test')`)
	m.stream.first = max(m.stream.first, len(m.stream.origins)-kept)
}

// redrive sends dead letters of s or d into the stream.
func (m *model) redrive(t *rapid.T) {
	queue := rapid.SampledFrom([]string{"s", "d"}).Draw(t, "queue")
	chosen, ids := m.dead(t, queue)
	if len(ids) == 0 {
		return
	}
	m.exec(t, `select leat.redrive($1, 't', $2)`, queue, ids)
	for _, message := range chosen {
		m.stream.enter(message.origin, message.key)
		delete(m.messages, message.id)
	}
}

// republish publishes again into the stream what came to x, in steps of its own size,
// and may go on as somebody else in between.
func (m *model) republish(t *rapid.T) {
	ctx := context.Background()
	size := rapid.IntRange(1, 20).Draw(t, "size")
	var id int64
	err := m.pool.QueryRow(ctx, `select r.id from leat.start_replay(leat.plan_replay('x', 't', null, null, null, null, null, null, 'a', 0, 'test')) r`).Scan(&id)
	require.NoError(t, err)
	run := 1
	for finished := false; !finished; {
		if rapid.Bool().Draw(t, "resume") {
			run++
			m.exec(t, `select leat.resume_replay($1, 'test')`, id)
		}
		err := m.pool.QueryRow(ctx, `select r.finished from leat.republish($1, $2, 'test', $3, 0) r`, id, run, size).Scan(&finished)
		require.NoError(t, err)
	}
	var begin int64 // of the log
	require.NoError(t, m.pool.QueryRow(ctx, `select leat.log_start()`).Scan(&begin))
	for _, one := range m.through {
		if one.key == "a" && one.id >= begin {
			m.stream.enter(one.id, one.key)
		}
	}
}

// point makes, commits, resets or deletes a replication point.
func (m *model) point(t *rapid.T) {
	name := rapid.SampledFrom([]string{"p", "g"}).Draw(t, "point")
	partitions := map[string]int{"p": 1, "g": 3}[name]
	m.exec(t, `select leat.declare_point('t', $1, $2, 'earliest', null, null, null, 'test')`, name, partitions)
	switch rapid.SampledFrom([]string{"commit", "commit", "reset", "delete"}).Draw(t, "what") {
	case "commit":
		m.exec(t, `select leat.commit_points(array[p.channel_id], array[p.name], array[p.partition], array[leat.stream_end(p.channel_id) - 1],
				'{null}', '{null}', '{null}', array[o.generation], '{null}', '{test}')
			from leat.point_positions p
			join leat.points o using (channel_id, name)
			where p.name = $1 and p.partition = $2`, name, rapid.IntRange(0, partitions-1).Draw(t, "partition"))
	case "reset":
		m.exec(t, `select leat.reset_point('t', $1, 'latest', null, null, null, 'test')`, name)
	default:
		m.exec(t, `select leat.delete_point('t', $1, 'test')`, name)
	}
}

// drop lets the log begin later, where nothing points to what was before.
func (m *model) drop(t *rapid.T) {
	m.exec(t, `select setval('leat.position_seq', last_value + $1) from leat.position_seq`, modelPartition)
	m.exec(t, `select leat.make_partitions($1)`, modelPartition)
	retention := &eventstore.Retention{Store: eventstore.New(m.pool), Age: 1}
	_, err := retention.Drop(context.Background())
	require.NoError(t, err)
	m.check(t)
	differences, err := m.views.Verify(context.Background(), false, 5)
	require.NoError(t, err)
	require.Empty(t, differences, "the whole log and the views")
}

// spoil is somebody's mistake that a rebuild puts right.
func (m *model) spoil(t *rapid.T) {
	m.exec(t, rapid.SampledFrom([]string{
		`select`,
		`update leat.stream_heads set bytes = bytes + 1`,
		`update leat.streams set first_offset = first_offset + 1`,
		`delete from leat.stream_heads`,
		`delete from leat.points`,
		`update leat.replays set messages = messages + 1`,
		`delete from leat.replays`,
		`update leat.point_positions set next_offset = next_offset + 7`,
	}).Draw(t, "mistake"))
}

// checkStream is G7 for what the log has: offsets without a gap, in order; and the
// log, the views and the model agree.
func (m *model) checkStream(t *rapid.T) {
	ctx := context.Background()
	var differences []string
	require.NoError(t, m.pool.QueryRow(ctx, `select array_agg(v::text) from leat.verify_streams() v`).Scan(&differences))
	require.Empty(t, differences, "the log and the streams")
	var (
		offsets, origins []int64
		keys             []string
		first, next      int
	)
	require.NoError(t, m.pool.QueryRow(ctx, `
		select coalesce(array_agg(m.stream_offset) filter (where m.message_id > 0), '{}'),
			coalesce(array_agg(m.origin_id) filter (where m.message_id > 0), '{}'),
			coalesce(array_agg(m.routing_key) filter (where m.message_id > 0), '{}'), s.first_offset, leat.stream_end(c.id)
		from leat.channels c
		join leat.streams s on s.channel_id = c.id
		left join lateral leat.stream_messages(c.id, s.first_offset, 1000000) m on true
		where c.name = 't' and c.deleted_at is null
		group by c.id, s.first_offset`).Scan(&offsets, &origins, &keys, &first, &next))
	require.Equal(t, m.stream.first, first)
	require.Equal(t, len(m.stream.origins), next)
	require.Len(t, offsets, next-first)
	for i, offset := range offsets {
		require.EqualValues(t, first+i, offset)
	}
	require.Equal(t, append([]int64{}, m.stream.origins[first:]...), origins)
	require.Equal(t, append([]string{}, m.stream.keys[first:]...), keys)
}
