package commands_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"leat/commands"
)

// Bounds of a recovery of a million: issue 3.
const (
	manyDead      = 1_000_000
	recoverWithin = 10 * time.Second
	recoverWAL    = 2 // bytes for each message
)

// deadSQL publishes a million messages, which then are dead, in runs as they were
// published.
const deadSQL = `
do $$ begin
    for i in 1..100 loop
        perform leat.publish_batch('q', array_fill('\x31'::bytea, array[10000]), array_fill((i %% %d)::text, array[10000]));
    end loop;
end $$`

func BenchmarkRecoverStandard(b *testing.B) { benchRecover(b, commands.Standard, 1) }

func BenchmarkRecoverFIFO(b *testing.B) { benchRecover(b, commands.FIFO, 10) }

func BenchmarkRecoverOneFIFOKey(b *testing.B) { benchRecover(b, commands.FIFO, 1) }

// Dead letters that died one by one, with others between them: a run each.
func BenchmarkRecoverScattered(b *testing.B) {
	for mode, keys := range map[string]int{commands.Standard: 1, commands.FIFO: 1000} {
		b.Run(mode, func(b *testing.B) {
			x := newBench(b)
			x.declare("q", mode, commands.PolicyPatch{})
			for range b.N {
				x.scatter(b, manyDead, keys)
				before := x.costs(b)
				res, err := x.Recover(ctx, everything())
				require.NoError(b, err)
				require.EqualValues(b, manyDead, res.Done)
				after := x.costs(b)
				b.ReportMetric(after.at.Sub(before.at).Seconds(), "s/recovery")
				b.ReportMetric((after.cpu - before.cpu).Seconds(), "server-s/recovery")
				b.ReportMetric(float64(after.wal-before.wal)*100/manyDead, "WAL-B/100")
			}
		})
	}
}

// scatter adds n dead letters of so many keys to q, a run each.
func (x *bench) scatter(b *testing.B, n, keys int) {
	b.Helper()
	_, err := x.pool.Exec(ctx, `truncate leat.queue_runs, leat.lanes`)
	require.NoError(b, err)
	_, err = x.pool.Exec(ctx, `
		with runs as (
			insert into leat.queue_runs (channel_id, fifo, first_id, state, rank, routing_key, ids, reason, died_at)
			select c.id, c.mode = 'fifo', p.id, 3, 9, (n % $2)::text, array[p.id], 'rejected', clock_timestamp()
			from leat.channels c, leat.position_seq s, generate_series(1, $1) n, lateral (select s.last_value + 2 * n) p (id)
			where c.name = 'q'
			returning first_id, channel_id, routing_key
		)
		insert into leat.events (position, kind, channel_id, routing_key, payload)
		select r.first_id, 'message.published', r.channel_id, r.routing_key, '' from runs r`, n, keys)
	require.NoError(b, err)
	_, err = x.pool.Exec(ctx, `select setval('leat.position_seq', s.last_value + 2 * $1) from leat.position_seq s`, n)
	require.NoError(b, err)
	_, err = x.pool.Exec(ctx, `vacuum analyze leat.queue_runs`)
	require.NoError(b, err)
}

// Recovers a million messages for each iteration.
func benchRecover(b *testing.B, mode string, keys int) {
	b.Helper()
	x := newBench(b)
	x.declare("q", mode, commands.PolicyPatch{})
	_, err := x.pool.Exec(ctx, fmt.Sprintf(deadSQL, keys))
	require.NoError(b, err)
	for i := range b.N {
		x.kill("q")
		_, err := x.pool.Exec(ctx, `checkpoint`)
		require.NoError(b, err)
		if i == 0 {
			x.begin(b)
		}
		before := x.costs(b)
		res, err := x.Recover(ctx, everything())
		require.NoError(b, err)
		require.EqualValues(b, manyDead, res.Done)
		after := x.costs(b)
		took, wal := after.at.Sub(before.at), after.wal-before.wal
		b.Logf("%s, %d keys: %d messages in %s, %d bytes of WAL, %.2f for 100 messages", mode, keys, manyDead, took, wal, float64(wal)*100/manyDead)
		require.Less(b, took, recoverWithin)
		require.Less(b, wal, int64(recoverWAL*manyDead))
	}
	x.report(b, b.N*manyDead)
}
