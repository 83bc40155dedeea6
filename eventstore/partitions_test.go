package eventstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"leat/eventstore"
	"leat/migrations/dbtest"
)

// An append that is open while the first partitions are made ends up in the
// default one. That neither fails the round nor keeps the next from making room.
func TestAppendWhilePartitionsAreMade(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	pool := dbtest.New(t)
	store := eventstore.New(pool)
	open, err := pool.Begin(ctx)
	require.NoError(t, err)
	_, err = open.Exec(ctx, `select leat.append('channel.altered', 1, 'test')`)
	require.NoError(t, err)

	made := make(chan error, 1)
	go func() { made <- store.MakePartitions(ctx) }()
	waitForDefault(t, pool)
	require.NoError(t, open.Commit(ctx))
	if err := <-made; err != nil { // a machine so slow that the wait ended first
		require.ErrorIs(t, eventstore.FromPg(err), &eventstore.Error{Code: eventstore.Busy})
	}

	require.NoError(t, store.MakePartitions(ctx))
	var inDefault, events int
	err = pool.QueryRow(context.Background(),
		`select (select count(*) from leat.events_default), (select count(*) from leat.events)`).Scan(&inDefault, &events)
	require.NoError(t, err)
	require.Zero(t, inDefault)
	require.Equal(t, 1, events)
}

// An append that waits for the default partition while its own is made is told
// to try again.
func TestPartitionsAreMadeWhileAnAppendWaits(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	pool := dbtest.New(t)
	open, err := pool.Begin(ctx)
	require.NoError(t, err)
	_, err = open.Exec(ctx, `select leat.make_partitions()`)
	require.NoError(t, err)

	appended := make(chan error, 1)
	appendOne := func() error {
		_, err := pool.Exec(ctx, `select leat.append('channel.altered', 1, 'test')`)
		return eventstore.FromPg(err)
	}
	go func() { appended <- appendOne() }()
	waitForDefault(t, pool)
	require.NoError(t, open.Commit(ctx))
	require.ErrorIs(t, <-appended, &eventstore.Error{Code: eventstore.Busy})
	require.NoError(t, appendOne())
}

// waitForDefault returns when somebody waits for the default partition.
func waitForDefault(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	require.Eventually(t, func() bool {
		var waits bool
		err := pool.QueryRow(context.Background(),
			`select exists (select from pg_locks where not granted and relation = 'leat.events_default'::regclass)`).Scan(&waits)
		return assert.NoError(t, err) && waits
	}, 30*time.Second, 5*time.Millisecond)
}
