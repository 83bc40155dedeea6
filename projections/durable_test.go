package projections_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"leat/migrations/dbtest"
	"leat/projections"
)

// Durable views are whole after a crash; the others are lost, and come back from
// the log.
func TestDurableViewsSurviveACrash(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := dbtest.Cluster(t, map[string]string{"fsync": "off"}) // the machine does not crash
	pool, err := pgxpool.New(ctx, server.URL())
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	views := projections.New(pool, slog.New(slog.DiscardHandler))
	exec(t, pool, `select leat.declare_channel('q', 'queue', 'fifo', '{}', 'test')`)
	exec(t, pool, `select leat.publish('q', 'x', n::text) from generate_series(1, 10) n`)
	exec(t, pool, `select leat.poll('q', 3)`)

	for _, durable := range []bool{true, false} {
		changed, err := views.SetDurable(ctx, durable)
		require.NoError(t, err)
		require.True(t, changed)
		require.Empty(t, differences(t, views, false), "after the change")
		changed, err = views.SetDurable(ctx, durable)
		require.NoError(t, err)
		require.False(t, changed)

		server.Kill()
		require.NoError(t, server.Restart(ctx))
		pool.Reset()
		alive, err := views.Alive(ctx)
		require.NoError(t, err)
		require.Equal(t, durable, alive)
	}
	_, err = views.Rebuild(ctx)
	require.NoError(t, err)
	require.Empty(t, differences(t, views, false))
}
