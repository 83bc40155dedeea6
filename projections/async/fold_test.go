package async_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"leat/migrations/dbtest"
)

// declareAll makes channels of all kinds, with links between them.
func declareAll(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	do(t, pool, `select leat.declare_channel('s', 'queue', 'standard', '{"max_deliveries": 2, "base_delay": "0"}', 'test')`)
	do(t, pool, `select leat.declare_channel('f', 'queue', 'fifo', '{"max_deliveries": 2, "base_delay": "0", "dead_letter_expired": true}', 'test')`)
	do(t, pool, `select leat.declare_channel('gone', 'queue', 'standard', '{}', 'test')`)
	do(t, pool, `select leat.declare_channel('x', 'exchange', 'fanout', '{}', 'test')`)
	do(t, pool, `select leat.declare_channel('log', 'stream', 'stream', '{}', 'test')`)
	do(t, pool, `select leat.declare_link('x', 's')`)
	do(t, pool, `select leat.declare_link('x', 'f')`)
	do(t, pool, `select leat.declare_link('x', 'log')`)
}

// act does one random thing.
func act(t testing.TB, pool *pgxpool.Pool, r *rand.Rand) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), forgiving)
	defer cancel()
	queue := []string{"s", "f"}[r.IntN(2)]
	key := fmt.Sprint("k", r.IntN(5))
	consumer := fmt.Sprint("c", r.IntN(3))
	took := func(then string, args ...any) {
		_, err := pool.Exec(ctx, fmt.Sprintf(`
			with got as materialized (select array_agg(receipt) as receipts from leat.poll($1, %d, consumer => '%s'))
			select g.* from got cross join lateral %s g where receipts is not null`, 1+r.IntN(20), consumer, then), append([]any{queue}, args...)...)
		require.NoError(t, err)
	}
	switch r.IntN(14) {
	case 0, 1, 2:
		do(t, pool, `select leat.publish($1, 'x', $2) from generate_series(1, $3)`, []string{"s", "f", "x", "log", "gone"}[r.IntN(5)], key, 1+r.IntN(10))
	case 3:
		do(t, pool, `select leat.publish($1, 'x', $2, deliver_at => clock_timestamp() + interval '10 ms')`, queue, key)
	case 4:
		do(t, pool, `select leat.publish($1, 'x', $2, expires_at => clock_timestamp() + interval '300 ms')`, queue, key)
	case 5, 6, 7:
		took(`leat.ack($1, receipts)`)
	case 8:
		took(`leat.nack($1, receipts, 'retry', reason => $2)`, []string{"no stock", ""}[r.IntN(2)])
	case 9:
		took(`leat.nack($1, receipts, 'deadLetter', reason => 'no')`)
	case 10:
		took(`leat.nack($1, receipts, 'discard')`)
	case 11:
		took(`leat.release($1, receipts)`)
	case 12:
		took(`leat.extend($1, receipts, '1 ms')`)
	default:
		rare(t, pool, r, queue, key)
	}
}

func rare(t testing.TB, pool *pgxpool.Pool, r *rand.Rand, queue, key string) {
	t.Helper()
	switch r.IntN(8) {
	case 0, 1, 2:
		do(t, pool, `select leat.sweep(null)`)
	case 3:
		do(t, pool, `select leat.recover_all($1)`, queue)
	case 4:
		do(t, pool, `select leat.close_circuit('f', $1, recover => true)`, key)
	case 5:
		do(t, pool, `select leat.redrive_all($1, 's')`, "f")
	case 6:
		do(t, pool, `select leat.purge_queue((select id from leat.channels where name = $1 and deleted_at is null), 'test')`, queue)
	default:
		do(t, pool, `select leat.delete_channel('gone', true, 'test')`)
		do(t, pool, `select leat.declare_channel('gone', 'queue', 'standard', '{}', 'test')`)
	}
}

// The views of random commands are what a fold of the log in Go gives, whatever the
// batches were.
func TestStatisticsEqualTheLog(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			t.Parallel()
			pool := dbtest.New(t)
			cfg := quick(t, pool)
			cfg.BatchSize = 1 + int(seed)*60
			run(t, cfg)
			by := hand(t, pool)
			declareAll(t, by)
			r := rand.New(rand.NewPCG(seed, 1))
			for range 120 {
				act(t, by, r)
			}
			caughtUp(t, pool)
			requireEqual(t, pool)
		})
	}
}
