package async_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"leat/migrations/dbtest"
	"leat/projections/async"
)

// BenchmarkCatchUp takes messages that were published, delivered and acked in batches of
// 100 through all projections, and reports what one costs: here and in PostgreSQL.
func BenchmarkCatchUp(b *testing.B) {
	const messages = 50_000
	pool := dbtest.New(b)
	by := hand(b, pool)
	do(b, by, `select leat.declare_channel('s', 'queue', 'standard', '{}', 'test')`)
	for range messages / 100 {
		do(b, by, `select leat.publish_batch('s', array(select 'x'::bytea from generate_series(1, 100)))`)
	}
	for range messages / 100 {
		do(b, by, `with got as materialized (select array_agg(receipt) as receipts from leat.poll('s', 100))
			select count(*) from got cross join lateral leat.ack('s', receipts)`)
	}
	do(b, by, `vacuum analyze leat.events`)
	var spent cpu
	taken, began := 0, time.Now()
	for b.Loop() {
		do(b, by, `delete from leat.projections`)
		do(b, by, `truncate leat.channel_minutes, leat.pending_messages, leat.consumer_activity, leat.failing_keys`)
		before := measure(b, pool)
		_, stop := run(b, async.Config{Pool: pool, Gather: 10 * time.Millisecond})
		caughtUp(b, pool)
		stop()
		after := measure(b, pool)
		spent.here += after.here - before.here
		spent.server += after.server - before.server
		taken += messages
	}
	b.ReportMetric(float64(taken)/time.Since(began).Seconds(), "messages/s")
	b.ReportMetric(float64(spent.here.Microseconds())/float64(taken), "go-us/message")
	b.ReportMetric(float64(spent.server.Microseconds())/float64(taken), "pg-us/message")
}

type cpu struct{ here, server time.Duration }

// measure reads the processor time of this process and of the sessions of the pool.
func measure(b *testing.B, pool *pgxpool.Pool) (spent cpu) {
	b.Helper()
	var usage syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	spent.here = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	for _, pid := range one[[]int32](b, pool, `select array_agg(pid) from pg_catalog.pg_stat_activity where datname = current_database()`) {
		stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(int(pid)), "stat"))
		require.NoError(b, err)
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+2:])
		for _, field := range fields[11:13] { // user and system time, in hundredths of a second
			ticks, err := strconv.Atoi(string(field))
			require.NoError(b, err)
			spent.server += time.Duration(ticks) * 10 * time.Millisecond
		}
	}
	return spent
}
