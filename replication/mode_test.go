package replication_test

import (
	"bytes"
	"context"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"leat/migrations/dbtest"
	"leat/replication"
)

// reason waits until the tail has no slot for a reason.
func (tl *tail) reason(t *testing.T, text string) {
	t.Helper()
	require.Eventually(t, func() bool {
		state := tl.State()
		return state.Mode == replication.ModeNotify && strings.Contains(state.Reason, text)
	}, patience, 5*time.Millisecond, text)
}

// often tries again soon, whatever is wrong.
func often(c *replication.TailConfig) {
	c.RetryEvery = 100 * time.Millisecond
	c.Patience = 100 * time.Millisecond
}

// on connects to a server of the test's own.
func on(t *testing.T, settings map[string]string) (*pgxpool.Pool, string) {
	t.Helper()
	server := dbtest.Cluster(t, settings)
	pool, err := pgxpool.New(ctx, server.URL())
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool, server.URL()
}

// While nobody wants the log there is no slot, and the fallback runs.
func TestTailRests(t *testing.T) {
	t.Parallel()
	pool, address := dbtest.NewURL(t)
	var wanted, fallback atomic.Bool
	tl := startTail(t, pool, address, func(c *replication.TailConfig) {
		c.Wanted = wanted.Load
		c.StatusEvery, c.Linger = 50*time.Millisecond, 100*time.Millisecond
		c.Fallback = func(ctx context.Context) error {
			fallback.Store(true)
			<-ctx.Done()
			return nil
		}
	})
	for i := range 2 {
		tl.reason(t, "nobody here reads a stream")
		require.Zero(t, ask[int](t, pool, `select count(*) from pg_replication_slots where database = current_database()`))
		require.True(t, fallback.Load())
		wanted.Store(true)
		tl.live(t, i+1)
		require.Equal(t, replication.ModeWAL, tl.State().Mode)
		wanted.Store(false)
	}
	tl.reason(t, "nobody here reads a stream")
	require.Zero(t, tl.State().Reconnects, "it went by itself")
}

func TestTailOff(t *testing.T) {
	t.Parallel()
	pool, address := dbtest.NewURL(t)
	tl := startTail(t, pool, address, func(c *replication.TailConfig) { c.Off = true })
	tl.reason(t, "switched off")
}

// The server may not allow a tail: that is told in its words, and tried again.
func TestTailRefused(t *testing.T) {
	t.Parallel()
	t.Run("wal_level", func(t *testing.T) {
		t.Parallel()
		pool, address := on(t, map[string]string{"wal_level": "replica"})
		tl := startTail(t, pool, address, nil)
		tl.reason(t, "wal_level")
	})
	t.Run("slots", func(t *testing.T) {
		t.Parallel()
		pool, address := on(t, map[string]string{"max_replication_slots": "1"})
		exec(t, pool, `select pg_create_physical_replication_slot('taken')`)
		tl := startTail(t, pool, address, often)
		tl.reason(t, "all replication slots are in use")
		exec(t, pool, `select pg_drop_replication_slot('taken')`)
		tl.live(t, 1)
	})
	t.Run("plugin", func(t *testing.T) {
		t.Parallel()
		each(t, func(t *testing.T, decoder string) {
			pool, address := dbtest.NewURL(t)
			name := pool.Config().ConnConfig.Database
			exec(t, pool, `alter database `+name+` set dynamic_library_path = '/nowhere'`)
			tl := startTail(t, pool, address, func(c *replication.TailConfig) {
				c.Decoder = decoder
				often(c)
			})
			tl.reason(t, "could not access file")
			exec(t, pool, `alter database `+name+` reset dynamic_library_path`)
			tl.live(t, 1)
		})
	})
}

// A role that may not do everything is told what it lacks; what the README grants
// is enough.
func TestTailRights(t *testing.T) {
	t.Parallel()
	pool, address := dbtest.NewURL(t)
	role := strings.ToLower(pool.Config().ConnConfig.Database) + "_app"
	exec(t, pool, `create role `+role+` login`)
	t.Cleanup(func() { exec(t, pool, `drop owned by `+role+`; drop role `+role) })
	parsed, err := url.Parse(address)
	require.NoError(t, err)
	parsed.User = url.User(role)
	tl := startTail(t, pool, parsed.String(), often)
	tl.reason(t, "replication role")
	exec(t, pool, `alter role `+role+` replication`)
	tl.reason(t, "permission denied for schema leat")
	exec(t, pool, `grant usage on schema leat to `+role)
	tl.reason(t, "permission denied for database")

	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	_, found, _ := bytes.Cut(readme, []byte("create publication"))
	made, _, _ := bytes.Cut(found, []byte(";"))
	exec(t, pool, "create publication"+string(made))
	tl.live(t, 1)
	put(t, pool, 1, 0)
	require.Len(t, tl.sink.next(t, 1), 1)
}

// A transaction that writes keeps the slot waiting, not the broker: it says for whom
// it waits, stops at once, and is there when the transaction ends.
func TestTailWaitsForTransaction(t *testing.T) {
	t.Parallel()
	pool, address := on(t, nil)
	tx, err := pool.Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, `select pg_current_xact_id()`)
	require.NoError(t, err)
	waits := "the slot waits for the end of a transaction of process "
	tl := startTail(t, pool, address, nil)
	tl.reason(t, waits)
	tl.stop()
	require.Eventually(t, func() bool {
		return ask[int](t, pool, `select count(*) from pg_replication_slots`) == 0
	}, patience, 5*time.Millisecond)

	tl = startTail(t, pool, address, nil)
	tl.reason(t, waits)
	require.Regexp(t, `process \d+ since \d{4}-\d\d-\d\dT`, tl.State().Reason)
	require.NoError(t, tx.Commit(ctx))
	tl.live(t, 1)
	require.Equal(t, replication.ModeWAL, tl.State().Mode)
	require.Empty(t, tl.State().Reason)
}
