package commands_test

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
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

func exec(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	_, err := pool.Exec(context.Background(), sql, args...)
	require.NoError(t, err, sql)
}

// texts collects the one text column of a query.
func texts(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) []string {
	t.Helper()
	rows, err := pool.Query(context.Background(), sql, args...)
	require.NoError(t, err, sql)
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err, sql)
	return found
}

// From SQL, receipts may come in any order, doubled, of several deliveries, or not at all.
func TestAckFromSQL(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	exec(t, pool, `select leat.declare_channel('q', 'queue', 'standard', '{}', 'test')`)
	exec(t, pool, `select leat.publish_batch('q', array['1', '2', '3', '4', '5']::bytea[])`)
	first := texts(t, pool, `select receipt from leat.poll('q', 2)`)
	second := texts(t, pool, `select receipt from leat.poll('q', 3)`)

	require.Empty(t, texts(t, pool, `select result from leat.ack('q', '{}')`))
	given := []string{second[1], first[0], "1:1", second[0], second[1], first[1]}
	require.Equal(t, given, texts(t, pool, `select receipt from leat.ack('q', $1)`, given))
	require.Equal(t, []string{"acked"}, texts(t, pool, `select distinct result from leat.ack('q', $1)`, append(first, second[:2]...)))
	require.Equal(t, []string{"in_flight:1"}, texts(t, pool, `select state || ':' || count(*) from leat.queue_messages group by state`))
	require.Equal(t, []string{"4"}, texts(t, pool, `
		select count(distinct i.id)::text from leat.events e, unnest(e.message_ids) i (id) where e.kind = 'message.acked'`))
	require.Empty(t, texts(t, pool, `select v.message_id::text from leat.verify_views() v`))
}

// eventually runs a real sweeper until the query answers want.
func eventually(t *testing.T, pool *pgxpool.Pool, want, sql string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- (&commands.Sweeper{Pool: pool, Logger: slog.New(slog.DiscardHandler)}).Run(ctx) }()
	require.Eventually(t, func() bool {
		var got string
		return pool.QueryRow(ctx, sql).Scan(&got) == nil && got == want
	}, 20*time.Second, 20*time.Millisecond, sql)
	cancel()
	require.NoError(t, <-done)
}

func TestG3StaleReceiptChangesNothing(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	exec(t, pool, `select leat.declare_channel('q', 'queue', 'standard', '{}', 'test')`)
	exec(t, pool, `select leat.publish('q', 'x')`)
	receipt := texts(t, pool, `select receipt from leat.poll('q', 1, '1 microsecond')`)[0]
	require.Equal(t, []string{"lease_expired"}, texts(t, pool, `select result from leat.ack('q', array[$1])`, receipt))
	eventually(t, pool, "1", `select attempts::text from leat.queue_messages where state = 'delayed' or state = 'ready'`)
	require.Equal(t, []string{"lease_expired"}, texts(t, pool, `select result from leat.nack('q', array[$1])`, receipt))
	require.Equal(t, []string{"unknown"}, texts(t, pool, `select result from leat.ack('q', array['1:1'])`))
}

func TestG3SettlingTwice(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	exec(t, pool, `select leat.declare_channel('q', 'queue', 'standard', '{}', 'test')`)
	exec(t, pool, `select leat.declare_channel('other', 'queue', 'standard', '{}', 'test')`)
	exec(t, pool, `select leat.publish('q', 'x')`)
	receipt := texts(t, pool, `select receipt from leat.poll('q')`)[0]
	require.Equal(t, []string{"wrong_queue"}, texts(t, pool, `select result from leat.ack('other', array[$1])`, receipt))
	for range 2 {
		require.Equal(t, []string{"acked"}, texts(t, pool, `select result from leat.ack('q', array[$1])`, receipt))
	}
	require.Equal(t, []string{"1"}, texts(t, pool, `select count(*)::text from leat.events where kind = 'message.acked'`))
}

// F7: nothing of a FIFO key is delivered while its head is in flight.
func TestF07HeadHidesItsKey(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	exec(t, pool, `select leat.declare_channel('f', 'queue', 'fifo', '{"base_delay": "0 s", "max_delay": "0 s"}', 'test')`)
	exec(t, pool, `select leat.publish('f', convert_to(n::text, 'UTF8'), 'k') from generate_series(1, 3) n`)
	receipts := texts(t, pool, `select receipt from leat.poll('f')`)
	require.Len(t, receipts, 3)
	exec(t, pool, `select leat.extend('f', array[$1], '1 hour')`, receipts[0])
	exec(t, pool, `select leat.extend('f', $1, '1 microsecond')`, receipts[1:])
	eventually(t, pool, "2", `select count(*)::text from leat.queue_messages where state = 'ready'`)
	exec(t, pool, `select leat.publish('f', '4', 'k')`)
	require.Empty(t, texts(t, pool, `select receipt from leat.poll('f')`))
	exec(t, pool, `select leat.ack('f', array[$1])`, receipts[0])
	require.Equal(t, []string{"2", "3", "4"}, texts(t, pool, `select convert_from(payload, 'UTF8') from leat.poll('f')`))
}

// G4: an open publish of a key hides nothing that is committed, and a lane that
// was emptied meanwhile is found again.
func TestG4OpenPublishHidesNothing(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := dbtest.New(t)
	exec(t, pool, `select leat.declare_channel('f', 'queue', 'fifo', '{}', 'test')`)
	exec(t, pool, `select leat.publish('f', '1', 'k')`)
	open, err := pool.Begin(ctx)
	require.NoError(t, err)
	_, err = open.Exec(ctx, `select leat.publish('f', '2', 'k')`)
	require.NoError(t, err)
	exec(t, pool, `select leat.ack('f', array(select receipt from leat.poll('f')))`)
	require.Empty(t, texts(t, pool, `select receipt from leat.poll('f')`))
	require.NoError(t, open.Commit(ctx))
	require.Equal(t, []string{"2"}, texts(t, pool, `select convert_from(payload, 'UTF8') from leat.poll('f')`))
}

// F8 of dedup, FS8: the loser gets the winner's id; other content is refused.
func TestFS08DedupWinnerIsNamed(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	exec(t, pool, `select leat.declare_channel('q', 'queue', 'standard', '{}', 'test')`)
	first := texts(t, pool, `select leat.publish('q', 'x', dedup_id => 'd')::text`)
	require.Equal(t, first, texts(t, pool, `select leat.publish('q', 'x', dedup_id => 'd')::text`))
	_, err := pool.Exec(context.Background(), `select leat.publish_batch('q', array['y'::bytea, 'z'], dedup_ids => array['d', null])`)
	require.ErrorContains(t, err, "other content")
	require.Equal(t, []string{"1"}, texts(t, pool, `select count(*)::text from leat.queue_messages`))
}

// F13, F14: each message expires at its own time; where the queue asks, into
// the dead letters, where nothing expires.
func TestF13F14Expiry(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	exec(t, pool, `select leat.declare_channel('q', 'queue', 'fifo', '{"dead_letter_expired": true, "circuit": false}', 'test')`)
	exec(t, pool, `select leat.publish('q', 'long', 'k', expires_at => clock_timestamp() + interval '1 hour')`)
	exec(t, pool, `select leat.publish('q', 'short', 'k', expires_at => clock_timestamp() + interval '1 second')`)
	eventually(t, pool, "expired", `select reason from leat.dead_letters`)
	require.Equal(t, []string{"long"}, texts(t, pool, `select convert_from(payload, 'UTF8') from leat.poll('q')`))
	require.Equal(t, []string{"1"}, texts(t, pool, `select count(*)::text from leat.dead_letters`))
}

// FS9: a nack with a delay at the last attempt is dead at once.
func TestFS09LastAttempt(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	exec(t, pool, `select leat.declare_channel('q', 'queue', 'standard', '{"max_deliveries": 1}', 'test')`)
	exec(t, pool, `select leat.publish('q', 'x')`)
	exec(t, pool, `select leat.nack('q', array(select receipt from leat.poll('q')), delay => '1 hour')`)
	require.Equal(t, []string{"retries_exhausted"}, texts(t, pool, `select reason from leat.dead_letters`))
}

func TestG1LogIsAppendOnly(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	exec(t, pool, `select leat.make_partitions()`)
	exec(t, pool, `select leat.declare_channel('q', 'queue', 'standard', '{}', 'test')`)
	for _, sql := range []string{`update leat.events set actor = 'x'`, `delete from leat.events`, `truncate leat.events`} {
		_, err := pool.Exec(context.Background(), sql)
		require.ErrorContains(t, err, "append-only", sql)
	}
}

// A late partition maker loses nothing: the default partition becomes an ordinary one.
func TestPartitionsMadeLate(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	exec(t, pool, `select leat.declare_channel('q', 'queue', 'standard', '{}', 'test')`)
	exec(t, pool, `select leat.publish('q', 'x') from generate_series(1, 50)`)
	exec(t, pool, `select leat.make_partitions(16)`)
	exec(t, pool, `select leat.publish('q', 'x') from generate_series(1, 100)`)
	exec(t, pool, `select leat.make_partitions(16)`)
	require.Equal(t, []string{"0"}, texts(t, pool, `select count(*)::text from leat.events_default`))
	require.Equal(t, []string{"150"}, texts(t, pool, `select count(*)::text from leat.events where kind = 'message.published'`))
}
