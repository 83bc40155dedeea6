package async_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"leat/commands"
	"leat/eventstore"
	"leat/migrations/dbtest"
	"leat/projections"
	"leat/projections/async"
	"leat/replication"
)

// forgiving is how long a test waits for what has to come, on a machine that has other
// things to do.
const forgiving = 60 * time.Second

func TestMain(m *testing.M) {
	os.Exit(dbtest.Main(m, eventstore.SQL, projections.SQL, async.SQL, commands.SQL, replication.SQL))
}

func TestStatements(t *testing.T) {
	t.Parallel()
	dbtest.PrepareAll(t, async.Statements()...)
}

func do(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), forgiving)
	defer cancel()
	_, err := pool.Exec(ctx, sql, args...)
	require.NoError(t, err)
}

// one reads one value.
func one[T any](t testing.TB, pool *pgxpool.Pool, sql string, args ...any) (value T) {
	t.Helper()
	require.NoError(t, pool.QueryRow(context.Background(), sql, args...).Scan(&value))
	return value
}

// all reads rows by their columns' names.
func all[T any](t testing.TB, pool *pgxpool.Pool, sql string, args ...any) []T {
	t.Helper()
	rows, err := pool.Query(context.Background(), sql, args...)
	require.NoError(t, err)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[T])
	require.NoError(t, err)
	return list
}

// quick looks often. What goes wrong is in the output of the test.
func quick(t testing.TB, pool *pgxpool.Pool) async.Config {
	t.Helper()
	logger := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	return async.Config{Pool: pool, Logger: logger, BatchSize: 50, Gather: 15 * time.Millisecond, Look: 60 * time.Millisecond}
}

// run runs a service until the returned function is called, at the end of the test at
// the latest.
func run(t testing.TB, cfg async.Config) (s *async.Service, stop func()) {
	t.Helper()
	s = async.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-ended:
			require.NoError(t, err)
		case <-time.After(forgiving):
			t.Fatal("the service does not end")
		}
	}
	t.Cleanup(stop)
	return s, stop
}

const behindSQL = `
select count(*)
from leat.projections p
where p.state = 'live' and p.position < $1`

// caughtUp waits until all live projections have taken the log as it is now.
func caughtUp(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	head := one[int64](t, pool, "select last_value from leat.position_seq")
	var seen lastSeen
	require.Eventually(t, func() bool {
		states := one[string](t, pool, statesSQL)
		seen.Store(states)
		return states != "" && one[int64](t, pool, behindSQL, head) == 0
	}, forgiving, 20*time.Millisecond, "up to %d: %s", head, &seen)
}

const statesSQL = `
select coalesce(string_agg(format('%s %s at %s', p.name, p.state, p.position), ', '), '')
from leat.projections p`

// lastSeen is what a condition saw last, for the message of a failure.
type lastSeen struct{ atomic.Value }

func (s *lastSeen) String() string { return fmt.Sprint(s.Load()) }

func eventually(t testing.TB, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, forgiving, 20*time.Millisecond)
}

// connect opens another pool.
func connect(t testing.TB, config *pgxpool.Config) (*pgxpool.Pool, error) {
	t.Helper()
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err == nil {
		t.Cleanup(func() { closePool(t, pool) })
	}
	return pool, err
}

// closePool closes a pool, and fails the test instead of waiting for ever for a
// connection that is not given back.
func closePool(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	closed := make(chan struct{})
	go func() {
		pool.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(forgiving):
		t.Errorf("%d connections of a pool are still in use", pool.Stat().AcquiredConns())
	}
}

// hand is a pool of one session, in which the functions of the commands are compiled
// once.
func hand(t testing.TB, pool *pgxpool.Pool) *pgxpool.Pool {
	t.Helper()
	config := pool.Config()
	config.MaxConns = 1
	single, err := connect(t, config)
	require.NoError(t, err)
	return single
}
