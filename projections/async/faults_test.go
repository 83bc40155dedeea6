package async_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"leat/migrations/dbtest"
	"leat/projections/async"
)

// Each batch may end at each step, in each way: totals equal the log all the same.
func TestExactlyOnceKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	ends := map[string]func(ctx context.Context, tx pgx.Tx) error{
		"error": func(context.Context, pgx.Tx) error { return errors.New("a fault was put in") },
		"connection": func(ctx context.Context, tx pgx.Tx) error {
			if tx == nil {
				return nil
			}
			return tx.Conn().Close(ctx)
		},
		"session": func(ctx context.Context, tx pgx.Tx) error {
			if tx == nil {
				return nil
			}
			_, err := tx.Exec(ctx, `select pg_terminate_backend(pg_backend_pid())`)
			return err
		},
		"statement": func(ctx context.Context, tx pgx.Tx) error { // the rest of the batch is poisoned
			if tx == nil {
				return nil
			}
			_, err := tx.Exec(ctx, `select 1 / 0`)
			return fmt.Errorf("a transaction that is aborted: %w", err)
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := dbtest.New(t)
			var ended sync.Map // by step
			cfg := quick(t, pool).MostWait(50 * time.Millisecond)
			cfg.BatchSize = 20
			cfg = cfg.OnStep(func(ctx context.Context, tx pgx.Tx, step string) error {
				if rand.IntN(15) > 0 {
					return nil
				}
				ended.Store(step, true)
				return end(ctx, tx)
			})
			run(t, cfg)
			by := hand(t, pool)
			declareAll(t, by)
			r := rand.New(rand.NewPCG(7, 7))
			endedAll := func() bool {
				for _, step := range async.Steps {
					if _, ok := ended.Load(step); !ok {
						return false
					}
				}
				return true
			}
			deadline := time.Now().Add(forgiving)
			for i := 0; i < 30 || !endedAll(); i++ {
				require.True(t, time.Now().Before(deadline), "some steps were never reached")
				act(t, by, r)
			}
			caughtUp(t, pool)
			requireEqual(t, pool)
		})
	}
}

// A service may be stopped, and another one started, at any moment.
func TestExactlyOnceStoppedAtAnyMoment(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	by := hand(t, pool)
	declareAll(t, by)
	r := rand.New(rand.NewPCG(9, 9))
	for range 10 {
		cfg := quick(t, pool)
		moment, left := make(chan struct{}), atomic.Int64{}
		left.Store(int64(1 + r.IntN(30)))
		cfg.BatchSize = 5
		cfg = cfg.OnStep(func(context.Context, pgx.Tx, string) error {
			if left.Add(-1) == 0 {
				close(moment)
			}
			return nil
		})
		_, stop := run(t, cfg)
		for range 4 {
			act(t, by, r)
		}
		select {
		case <-moment:
		case <-time.After(forgiving):
			t.Fatal("no step was reached")
		}
		stop()
	}
	run(t, quick(t, pool))
	caughtUp(t, pool)
	requireEqual(t, pool)
}

// Several brokers keep the same projections: each batch is taken once.
func TestManyBrokersTakeEachBatchOnce(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	by := hand(t, pool)
	declareAll(t, by)
	for range 3 {
		run(t, quick(t, pool))
	}
	r := rand.New(rand.NewPCG(3, 3))
	for range 40 {
		act(t, by, r)
	}
	caughtUp(t, pool)
	requireEqual(t, pool)
}

// 50 writers commit late, in any order, or not at all: nothing is missed.
func TestF26LateCommits(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	do(t, pool, `select leat.declare_channel('s', 'queue', 'standard', '{}', 'test')`)
	config := pool.Config()
	config.MaxConns = 50
	writers, err := connect(t, config)
	require.NoError(t, err)
	cfg := quick(t, pool)
	cfg.BatchSize = 7
	run(t, cfg)

	first, err := writers.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = first.Rollback(context.Background()) }()
	_, err = first.Exec(t.Context(), `select leat.publish('s', 'the first one commits last')`)
	require.NoError(t, err)
	var group errgroup.Group
	var committed atomic.Int64
	for range 49 {
		group.Go(func() error {
			for range 3 {
				rolledBack := rand.IntN(4) == 0
				err := pgx.BeginFunc(context.Background(), writers, func(tx pgx.Tx) error {
					_, err := tx.Exec(context.Background(),
						`select leat.publish('s', 'x'), pg_sleep(random() * 0.02) from generate_series(1, 3)`)
					if err == nil && rolledBack {
						err = errRolledBack
					}
					return err
				})
				if err == nil {
					committed.Add(3)
				} else if !errors.Is(err, errRolledBack) {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	assert.Zero(t, one[int64](t, pool, `select coalesce(sum(published), 0)::bigint from leat.channel_minutes where published > 0 and `+
		`(select position from leat.projections where name = 'statistics') > (select min(position) from leat.events where kind = 'message.published')`),
		"no reader passes an open append")
	require.NoError(t, first.Commit(t.Context()))
	caughtUp(t, pool)
	require.Equal(t, committed.Load()+1, one[int64](t, pool, `select sum(published)::bigint from leat.channel_minutes`))
	requireEqual(t, pool)
}

var errRolledBack = errors.New("rolled back")

// A wake-up, and no look, moves it.
func TestWakeMovesIt(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	do(t, pool, `select leat.declare_channel('s', 'queue', 'standard', '{}', 'test')`)
	cfg := quick(t, pool)
	_, stop := run(t, cfg)
	caughtUp(t, pool)
	stop()
	cfg.Look = time.Hour
	do(t, pool, `select leat.publish('s', 'x')`)
	head := one[int64](t, pool, "select last_value from leat.position_seq")
	s, _ := run(t, cfg)
	eventually(t, func() bool { // all runners are there
		s.Wake()
		return one[int64](t, pool, behindSQL, head) == 0
	})
	for range 3 {
		do(t, pool, `select leat.publish('s', 'x')`)
		s.Wake()
		caughtUp(t, pool)
	}
	requireEqual(t, pool)
}

// What keeps the service from looking after its projections passes: it tries again soon,
// and not when it would look anyway.
func TestLooksAgainSoonAfterAnError(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	do(t, pool, `select leat.declare_channel('s', 'queue', 'standard', '{}', 'test')`)
	do(t, pool, `alter function leat.declare_projection(text, integer) rename to declare_projection_of_old`)
	log := &told{}
	cfg := quick(t, pool)
	cfg.Look, cfg.Logger = time.Hour, slog.New(slog.NewTextHandler(log, nil))
	run(t, cfg)
	eventually(t, func() bool { return log.has("look after projections") })
	do(t, pool, `alter function leat.declare_projection_of_old(text, integer) rename to declare_projection`)
	caughtUp(t, pool)
	requireEqual(t, pool)
}
