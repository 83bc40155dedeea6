package replication_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"leat/eventstore"
	"leat/migrations/dbtest"
	"leat/replication"
)

// F28: a server that comes back, or a standby in its place, lacks what the tail told
// of. Subscriptions end and say where the stream ends; who comes again gets what is there.
func TestF28LostCommits(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	hub := startHub(t, replication.HubConfig{Pool: pool, LostAfter: time.Second})
	s := newStream(t, pool, "s")
	hub.Live()
	s.append(10)
	ahead := read(t, s.subscribe(hub, eventstore.SubscribeRequest{}))
	window := s.subscribe(hub, eventstore.SubscribeRequest{Start: from(3), Window: 2})
	read(t, window).until(5)
	s.tell(hub, 10, 5) // and no rows
	ahead.until(15)
	waits := s.subscribe(hub, eventstore.SubscribeRequest{Start: from(10)})
	hub.Batch(s.channel, 15, 5)
	hub.Flush()
	for _, sub := range []*replication.Subscription{ahead.sub, waits} {
		err := ended(t, sub)
		requireCode(t, err, eventstore.OffsetAhead, &eventstore.StreamPosition{Epoch: s.epoch, Offset: 10})
		require.ErrorContains(t, err, "lost")
	}
	requireCode(t, ended(t, window), eventstore.OffsetAhead, &eventstore.StreamPosition{Epoch: s.epoch, Offset: 5})
	again := read(t, s.subscribe(hub, eventstore.SubscribeRequest{Start: from(10)}))
	waits.Close() // of the ring before
	_, err := hub.Subscribe(ctx, eventstore.SubscribeRequest{Stream: "s", Start: from(15)})
	requireCode(t, err, eventstore.OffsetAhead, &eventstore.StreamPosition{Epoch: s.epoch, Offset: 10})
	s.append(3)
	s.tell(hub, 10, 3)
	again.until(13)
}

// ended reads until a subscription ends.
func ended(t *testing.T, sub *replication.Subscription) error {
	t.Helper()
	for {
		if _, err := next(ctx, sub); err != nil {
			return err
		}
	}
}

// A publish that waits for a synchronous standby is told of by the tail long before
// the table shows it: nothing is lost.
func TestNothingLostYet(t *testing.T) {
	t.Parallel()
	const patience = 500 * time.Millisecond
	pool := dbtest.New(t)
	hub := startHub(t, replication.HubConfig{Pool: pool, LostAfter: patience})
	s := newStream(t, pool, "s")
	hub.Live()
	r := read(t, s.subscribe(hub, eventstore.SubscribeRequest{}))
	tx, err := pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(ctx) }()
	_, err = tx.Exec(ctx, `select pg_advisory_xact_lock(1279607043, leat.append_lock($1, ''))`, s.channel)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, write, s.channel, 5, keys, 0)
	require.NoError(t, err)
	s.next = 5
	s.tell(hub, 0, 5)
	r.until(5)
	for began := time.Now(); time.Since(began) < 4*time.Second; {
		batch, err := r.sub.Next(ctx, soon)
		require.NoError(t, err)
		require.Empty(t, batch.Messages)
	}
	require.NoError(t, tx.Commit(ctx))

	// The table of a busy stream is a little behind at each look.
	for began := time.Now(); time.Since(began) < 4*time.Second; {
		s.tell(hub, s.next, 1)
		s.append(1)
		s.tell(hub, s.next, 1)
		r.until(s.next + 1)
		s.append(1)
	}
}
