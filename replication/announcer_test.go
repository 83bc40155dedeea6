package replication_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"leat/eventstore"
	"leat/migrations/dbtest"
	"leat/replication"
)

// subscribe listens with a plain connection, for the payloads themselves.
func subscribe(t *testing.T, pool *pgxpool.Pool) (next func() string) {
	t.Helper()
	conn, err := pool.Acquire(ctx)
	require.NoError(t, err)
	t.Cleanup(conn.Release)
	_, err = conn.Exec(ctx, "listen leat")
	require.NoError(t, err)
	return func() string {
		t.Helper()
		waiting, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		n, err := conn.Conn().WaitForNotification(waiting)
		require.NoError(t, err)
		return n.Payload
	}
}

// F5: however many channels there are, a notification keeps below the limit of
// 8,000 bytes; what is announced together shares notifications.
func TestF05AnnouncerShares(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	next := subscribe(t, pool)
	a := replication.NewAnnouncer(pool, nil, quiet)
	const channels, first = 1500, 2_000_000_000
	for range 3 { // again and again before it is sent
		for id := range channels {
			a.Announce([]eventstore.ChannelID{eventstore.ChannelID(first + id)}, false)
		}
	}
	run(t, a.Run)
	var got []string
	for range 3 {
		payload := next()
		require.Less(t, len(payload), 8000)
		got = append(got, strings.Split(payload, ",")...)
	}
	slices.Sort(got)
	require.Len(t, slices.Compact(got), channels)
	a.Announce([]eventstore.ChannelID{5}, false)
	require.Equal(t, "5", next(), "nothing was sent twice")
}

// An announcement that cannot be sent is given up; the next one is sent.
func TestAnnouncerOutlivesLostConnections(t *testing.T) {
	t.Parallel()
	pool, address := dbtest.NewURL(t)
	own, err := pgxpool.New(ctx, address)
	require.NoError(t, err)
	t.Cleanup(own.Close)
	a := replication.NewAnnouncer(own, nil, quiet)
	run(t, a.Run)
	next := subscribe(t, pool)
	for id := eventstore.ChannelID(1); id <= 3; id++ {
		again := time.AfterFunc(0, func() {})
		for heard := ""; heard != id.String(); heard = next() {
			again.Stop()
			a.Announce([]eventstore.ChannelID{id}, false)
			again = time.AfterFunc(time.Second, func() { a.Announce([]eventstore.ChannelID{id}, false) })
		}
		again.Stop()
		_, err := pool.Exec(ctx, `
			select pg_terminate_backend(pid) from pg_stat_activity
			where datname = current_database() and query like '%replication.announce%' and pid <> pg_backend_pid()`)
		require.NoError(t, err)
	}
}

// The announcer ends though much is announced.
func TestAnnouncerEnds(t *testing.T) {
	t.Parallel()
	a := replication.NewAnnouncer(dbtest.New(t), nil, quiet)
	stop := run(t, a.Run)
	for id := range eventstore.ChannelID(5000) {
		a.Announce([]eventstore.ChannelID{id}, false)
	}
	stop()
	a.Announce([]eventstore.ChannelID{1}, false) // and harms nobody afterwards
}
