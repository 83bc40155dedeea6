package queries_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"leat/commands"
	"leat/eventstore"
)

// stream makes a stream of n messages, a second apart; the last is as old as said.
// From offset 5 on it is one batch of copies.
func (b bench) stream(name string, n int, age time.Duration) (id eventstore.ChannelID) {
	b.t.Helper()
	require.NoError(b.t, b.pool.QueryRow(b.t.Context(), `
		with made as (
		    insert into leat.channels
		    select (jsonb_populate_record(leat.default_channel(), jsonb_build_object('id', nextval('leat.channels_id_seq'),
		        'name', $1::text, 'kind', 'stream', 'mode', 'stream', 'declared_at', clock_timestamp(),
		        'epoch', leat.append('channel.declared', null, 'test')))).*
		    returning id
		), begun as (insert into leat.streams select id, 0, 0 from made
		), ended as (insert into leat.stream_heads select id, $2, 0 from made
		), written as (
		    insert into leat.events (kind, channel_id, stream_offset, payload, at)
		    select 'message.published', id, g, '', clock_timestamp() - $3::interval - make_interval(secs => $2 - 1 - g)
		    from made, generate_series(0, 4) g
		), copied as (
		    insert into leat.events (kind, channel_id, stream_offset, message_ids, origin_ids, at)
		    select 'message.copied', id, 5, array(select generate_series(1, $2 - 5)), array(select generate_series(1, $2 - 5)),
		        clock_timestamp() - $3::interval
		    from made
		)
		select id from made`, name, n, age).Scan(&id))
	return id
}

func (b bench) exec(sql string, args ...any) {
	b.t.Helper()
	_, err := b.pool.Exec(b.t.Context(), sql, args...)
	require.NoError(b.t, err)
}

func TestPoints(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.stream("s", 10, time.Hour)
	b.declare("q", commands.ChannelSpec{})
	points, err := b.Points(t.Context(), "s")
	require.NoError(t, err)
	require.Empty(t, points)

	b.exec(`select leat.declare_point('s', 'begin', null, 'earliest', 0, null, null, 'test')`)
	b.exec(`select leat.declare_point('s', 'group', 3, 'offset', 8, null, null, 'test')`)
	b.exec(`select leat.declare_point('s', 'end', null, 'latest', 0, null, null, 'test')`)
	b.exec(`update leat.point_positions set next_offset = 10 where name = 'group' and partition = 0`)
	b.exec(`select leat.join_point('s', 'group', null, 'latest', 0, null, null, 'test', 'me', 'broker')`)
	b.exec(`insert into leat.point_members values ($1, 'group', 'gone', 'dead', now(), now() - interval '1 s')`, id)

	points, err = b.Points(t.Context(), "s")
	require.NoError(t, err)
	require.Len(t, points, 3)
	begin, end, group := points[0], points[1], points[2]
	require.Equal(t, "begin", begin.Name)
	require.Equal(t, "s", begin.Stream)
	require.Positive(t, begin.Next.Epoch)
	require.EqualValues(t, 0, begin.Next.Offset)
	require.EqualValues(t, 10, begin.Lag)
	require.InDelta(t, (time.Hour + 9*time.Second).Seconds(), begin.Age.Seconds(), 30)
	require.Len(t, begin.Partitions, 1)
	require.Empty(t, begin.Members)

	require.EqualValues(t, 10, end.Next.Offset)
	require.EqualValues(t, 0, end.Lag)
	require.Zero(t, end.Age)

	require.EqualValues(t, 8, group.Next.Offset, "the least")
	require.EqualValues(t, 2, group.Lag)
	require.InDelta(t, time.Hour.Seconds(), group.Age.Seconds(), 30, "of a message inside a batch")
	require.Equal(t, []eventstore.PointMember{{Name: "me", Broker: "broker"}}, group.Members, "who is gone is not there")
	require.Len(t, group.Partitions, 3)
	require.EqualValues(t, 10, group.Partitions[0].Next)
	require.Equal(t, "me", group.Partitions[2].Member)

	one, err := b.Point(t.Context(), "s", "end")
	require.NoError(t, err)
	require.Equal(t, end, one)

	_, err = b.Point(t.Context(), "s", "none")
	require.Equal(t, eventstore.PointNotFound, code(err))
	for _, stream := range []string{"none", "q", "\x00"} {
		_, err = b.Points(t.Context(), stream)
		require.Equal(t, eventstore.ChannelNotFound, code(err))
	}
}
