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
