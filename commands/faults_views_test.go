package commands_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"leat/commands"
	"leat/eventstore"
	"leat/migrations/dbtest"
)

// G4: what was published while the views were lost enters them before what is
// published to the same key later, whoever else is about to place it.
func TestG4UnplacedIsNotOvertaken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.stop() // nothing sweeps but this test
	b.Broker = commands.New(commands.Config{Pool: b.pool})
	queue := b.declare("f", commands.FIFO, commands.PolicyPatch{})
	begin := func(sql string, args ...any) pgx.Tx {
		t.Helper()
		tx, err := b.pool.Begin(ctx)
		require.NoError(t, err)
		t.Cleanup(func() { _ = tx.Rollback(ctx) }) // closed unless the test failed
		_, err = tx.Exec(ctx, sql, args...)
		require.NoError(t, err)
		return tx
	}
	exec(t, b.pool, `select leat.lose_views()`)
	early := begin(`select leat.publish('f', '1', 'k')`)
	exec(t, b.pool, `select leat.rebuild_views()`)
	require.NoError(t, early.Commit(ctx))

	// A publish has the key, a sweep looks at what is unplaced but cannot have
	// it, and then the publish goes on.
	publisher := begin(`select pg_advisory_xact_lock(1279607043, leat.append_lock($1, 'k'))`, queue.ID)
	sweeper := begin(`select leat.sweep(null)`)
	_, err := publisher.Exec(ctx, `select leat.publish('f', '2', 'k')`)
	require.NoError(t, err)
	require.NoError(t, publisher.Commit(ctx))
	got := payloads(b.poll(commands.PollRequest{Queue: "f", Max: 1}))
	require.NotEqual(t, []string{"2"}, got)
	require.NoError(t, sweeper.Commit(ctx))
	exec(t, b.pool, `select leat.sweep(null)`)
	require.Equal(t, []string{"1", "2"}, append(got, payloads(b.poll(commands.PollRequest{Queue: "f"}))...))
	b.verify()
}

// G3: claims commit asynchronously, so a crash may lose the last ones, and the
// positions that they drew: no receipt may come twice.
func TestG3NoReceiptTwiceAfterCrash(t *testing.T) {
	t.Parallel()
	server := dbtest.Cluster(t, map[string]string{"fsync": "off", "wal_writer_delay": "10s"})
	b := wired(t, server.URL())
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	const messages = 100
	b.publishTexts("q", "", numbered(messages)...)
	var last eventstore.Position
	for range messages {
		last = max(last, b.receive("q", 1)[0].Receipt.Delivery)
	}
	server.Kill()
	restart(t, server)
	insist(t, b.pool, `select leat.need_views()`)
	b.publishTexts("q", "", "new")
	got := b.receive("q", 1)
	got = append(got, b.poll(commands.PollRequest{Queue: "q", Max: messages})...)
	t.Log(len(got)-1, "claims were lost")
	for _, d := range got {
		require.Greater(t, d.Receipt.Delivery, last)
	}
	b.verify()
}

// G1: messages of a standard queue that come while others are placed are placed as such.
func TestG1PlacedWhileOthersCome(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	exec(t, b.pool, `select leat.lose_views()`)
	b.publishTexts("q", "k", "1")
	late, err := b.pool.Begin(ctx)
	require.NoError(t, err)
	_, err = late.Exec(ctx, `select leat.publish('q', '2', 'k')`)
	require.NoError(t, err)
	first, err := b.pool.Begin(ctx)
	require.NoError(t, err)
	exec(t, b.pool, `insert into leat.views_alive default values on conflict do nothing`)
	_, err = first.Exec(ctx, `select from leat.unplaced for update`)
	require.NoError(t, err)
	require.Eventually(t, func() bool { // a sweep, or this, waits for the first
		go func() { _, _ = b.pool.Exec(ctx, `select leat.place_unplaced()`) }()
		return len(texts(t, b.pool, `select 'x' from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`)) > 0
	}, patience, 50*time.Millisecond)
	require.NoError(t, late.Commit(ctx))
	require.NoError(t, first.Rollback(ctx))
	require.Equal(t, []string{"1", "2"}, payloads(b.receive("q", 2)))
	require.Empty(t, texts(t, b.pool, `select l::text from leat.lanes l`))
}
