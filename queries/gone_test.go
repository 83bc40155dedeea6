package queries_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"leat/eventstore"
	"leat/migrations/dbtest"
	"leat/queries"
)

// A partition that somebody dropped by hand is a gap: whoever asks for what was there,
// or for what cannot be known without it, is told so; everybody else is served.
func TestGapInLog(t *testing.T) {
	t.Parallel()
	for _, by := range []string{`drop table leat.events_1025`, `alter table leat.events detach partition leat.events_1025`} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			pool := dbtest.New(t)
			do := func(sql string, args ...any) {
				t.Helper()
				_, err := pool.Exec(t.Context(), sql, args...)
				require.NoError(t, err)
			}
			do(`select leat.make_partitions(1024)`)
			do(`select leat.declare_channel('q', 'queue', 'standard', '{}', 'test'), leat.declare_channel('r', 'queue', 'standard', '{}', 'test')`)
			done := number(t, pool, `select leat.publish('q', 'done')`)
			do(`select leat.ack('q', array(select receipt from leat.poll('q')))`)
			waits := number(t, pool, `select leat.publish('q', 'waits')`)
			before := number(t, pool, `select last_value from leat.position_seq`)
			fill := func() {
				t.Helper()
				do(`insert into leat.events (kind, channel_id, actor, routing_key, payload) select 'message.published', 1000, 'test', '', 'x'
					from generate_series(1, 1024 - (select last_value % 1024 from leat.position_seq))`)
				do(`select leat.make_partitions(1024)`)
			}
			fill()
			lost := number(t, pool, `select leat.publish('q', 'lost')`)
			fill()
			behind := number(t, pool, `select leat.publish('q', 'behind')`)
			do(by)

			q := queries.New(pool)
			gone := func(err error) {
				t.Helper()
				var e *eventstore.Error
				require.ErrorAs(t, err, &e)
				require.Equal(t, eventstore.EventsGone, e.Code)
				require.EqualValues(t, 2049, e.First)
				require.ErrorContains(t, err, "1025 to 2048")
			}
			events := func(f queries.EventsFilter) error {
				_, _, err := q.Events(t.Context(), f)
				return err
			}
			gone(events(queries.EventsFilter{}))
			gone(events(queries.EventsFilter{Backwards: true}))
			gone(events(queries.EventsFilter{From: 1030, To: 1040}))
			gone(events(queries.EventsFilter{MessageID: eventstore.MessageID(lost)}))
			require.NoError(t, events(queries.EventsFilter{To: 1024}))
			require.NoError(t, events(queries.EventsFilter{From: 2049}))
			history := func(id int64) error {
				_, _, err := q.History(t.Context(), eventstore.MessageID(id), queries.HistoryFilter{})
				return err
			}
			gone(history(lost))
			gone(history(waits))
			require.NoError(t, history(done), "nothing comes behind an ack")
			require.NoError(t, history(behind))

			asOf := func(p int64, queue string) error {
				m, err := q.MomentAt(t.Context(), eventstore.Position(p))
				if err == nil {
					_, err = q.ChannelAsOf(t.Context(), queue, m)
				}
				return err
			}
			require.NoError(t, asOf(before, "q"))
			gone(asOf(1500, "q"))
			require.ErrorIs(t, asOf(behind, "q"), &eventstore.Error{Code: eventstore.EventsGone})

			// Verification says what nobody can compare; work goes on.
			require.EqualValues(t, 1, number(t, pool, `select count(*) from leat.verify_views() where log ->> 'goneFrom' = '1025' and log ->> 'goneTo' = '2048'`))
			require.EqualValues(t, 2, number(t, pool, `select count(*) from leat.poll('q', 10) p where p.payload in ('waits', 'behind')`))
			_, err := pool.Exec(t.Context(), `select leat.plan_replay('q', 'r', null, null, null, null, null, null, null, 0, 'test')`)
			require.ErrorIs(t, eventstore.FromPg(err), &eventstore.Error{Code: eventstore.EventsGone})
			do(`select leat.plan_replay('q', 'r', 2049, null, null, null, null, null, null, 0, 'test')`)
		})
	}
}

// The partition that is written to goes: what comes next has a place again, and the
// gap is where it was.
func TestGapWhereItIsWritten(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	store := eventstore.New(pool)
	for _, sql := range []string{
		`select leat.make_partitions(1024)`,
		`select leat.declare_channel('q', 'queue', 'standard', '{}', 'test')`,
		`select leat.publish('q', 'lost')`,
		`drop table leat.events_1`,
		`select leat.publish('q', 'next')`,
		`select leat.make_partitions(1024)`,
	} {
		_, err := pool.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	require.NoError(t, store.MakePartitions(t.Context()))
	next := number(t, pool, `select max(position) from leat.events`)
	require.Equal(t, next-1, number(t, pool, `select sum(high) from leat.log_gaps() where low = 1`))
	require.Zero(t, number(t, pool, `select count(*) from leat.events_default`))
}

// A stream whose messages are gone begins behind them, for all who read it.
func TestGapInStream(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	do := func(sql string) {
		t.Helper()
		_, err := pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	do(`select leat.make_partitions(1024)`)
	do(`select leat.declare_channel('s', 'stream', 'stream', '{}', 'test'), leat.declare_channel('other', 'stream', 'stream', '{}', 'test')`)
	for _, text := range []string{"a", "lost", "behind"} {
		do(`select leat.publish('s', '` + text + `')`)
		if text == "a" {
			do(`select leat.publish('other', 'whole')`)
		}
		do(`insert into leat.events (kind, channel_id, actor, routing_key, payload) select 'message.published', 1000, 'test', '', 'x'
			from generate_series(1, 1024 - (select last_value % 1024 from leat.position_seq))`)
		do(`select leat.make_partitions(1024)`)
	}
	do(`drop table leat.events_1025`)
	store := eventstore.New(pool)
	for range 2 {
		require.NoError(t, store.TrimGaps(t.Context()))
	}
	q := queries.New(pool)
	for offset := range eventstore.Offset(2) {
		_, err := q.StreamMessages(t.Context(), "s", queries.StreamFilter{Start: eventstore.Start{Kind: eventstore.StartOffset, Offset: offset}})
		var gone *eventstore.Error
		require.ErrorAs(t, err, &gone)
		require.Equal(t, eventstore.OffsetGone, gone.Code)
		require.EqualValues(t, 2, gone.Resume.Offset)
	}
	page, err := q.StreamMessages(t.Context(), "s", queries.StreamFilter{Start: eventstore.Start{Kind: eventstore.StartEarliest}})
	require.NoError(t, err)
	require.Len(t, page.Messages, 1)
	page, err = q.StreamMessages(t.Context(), "other", queries.StreamFilter{Start: eventstore.Start{Kind: eventstore.StartEarliest}})
	require.NoError(t, err)
	require.Len(t, page.Messages, 1)
	require.Zero(t, number(t, pool, `select count(*) from leat.verify_streams()`))
	require.EqualValues(t, 1, number(t, pool, `select count(*) from leat.events where kind = 'stream.trimmed'`))
}

func number(t *testing.T, pool *pgxpool.Pool, sql string) (n int64) {
	t.Helper()
	require.NoError(t, pool.QueryRow(t.Context(), sql).Scan(&n), sql)
	return n
}
