package projections_test

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"leat/commands"
	"leat/eventstore"
	"leat/migrations/dbtest"
	"leat/projections"
	"leat/replication"
)

func TestMain(m *testing.M) {
	os.Exit(dbtest.Main(m, eventstore.SQL, projections.SQL, commands.SQL, replication.SQL))
}

func exec(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	_, err := pool.Exec(context.Background(), sql, args...)
	require.NoError(t, err)
}

// busy leaves both modes with messages in every state.
func busy(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	exec(t, pool, `select leat.declare_channel('s', 'queue', 'standard', '{"max_deliveries": 2}', 'test')`)
	exec(t, pool, `select leat.declare_channel('f', 'queue', 'fifo', '{"dead_letter_expired": true}', 'test')`)
	for _, queue := range []string{"s", "f"} {
		exec(t, pool, `select leat.publish($1, convert_to(n::text, 'UTF8'), (n % 7)::text) from generate_series(1, 100) n`, queue)
		exec(t, pool, `select leat.publish($1, 'x', 'later', deliver_at => clock_timestamp() + interval '1 hour')`, queue)
		exec(t, pool, `select leat.publish($1, 'x', 'gone', expires_at => clock_timestamp() + interval '500 ms')`, queue)
		exec(t, pool, `create temp table got as select * from leat.poll($1, 40, consumer => 'c')`, queue)
		exec(t, pool, `select leat.ack($1, array(select receipt from got order by message_id limit 10))`, queue)
		exec(t, pool, `select leat.nack($1, array(select receipt from got order by message_id offset 10 limit 5))`, queue)
		exec(t, pool, `select leat.nack($1, array(select receipt from got order by message_id offset 15 limit 5), 'deadLetter', reason => 'no')`, queue)
		exec(t, pool, `select leat.extend($1, array(select receipt from got order by message_id offset 20 limit 5), '1 hour')`, queue)
		exec(t, pool, `select leat.release($1, array(select receipt from got order by message_id offset 25 limit 5))`, queue)
		exec(t, pool, `drop table got`)
	}
	exec(t, pool, `select leat.sweep(null)`)
}

func differences(t *testing.T, views *projections.Views, fromCheckpoint bool) []projections.Difference {
	t.Helper()
	found, err := views.Verify(context.Background(), fromCheckpoint, 10)
	require.NoError(t, err)
	return found
}

func TestG1RebuildEqualsLive(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	config := pool.Config()
	config.MaxConns = 1 // busy keeps a temporary table
	single, err := pgxpool.NewWithConfig(context.Background(), config)
	require.NoError(t, err)
	defer single.Close()
	busy(t, single)
	views := projections.New(pool, slog.New(slog.DiscardHandler))
	require.Empty(t, differences(t, views, false), "live")

	exec(t, pool, `select leat.checkpoint(0)`)
	exec(t, pool, `select * from leat.poll('f', 20)`)
	require.Empty(t, differences(t, views, true), "from the checkpoint")

	messages, err := views.Rebuild(context.Background())
	require.NoError(t, err)
	require.Positive(t, messages)
	require.Empty(t, differences(t, views, false), "rebuilt")
}

// A keeper may fill the views that a rebuild by hand has given up: it answers what
// they hold all the same.
func TestRebuildMeetsKeeper(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := dbtest.New(t)
	views := projections.New(pool, slog.New(slog.DiscardHandler))
	exec(t, pool, `select leat.declare_channel('s', 'queue', 'standard', '{}', 'test')`)
	exec(t, pool, `select leat.publish('s', 'x') from generate_series(1, 2)`)
	keeper, err := pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = keeper.Rollback(ctx) }()
	_, err = keeper.Exec(ctx, `select pg_advisory_xact_lock(1279607044, 2)`) // it is about to look
	require.NoError(t, err)
	answers, errs := make(chan int64, 1), make(chan error, 1)
	go func() {
		messages, err := views.Rebuild(ctx)
		answers <- messages
		errs <- err
	}()
	require.Eventually(t, func() bool {
		alive, err := views.Alive(ctx)
		return err == nil && !alive
	}, 30*time.Second, time.Millisecond)
	_, err = keeper.Exec(ctx, `select leat.rebuild_views()`)
	require.NoError(t, err)
	require.NoError(t, keeper.Commit(ctx))
	require.NoError(t, <-errs)
	require.EqualValues(t, 2, <-answers)
}

func TestVerifyFindsADifference(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	exec(t, pool, `select leat.declare_channel('s', 'queue', 'standard', '{}', 'test')`)
	exec(t, pool, `select leat.publish('s', 'x')`)
	exec(t, pool, `update leat.queue_runs set deliveries = 3`)
	require.Len(t, differences(t, projections.New(pool, slog.New(slog.DiscardHandler)), false), 1)
}

// A publish does not need the views, and what it appended while they were lost
// enters them when they are back, whether it committed before or after.
func TestG2PublishWhileViewsAreLost(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := dbtest.New(t)
	views := projections.New(pool, slog.New(slog.DiscardHandler))
	exec(t, pool, `select leat.declare_channel('f', 'queue', 'fifo', '{}', 'test')`)
	exec(t, pool, `select leat.lose_views()`)

	_, err := pool.Exec(ctx, `select leat.poll('f')`)
	require.ErrorContains(t, err, "views lost")
	exec(t, pool, `select leat.publish('f', 'early', 'k')`)
	open, err := pool.Begin(ctx)
	require.NoError(t, err)
	_, err = open.Exec(ctx, `select leat.publish('f', 'late', 'other')`)
	require.NoError(t, err)
	_, err = views.Rebuild(ctx)
	require.NoError(t, err)
	require.NoError(t, open.Commit(ctx))

	// The next publish of the key comes after the one that was not placed yet.
	exec(t, pool, `select leat.publish('f', 'later', 'other')`)
	exec(t, pool, `select leat.sweep(null)`) // places both
	require.Empty(t, differences(t, views, false))
	rows, err := pool.Query(ctx, `select convert_from(payload, 'UTF8') from leat.poll('f', routing_keys => '{other}')`)
	require.NoError(t, err)
	var payloads []string
	for rows.Next() {
		var payload string
		require.NoError(t, rows.Scan(&payload))
		payloads = append(payloads, payload)
	}
	require.NoError(t, rows.Err())
	require.Equal(t, []string{"late", "later"}, payloads)
}
