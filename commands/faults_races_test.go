package commands_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"leat/commands"
	"leat/migrations/dbtest"
)

// begin opens a transaction that ends with the test at the latest.
func begin(t *testing.T, pool *pgxpool.Pool, sql string) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(ctx)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(ctx) })
	_, err = tx.Exec(ctx, sql)
	require.NoError(t, err)
	return tx
}

// blocked runs a query that must wait for a lock; its error comes when the lock is gone.
func blocked(t *testing.T, pool *pgxpool.Pool, sql string) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		_, err := pool.Exec(ctx, sql)
		done <- err
	}()
	require.Eventually(t, func() bool {
		return texts(t, pool, `select count(*)::text from pg_stat_activity
			where datname = current_database() and wait_event_type = 'Lock' and query = '`+sql+`'`)[0] == "1"
	}, forgiving, 5*time.Millisecond, "it does not wait: %s", sql)
	return done
}

// A lane that is emptied while a publish into its key is open stays, parked. It
// must outlive the settlement of a part of what is claimed from it then.
func TestAPartOfAParkedLaneIsSettled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", "fifo", commands.PolicyPatch{})
	b.publishTexts("q", "k", "1")
	first := b.receive("q", 1)
	open := begin(t, b.pool, `select leat.publish_batch('q', array['2', '3']::bytea[], array['k', 'k'])`)
	b.ack("q", first...)
	require.NoError(t, open.Commit(ctx))

	both := b.receive("q", 2)
	b.ack("q", both[0])
	b.publishTexts("q", "k", "4")
	require.Empty(t, b.poll(commands.PollRequest{Queue: "q"}), "two deliveries of a key are in flight")
	b.ack("q", both[1])
	require.Equal(t, []string{"4"}, payloads(b.receive("q", 1)))
	b.verify()
}

// A purge that waits for one lane leaves alone the lanes that come meanwhile: it
// has not locked them, and somebody may claim from them.
func TestAPurgeTakesNothingFromLanesItHasNotLocked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", "fifo", commands.PolicyPatch{})
	b.publishTexts("q", "a", "1")
	held := begin(t, b.pool, `select from leat.lanes for update`)
	purged := blocked(t, b.pool, `select leat.purge_queue(leat.queue_id($$q$$), null)`)
	b.publishTexts("q", "b", "2")
	require.NoError(t, held.Rollback(ctx))
	require.NoError(t, <-purged)

	require.Equal(t, []string{"2"}, payloads(b.receive("q", 1)))
	b.verify()
}

// Messages of one FIFO key in one publish are delivered in its order, whatever
// their times.
func TestTimesDoNotReorderAKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", "fifo", commands.PolicyPatch{})
	_, err := b.pool.Exec(ctx, `select leat.publish_batch('q', array['1', '2', '3', '4']::bytea[], array['k', 'k', 'k', 'k'],
		deliver_ats => array[null, clock_timestamp() - interval '1 h', null, null],
		expires_ats => array[null, null, clock_timestamp() + interval '1 h', null])`)
	require.NoError(t, err)
	first := b.receive("q", 3)
	require.Equal(t, []string{"1", "2", "3"}, payloads(first))
	b.ack("q", first...)
	require.Equal(t, []string{"4"}, payloads(b.receive("q", 1)))
	b.verify()
}

// A publish that began while the views were lost and ends while they are copied
// must not be taken for one that is in the copy.
func TestACheckpointMissesNoPublish(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	texts(t, pool, `select leat.declare_channel('q', 'queue', 'standard', '{}', 'me')::text`)
	texts(t, pool, `select leat.lose_views()::text`)
	open := begin(t, pool, `select leat.publish('q', '1', deliver_at => clock_timestamp() - interval '1 h')`)
	texts(t, pool, `select leat.rebuild_views()::text`)
	held := begin(t, pool, `lock table leat.checkpoints in share mode`)
	copied := blocked(t, pool, `select leat.checkpoint(1)`)
	require.NoError(t, open.Commit(ctx))
	require.NoError(t, held.Rollback(ctx))
	require.NoError(t, <-copied)

	require.Equal(t, []string{"1"}, texts(t, pool, `select leat.place_unplaced()::text`))
	require.Empty(t, texts(t, pool, `select v::text from leat.verify_views() v`))
	texts(t, pool, `select leat.lose_views()::text`)
	require.Equal(t, []string{"1"}, texts(t, pool, `select leat.rebuild_views()::text`))
}

// A claim that splits a run while its queue is deleted by force leaves nothing behind.
func TestDeleteWaitsForAClaim(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", "standard", commands.PolicyPatch{})
	b.publishTexts("q", "k", "1", "2", "3", "4", "5")
	open := begin(t, b.pool, `select leat.poll('q', 2)`)
	deleted := blocked(t, b.pool, `select leat.delete_channel($$q$$, true, null)`)
	require.NoError(t, open.Commit(ctx))
	require.NoError(t, <-deleted)
	require.Equal(t, []string{"0"}, texts(t, b.pool, `select count(*)::text from leat.queue_runs`))
	b.verify()
}
