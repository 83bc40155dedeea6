package commands_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"leat/commands"
)

// F40b, G9: while a snapshot is held, nothing that was settled can be removed.
// What a publish, a claim or an ack reads must not grow with it.
func TestF40bHeldHorizon(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{commands.Standard, commands.FIFO} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.stop() // a sweeper would read too
			b.Broker = commands.New(commands.Config{Pool: b.pool})
			b.declare("q", mode, commands.PolicyPatch{})
			holder, err := b.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, holder.Rollback(ctx)) })
			_, err = holder.Exec(ctx, `select count(*) from leat.channels`)
			require.NoError(t, err)

			const rounds = 3
			var first, last []int64
			for round := range rounds {
				if round == rounds-1 { // plans are made anew, for what the tables look like by now
					_, err := b.pool.Exec(ctx, `analyze leat.queue_runs, leat.lanes`)
					require.NoError(t, err)
				}
				last = b.readPerMessage()
				t.Log("after", round*heldBatch, "messages, index entries per publish, claim and ack:", last)
				if round == 1 {
					first = last
				}
			}
			for i, what := range []string{"publish", "claim", "ack"} {
				if last[i] > 3*first[i]+100 {
					t.Errorf("a %s reads %d index entries under a held snapshot, after %d at first", what, last[i], first[i])
				}
			}
		})
	}
}

const heldBatch = 100

// readPerMessage passes messages through the queue, one by one, and counts the
// index entries that each publish, claim and ack reads.
func (b broker) readPerMessage() (read []int64) {
	b.t.Helper()
	before := b.indexReads()
	count := func() {
		after := b.indexReads()
		read = append(read, (after-before)/heldBatch)
		before = after
	}
	var got []commands.Delivery
	for i := range heldBatch {
		b.publish("q", commands.Message{RoutingKey: fmt.Sprint("k", i)})
	}
	count()
	for range heldBatch {
		got = append(got, b.receive("q", 1)...)
	}
	count()
	for _, d := range got {
		b.ack("q", d)
	}
	count()
	return read
}

// indexReads are the index entries that were read of the queue views, and of streams.
func (b broker) indexReads() (n int64) {
	b.t.Helper()
	// Sessions tell at their end what they read, at the latest.
	b.pool.Reset()
	require.Eventually(b.t, func() bool {
		var sessions int
		err := b.pool.QueryRow(ctx, `
			select count(*) from pg_stat_activity
			where datname = current_database() and pid <> pg_backend_pid() and state <> 'idle in transaction'`).Scan(&sessions)
		return err == nil && sessions == 0
	}, patience, patience/10_000)
	require.NoError(b.t, b.pool.QueryRow(ctx, `
		select sum(idx_tup_read)::bigint from pg_stat_user_indexes
		where schemaname = 'leat' and relname in ('queue_runs', 'lanes', 'streams', 'stream_heads')`).Scan(&n))
	return n
}
