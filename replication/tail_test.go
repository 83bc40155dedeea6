package replication_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"leat/eventstore"
	"leat/migrations/dbtest"
	"leat/replication"
)

var decoders = []string{replication.PgOutput, replication.Wal2JSON}

// each runs a test with each decoder that the server has.
func each(t *testing.T, test func(t *testing.T, decoder string)) {
	t.Helper()
	for _, decoder := range decoders {
		t.Run(decoder, func(t *testing.T) {
			t.Parallel()
			if decoder == replication.Wal2JSON {
				if _, err := dbtest.New(t).Exec(ctx, `load 'wal2json'`); err != nil {
					t.Skipf("wal2json cannot be loaded, install postgresql-15-wal2json: %v", err)
				}
			}
			test(t, decoder)
		})
	}
}

// golden is one transaction with everything that the log holds about streams, and
// about queues, which nobody hears of.
const golden = `
	insert into leat.events (position, at, kind, channel_id, stream_offset, routing_key, content_type, headers, message_ids, origin_ids, data, payload)
	overriding system value
	values
		(1001, '2026-01-02 03:04:05.678901+00', 'message.published', 7, 0, 'a.b', null, null, null, null, null, '{"n":1}'),
		(1002, '1999-12-31 23:59:59.999999+00', 'message.published', 7, 1, '', 'text/plain', '{"h": "ä\"\\ ", "z": [1, null]}', null, null, '{"dedupId": "x"}', decode('00ff5c785c27220a', 'hex')),
		(1003, '2026-01-02 03:04:05+00', 'message.published', 8, 0, 'queue', null, null, null, null, null, 'not wanted'),
		(1004, '2026-01-02 03:04:05+00', 'message.published', 9, null, 'queue', null, null, null, null, null, 'a queue'),
		(1005, '2026-01-02 03:04:05+00', 'message.published', 7, 2, E'\u00e4"name":"stream_offset","value":null', null, null, null, '{77}', null, ''),
		(1006, '2026-01-02 03:04:05+00', 'message.copied', 7, 3, null, null, null, '{1007,1008,1009}', '{1,2,3}', null, null),
		(1010, '2026-01-02 03:04:05+00', 'message.acked', 9, null, null, null, null, '{1}', null, null, null),
		(1011, '2026-01-02 03:04:05.1+00', 'message.published', 7, 6, 'k', null, null, null, null, null, convert_to(repeat('0123456789', 30000), 'UTF8'))`

func goldenEvents() []taken {
	long := strings.Repeat("0123456789", 30000)
	return []taken{
		{7, 0, 0, `1001 1001 "a.b" "application/json"  2026-01-02T03:04:05.678901Z "{\"n\":1}"`},
		{7, 1, 0, `1002 1002 "" "text/plain" {"h": "ä\"\\ ", "z": [1, null]} 1999-12-31T23:59:59.999999Z "\x00\xff\\x\\'\"\n"`},
		{7, 2, 0, `1005 77 "ä\"name\":\"stream_offset\",\"value\":null" "application/json"  2026-01-02T03:04:05Z ""`},
		{7, 3, 3, ""},
		{7, 6, 0, fmt.Sprintf(`1011 1011 "k" "application/json"  2026-01-02T03:04:05.1Z %q`, long)},
	}
}

// Both decoders make the same of the log: bytes, keys, headers, times, origins and
// rows of copies; of streams that somebody wants only.
func TestTailDecodes(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, decoder string) {
		pool, address := dbtest.NewURL(t)
		tl := startTail(t, pool, address, func(c *replication.TailConfig) {
			c.Decoder = decoder
			c.Sink.(*sink).wanted = map[eventstore.ChannelID]bool{7: true}
		})
		tl.live(t, 1)
		exec(t, pool, golden)
		require.Equal(t, goldenEvents(), tl.sink.next(t, 5))
		put(t, pool, 7, 7)
		require.Equal(t, eventstore.Offset(7), tl.sink.next(t, 1)[0].Offset)
	})
}

// A wake-up in the log is heard when its transaction commits, and not before; one of
// somebody else is not.
func TestTailWakes(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, decoder string) {
		pool, address := dbtest.NewURL(t)
		tl := startTail(t, pool, address, func(c *replication.TailConfig) { c.Decoder = decoder })
		tl.live(t, 1)
		tl.heard.all(t)
		exec(t, pool, `select pg_logical_emit_message(true, 'other', '5')`)
		exec(t, pool, `select pg_logical_emit_message(true, 'leat', 'nonsense')`)
		tx, err := pool.Begin(ctx)
		require.NoError(t, err)
		_, err = tx.Exec(ctx, `select pg_logical_emit_message(true, 'leat', '6')`)
		require.NoError(t, err)
		exec(t, pool, `do $$ begin perform pg_logical_emit_message(true, 'leat', '8'); raise exception 'no'; exception when others then end $$`)
		exec(t, pool, `select pg_logical_emit_message(true, 'leat', '7,9')`)
		require.Equal(t, []eventstore.ChannelID{7, 9}, tl.heard.next(t))
		for range 2 { // those who looked too early are woken again
			require.ElementsMatch(t, []eventstore.ChannelID{7, 9}, tl.heard.next(t))
		}
		require.NoError(t, tx.Commit(ctx))
		require.Equal(t, []eventstore.ChannelID{6}, tl.heard.next(t))
	})
}

// After a clean stop there is no slot.
func TestTailStops(t *testing.T) {
	t.Parallel()
	pool, address := dbtest.NewURL(t)
	tl := startTail(t, pool, address, nil)
	tl.live(t, 1)
	const slots = `select count(*) from pg_replication_slots where database = current_database()`
	require.Equal(t, 1, ask[int](t, pool, slots))
	tl.stop()
	require.Equal(t, 0, ask[int](t, pool, slots))
	require.False(t, tl.sink.live)
}

const killWalsender = `
	select bool_and(pg_terminate_backend(active_pid)) from pg_replication_slots where database = current_database()`

// F29, F32: whose slot or connection goes begins again with new ones, by itself, and
// is told that it may have missed something.
func TestF32TailComesBack(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, decoder string) {
		pool, address := dbtest.NewURL(t)
		tl := startTail(t, pool, address, func(c *replication.TailConfig) { c.Decoder = decoder })
		slots := map[string]bool{}
		for i := range 3 {
			tl.live(t, i+1)
			tl.heard.all(t)
			slots[tl.State().Slot] = true
			put(t, pool, 1, eventstore.Offset(i))
			require.Equal(t, eventstore.Offset(i), tl.sink.next(t, 1)[0].Offset)
			require.True(t, ask[bool](t, pool, killWalsender))
		}
		tl.live(t, 4)
		require.Len(t, slots, 3)
		state := tl.State()
		require.Equal(t, 3, state.Reconnects)
		require.Equal(t, replication.ModeWAL, state.Mode, "it was back at once")
	})
}

// F32: a publication that was dropped, or that somebody changed, is made again.
func TestF32PublicationDropped(t *testing.T) {
	t.Parallel()
	pool, address := dbtest.NewURL(t)
	tl := startTail(t, pool, address, nil)
	for i, harm := range []string{
		`drop publication leat_streams`,
		`alter publication leat_streams set (publish = 'insert, delete')`,
		`alter publication leat_streams set table leat.events (position, stream_offset)`,
		`alter publication leat_streams set table leat.events where (stream_offset > 5)`,
		`drop publication leat_streams; create publication leat_streams for all tables`,
	} {
		tl.live(t, i+1)
		put(t, pool, 1, 1)
		require.Equal(t, eventstore.Offset(1), tl.sink.next(t, 1)[0].Offset, harm)
		exec(t, pool, harm)
		exec(t, pool, killWalsender)
	}
	tl.live(t, 6)
	put(t, pool, 1, 1)
	require.Equal(t, eventstore.Offset(1), tl.sink.next(t, 1)[0].Offset)

	// Without a new connection it shows with the next message.
	exec(t, pool, `drop publication leat_streams`)
	put(t, pool, 1, 2)
	tl.live(t, 7)
	put(t, pool, 1, 3)
	require.Equal(t, eventstore.Offset(3), tl.sink.next(t, 1)[0].Offset)
}
