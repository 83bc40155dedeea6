package eventstore_test

import (
	"context"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
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

// follower reads the log up to the settled position, again and again.
type follower struct {
	pool *pgxpool.Pool
	from eventstore.Position
	seen map[int64]int
}

func (f *follower) step(ctx context.Context, t *testing.T) {
	t.Helper()
	settled, err := eventstore.New(f.pool).SettledPosition(ctx)
	require.NoError(t, err)
	rows, err := f.pool.Query(ctx, `select position from leat.events where position > $1 and position <= $2`, f.from, settled)
	require.NoError(t, err)
	positions, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	require.NoError(t, err)
	for _, position := range positions {
		f.seen[position]++
	}
	f.from = max(f.from, settled)
}

// write appends in transactions that dawdle and sometimes roll back.
func write(ctx context.Context, t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	for range 12 {
		tx, err := pool.Begin(ctx)
		if !assert.NoError(t, err) {
			return
		}
		for range 1 + rand.IntN(4) {
			_, err = tx.Exec(ctx, `select leat.append('channel.altered', 1, 'test'), pg_sleep($1)`, rand.Float64()/50)
			assert.NoError(t, err)
		}
		if rand.IntN(4) == 0 {
			err = tx.Rollback(ctx)
		} else {
			err = tx.Commit(ctx)
		}
		assert.NoError(t, err)
	}
}

// F26: a reader that stops at the settled position misses nothing, though
// positions commit out of order; and transactions that append nothing, however
// long they stay open, do not hold it back.
func TestSettledPosition(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := dbtest.New(t)
	config := pool.Config()
	config.MaxConns = 45
	wide, err := pgxpool.NewWithConfig(ctx, config)
	require.NoError(t, err)
	defer wide.Close()

	for _, database := range []*pgxpool.Pool{pool, dbtest.New(t)} {
		unrelated, err := database.Begin(ctx)
		require.NoError(t, err)
		defer func() { require.NoError(t, unrelated.Rollback(ctx)) }()
		_, err = unrelated.Exec(ctx, `create table unrelated (id int); insert into unrelated values (1)`)
		require.NoError(t, err)
	}

	var writers sync.WaitGroup
	for range 40 {
		writers.Go(func() { write(ctx, t, wide) })
	}
	done := make(chan struct{})
	go func() {
		writers.Wait()
		close(done)
	}()
	reader := &follower{pool: pool, seen: map[int64]int{}}
	for writing := true; writing; {
		select {
		case <-done:
			writing = false
		case <-time.After(time.Millisecond):
		}
		reader.step(ctx, t)
	}

	rows, err := pool.Query(ctx, `select position from leat.events`)
	require.NoError(t, err)
	committed, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	require.NoError(t, err)
	require.NotEmpty(t, committed)
	require.Len(t, reader.seen, len(committed))
	for _, position := range committed {
		require.Equal(t, 1, reader.seen[position], "position %d", position)
	}
}
