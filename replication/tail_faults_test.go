package replication_test

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"leat/eventstore"
	"leat/migrations/dbtest"
	"leat/replication"
)

// F29: a connection that dies without a word is noticed, because the server does not
// answer.
func TestF29TailSilenced(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	way, address := newProxy(t, pool)
	tl := startTail(t, pool, address, func(c *replication.TailConfig) {
		c.StatusEvery, c.Silence = 100*time.Millisecond, 2*time.Second
	})
	tl.live(t, 1)
	// Idle is not dead: the server answers when it is asked.
	alive := tl.State().Received
	exec(t, pool, `create table public.unrelated as select generate_series(1, 100000) n`)
	require.Eventually(t, func() bool { return tl.State().Received > alive }, patience, 5*time.Millisecond)
	require.Zero(t, tl.State().Reconnects)

	way.silence()
	tl.reason(t, "the server has been silent for 2")
	way.speak()
	tl.live(t, 2)
	put(t, pool, 1, 0)
	require.Len(t, tl.sink.next(t, 1), 1)
}

// F29: what is written elsewhere is confirmed too: the server keeps no log for a
// broker that has nothing to read.
func TestF29IdleSlotFollows(t *testing.T) {
	t.Parallel()
	pool, address := on(t, map[string]string{"fsync": "off"})
	tl := startTail(t, pool, address, func(c *replication.TailConfig) { c.StatusEvery = 100 * time.Millisecond })
	tl.live(t, 1)
	exec(t, pool, `create table public.unrelated as select repeat('x', 1000) from generate_series(1, 50000)`)
	end := ask[string](t, pool, `select pg_current_wal_lsn()::text`)
	require.Eventually(t, func() bool {
		return ask[bool](t, pool, `select confirmed_flush_lsn >= $1::pg_lsn from pg_replication_slots`, end)
	}, patience, 20*time.Millisecond)
}

// F32: a reader that takes too long loses its slot to max_slot_wal_keep_size, and
// goes on with a new one.
func TestF32SlotInvalidated(t *testing.T) {
	t.Parallel()
	pool, address := on(t, map[string]string{
		"fsync": "off", "max_slot_wal_keep_size": "16MB", "max_wal_size": "32MB", "min_wal_size": "32MB", "wal_sender_timeout": "0",
	})
	held := make(chan struct{})
	release := sync.OnceFunc(func() { close(held) })
	tl := startTail(t, pool, address, func(c *replication.TailConfig) { c.Sink.(*sink).hold = held })
	t.Cleanup(release)
	tl.live(t, 1)
	put(t, pool, 1, 0) // held by the sink
	for range 6 {
		exec(t, pool, `select pg_logical_emit_message(false, 'unrelated', repeat('x', 20 << 20))`)
		exec(t, pool, `checkpoint`)
	}
	require.Eventually(t, func() bool {
		return ask[int](t, pool, `select count(*) from pg_replication_slots where active`) == 0
	}, patience, 20*time.Millisecond)
	release()
	tl.live(t, 2)
	put(t, pool, 1, 99)
	require.Eventually(t, func() bool {
		return tl.sink.next(t, 1)[0].Offset == 99
	}, patience, time.Microsecond)
}

// F28: the tail comes back after every way in which PostgreSQL may stop.
func TestF28TailAfterRestart(t *testing.T) {
	t.Parallel()
	server := dbtest.Cluster(t, map[string]string{"fsync": "off"})
	pool, err := pgxpool.New(ctx, server.URL())
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	tl := startTail(t, pool, server.URL(), nil)
	tl.live(t, 1)
	for i, stop := range []func(){func() {}, server.Kill} {
		stop()
		require.NoError(t, server.Restart(ctx))
		tl.live(t, i+2)
		require.Eventually(t, func() bool { return pool.Ping(ctx) == nil }, patience, 5*time.Millisecond)
		put(t, pool, 1, eventstore.Offset(i))
		require.Equal(t, eventstore.Offset(i), tl.sink.next(t, 1)[0].Offset)
	}
}

// counter is a sink that keeps nothing.
type counter struct {
	replication.Silent

	live atomic.Bool
	n    atomic.Int64
	bad  atomic.Int64 // not the next offset
}

func (c *counter) Live() { c.live.Store(true) }

func (c *counter) Wants(eventstore.ChannelID, eventstore.Offset) bool { return true }

func (c *counter) Message(_ eventstore.ChannelID, m *eventstore.StreamMessage) {
	if int64(m.Offset) != c.n.Add(1)-1 {
		c.bad.Add(1)
	}
}

// F30: a large transaction takes no more memory than a small one, and one that is
// rolled back is never seen.
func TestF30LargeTransaction(t *testing.T) {
	t.Parallel()
	const messages = 50_000
	pool, address := dbtest.NewURL(t)
	c := &counter{}
	startTail(t, pool, address, func(config *replication.TailConfig) { config.Sink = c })
	require.Eventually(t, c.live.Load, patience, 5*time.Millisecond)
	const large = `
		insert into leat.events (kind, channel_id, stream_offset, routing_key, payload)
		select 'message.published', 1, n, 'k', convert_to(repeat('x', 2048), 'UTF8') from generate_series(0, $1 - 1) n`
	tx, err := pool.Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, large, messages/10)
	require.NoError(t, err)
	require.NoError(t, tx.Rollback(ctx))
	_, err = pool.Exec(ctx, large, messages)
	require.NoError(t, err)
	var most uint64
	require.Eventually(t, func() bool {
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		most = max(most, stats.HeapInuse)
		return c.n.Load() == messages
	}, 2*patience, 5*time.Millisecond)
	require.Zero(t, c.bad.Load(), "in order, from the first")
	require.Less(t, most, uint64(90<<20), "100 MiB went through")
}

// G7: with a real tail, subscribers get every message exactly once and in order
// while walsenders are killed and the publication is dropped.
func TestG7ExactThroughLostSlots(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, decoder string) {
		pool, address := dbtest.NewURL(t)
		hub := startHub(t, replication.HubConfig{Pool: pool})
		s := newStream(t, pool, "s")
		tl := startTail(t, pool, address, func(c *replication.TailConfig) {
			c.Decoder, c.Sink, c.Wanted = decoder, hub, hub.Reading
		})
		r := read(t, s.subscribe(hub, eventstore.SubscribeRequest{Stream: "s"}))
		random := rand.New(rand.NewPCG(1, 2))
		for range 300 {
			if random.IntN(2) == 0 {
				s.append(1 + random.IntN(20))
			} else {
				s.copies(1 + random.IntN(5))
			}
			switch random.IntN(30) {
			case 0:
				exec(t, pool, killWalsender)
			case 1:
				exec(t, pool, `drop publication if exists leat_streams`)
			case 2:
				require.Eventually(t, func() bool { return tl.State().Mode == replication.ModeWAL && tl.State().Slot != "" },
					patience, 5*time.Millisecond)
			}
		}
		r.until(s.next)
	})
}
