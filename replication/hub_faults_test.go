package replication_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"leat/eventstore"
	"leat/migrations/dbtest"
	"leat/replication"
)

// F28: a server that crashes and comes back makes subscribers wait; they go on by
// themselves with the next message.
func TestF28DatabaseAway(t *testing.T) {
	t.Parallel()
	server := dbtest.Cluster(t, nil)
	pool, err := pgxpool.New(ctx, server.URL())
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	hub := startHub(t, replication.HubConfig{Pool: pool})
	s := newStream(t, pool, "s")
	for range 3 {
		s.append(1000)
	}
	behind := read(t, s.subscribe(hub, eventstore.SubscribeRequest{Start: from(0)}))
	ahead := read(t, s.subscribe(hub, eventstore.SubscribeRequest{}))
	behind.until(500)
	server.Kill()
	for began := time.Now(); time.Since(began) < 500*time.Millisecond; {
		for _, r := range []*reader{behind, ahead} {
			batch, err := r.sub.Next(ctx, soon)
			require.NoError(t, err)
			require.NoError(t, r.check(batch))
		}
	}
	_, err = hub.Subscribe(ctx, eventstore.SubscribeRequest{Stream: "s"})
	requireCode(t, err, eventstore.DatabaseUnavailable, nil)
	require.NoError(t, server.Restart(ctx))
	require.Eventually(t, func() bool { return pool.Ping(ctx) == nil }, patience, 10*time.Millisecond)
	s.append(10)
	behind.until(3010)
	ahead.until(3010)
}

// F35: subscribers that never read cost others nothing, and a bounded memory; when
// they read at last, they miss nothing.
func TestF35NeverReads(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	const (
		rings, pages = 1 << 20, 1 << 20
		lazy         = 30
	)
	hub := startHub(t, replication.HubConfig{Pool: pool, RingsBytes: rings, PagesBytes: pages})
	hub.Live()
	s := newStream(t, pool, "s")
	s.append(4000)
	never := make([]*reader, lazy)
	for i := range never {
		never[i] = read(t, s.subscribe(hub, eventstore.SubscribeRequest{Start: from(0)}))
		never[i].until(500) // and no more, with the rest of a page at hand
	}
	fast := read(t, s.subscribe(hub, eventstore.SubscribeRequest{}))
	for range 20 {
		first := s.next
		s.append(1000)
		s.tell(hub, first, 1000)
		fast.until(s.next)
		ringBytes, pageBytes := hub.Held()
		require.LessOrEqual(t, ringBytes, int64(rings))
		require.LessOrEqual(t, pageBytes, int64(2*pages+lazy*(1<<20)))
	}
	for _, r := range never[:3] {
		r.until(s.next)
	}
	fast.sub.Close()
	for _, r := range never {
		r.sub.Close()
	}
	require.Eventually(t, func() bool {
		ringBytes, pageBytes := hub.Held()
		return ringBytes == 0 && pageBytes == 0
	}, patience, time.Millisecond)
}

// G7: with a real tail, what is rolled back never was, and what many commit at once
// comes in the order of the offsets, whatever a reader does.
func TestG7TailToSubscribers(t *testing.T) {
	t.Parallel()
	pool, address := dbtest.NewURL(t)
	hub := startHub(t, replication.HubConfig{Pool: pool, RingMessages: 100})
	tail := replication.NewTail(replication.TailConfig{
		URL: address, Pool: pool, Logger: quiet, Sink: hub, Wake: func(...eventstore.ChannelID) {},
		Fallback: func(ctx context.Context) error { <-ctx.Done(); return nil },
	})
	run(t, tail.Run)
	s := newStream(t, pool, "s")
	const writers, rounds = 6, 40
	readers := sync.WaitGroup{}
	for i := range 4 {
		readers.Go(func() {
			assert.NoError(t, s.readEverything(hub, writers*rounds*6, i))
		})
	}
	var writing sync.WaitGroup
	for i := range writers {
		writing.Go(func() {
			for n := range rounds {
				sql := write
				if (n+i)%3 == 0 {
					sql = copyIn
				}
				if n%5 == 0 {
					s.rollBack(3)
				}
				_, err := pool.Exec(ctx, sql, s.channel, 6, keys, 0)
				assert.NoError(t, err)
				if n == 20 && i == 0 {
					_, err := pool.Exec(ctx, `select pg_terminate_backend(pid) from pg_stat_replication where application_name like 'leat%'`)
					assert.NoError(t, err)
				}
			}
		})
	}
	writing.Wait()
	readers.Wait()
}

// readEverything reads up to an offset, slowly or not.
func (s *stream) readEverything(hub *replication.Hub, end eventstore.Offset, pace int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	sub, err := hub.Subscribe(ctx, eventstore.SubscribeRequest{Stream: s.name, Start: from(0)})
	if err != nil {
		return err
	}
	defer sub.Close()
	for r := (reader{t: s.t, sub: sub}); r.next < end; {
		batch, err := sub.Next(ctx, 0)
		if err != nil {
			return err
		}
		if err := r.check(batch); err != nil {
			return err
		}
		pause(ctx, pace)
	}
	return nil
}
