package async_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"leat/migrations/dbtest"
)

// told keeps what a service logs.
type told struct {
	mu   sync.Mutex
	text strings.Builder
}

func (w *told) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(line)
}

func (w *told) has(text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Contains(w.text.String(), text)
}

// The subscriber takes an error of fetching for "no messages". It is told all the same,
// tried again, and told when it is over.
func TestWatermillHidesErrorsOfFetching(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	do(t, pool, `select leat.declare_channel('s', 'queue', 'standard', '{}', 'test')`)
	do(t, pool, `alter function leat.settled_position() rename to settled_position_of_old`)
	do(t, pool, `create function leat.settled_position() returns bigint language plpgsql as $$ begin raise 'broken on purpose'; end $$`)
	log := &told{}
	cfg := quick(t, pool)
	cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
	run(t, cfg)
	eventually(t, func() bool { return log.has("projection does not move") && log.has("broken on purpose") })
	do(t, pool, `drop function leat.settled_position()`)
	do(t, pool, `alter function leat.settled_position_of_old() rename to settled_position`)
	caughtUp(t, pool)
	eventually(t, func() bool { return log.has("projection moves again") })
}

// It only logs an error of a commit. That is told too, and the batch comes again.
func TestWatermillHidesErrorsOfCommits(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	by := hand(t, pool)
	do(t, by, `create function leat.refuse_commit() returns trigger language plpgsql as $$ begin raise 'refused at the commit'; end $$`)
	do(t, by, `create constraint trigger refused after insert or update on leat.channel_minutes deferrable initially deferred
		for each row execute function leat.refuse_commit()`)
	log := &told{}
	cfg := quick(t, pool)
	cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
	run(t, cfg)
	declareAll(t, by)
	do(t, by, `select leat.publish('x', 'x', 'k') from generate_series(1, 5)`)
	eventually(t, func() bool { return log.has("refused at the commit") })
	require.Zero(t, one[int64](t, pool, `select count(*) from leat.channel_minutes`))
	do(t, by, `drop trigger refused on leat.channel_minutes`)
	caughtUp(t, pool)
	requireEqual(t, pool)
}

// When it is closed it commits what a handler has done so far, without the checkpoint.
// Ours is given up.
func TestWatermillCommitsHalfABatchWhenClosed(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	by := hand(t, pool)
	declareAll(t, by)
	do(t, by, `select leat.publish('x', 'x', 'k') from generate_series(1, 5)`)
	applied := make(chan struct{}, 10)
	_, stop := run(t, quick(t, pool).OnStep(func(ctx context.Context, _ pgx.Tx, step string) error {
		if step == "applied" {
			applied <- struct{}{}
			<-ctx.Done() // the service stops
		}
		return nil
	}))
	for range 3 {
		select {
		case <-applied:
		case <-time.After(forgiving):
			t.Fatal("a projection takes no batch")
		}
	}
	stop()
	require.Zero(t, one[int64](t, pool, `select count(*) from leat.channel_minutes`))
	require.Zero(t, one[int64](t, pool, `select max(position) from leat.projections`))
	run(t, quick(t, pool))
	caughtUp(t, pool)
	requireEqual(t, pool)
}

// Its adapter for pgx knows no read committed, and takes serializable.
func TestWatermillKnowsNoReadCommitted(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	var level atomic.Value
	run(t, quick(t, pool).OnStep(func(ctx context.Context, tx pgx.Tx, step string) error {
		if step != "begun" {
			return nil
		}
		var is string
		err := tx.QueryRow(ctx, `show transaction_isolation`).Scan(&is)
		level.Store(is)
		return err
	}))
	eventually(t, func() bool { return level.Load() != nil })
	require.Equal(t, "read committed", level.Load())
}

// It never acks position 0, and would make tables of its own.
func TestWatermillPositionsAndTables(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	run(t, quick(t, pool))
	do(t, pool, `select leat.declare_channel('s', 'queue', 'standard', '{}', 'test')`)
	caughtUp(t, pool)
	require.EqualValues(t, 1, one[int64](t, pool, `select min(position) from leat.events`))
	require.Zero(t, one[int64](t, pool, `select count(*) from pg_catalog.pg_class where relname like '%watermill%'`))
}
