package eventstore_test

import (
	"log/slog"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"leat/eventstore"
	"leat/migrations/dbtest"
	"leat/projections"
)

// one reads a value.
func one[T any](t *testing.T, db *pgxpool.Pool, sql string, args ...any) T {
	t.Helper()
	rows, err := db.Query(t.Context(), sql, args...)
	require.NoError(t, err)
	v, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	require.NoError(t, err)
	return v
}

// A database is another one when its server or itself is, or when its server was set
// back to an earlier state, or promoted, while no broker was alive. Each time streams
// get a new epoch. Offsets of an old one are good up to where any later one began.
func TestNoticeRestore(t *testing.T) {
	t.Parallel()
	c := newSmallLog(t)
	c.exec(`select leat.declare_channel('s', 'stream', 'stream', '{}', 'test')`)
	const restores = `select count(*) from leat.events where kind = 'log.restored'`
	notice := func(starting bool) int64 {
		require.NoError(t, c.store.NoticeRestore(t.Context(), starting))
		return one[int64](t, c.pool, restores)
	}
	refused := func(epoch, offset int64) (resume int64) {
		_, err := c.pool.Exec(t.Context(), `select leat.find_start('s', 'offset', $2, null, $1, false)`, epoch, offset)
		if err == nil {
			return 0
		}
		var e *eventstore.Error
		require.ErrorAs(t, eventstore.FromPg(err), &e)
		require.Equal(t, eventstore.EpochChanged, e.Code)
		return int64(e.Resume.Offset)
	}
	epoch := func() int64 { return one[int64](t, c.pool, `select epoch from leat.find_stream('s', false)`) }
	require.Zero(t, notice(true), "the first time there is nothing to compare with")
	require.Zero(t, notice(true))
	first := epoch()

	c.exec(`select leat.publish_batch('s', array['a', 'b', 'c']::bytea[])`)
	c.exec(`update leat.home set timeline = 0`)
	require.Zero(t, notice(false), "a broker that goes on has told its readers")
	c.exec(`update leat.home set timeline = 0`)
	c.exec(`insert into leat.brokers (id, tail, since, until) values ('b', 'wal', now(), now() + interval '1 hour')`)
	require.Zero(t, notice(true), "so has another one")
	c.exec(`delete from leat.brokers`)
	c.exec(`update leat.home set timeline = 0`)
	require.EqualValues(t, 1, notice(true))
	second := epoch()
	require.Greater(t, second, first)
	c.exec(`select leat.publish_batch('s', array['d', 'e', 'f']::bytea[])`)
	require.Zero(t, refused(first, 3))
	require.EqualValues(t, 3, refused(first, 4))
	require.Zero(t, refused(second, 6))

	c.exec(`update leat.home set database = 1`)
	require.EqualValues(t, 2, notice(false), "a copy within the server")
	third := epoch()
	require.Equal(t, []int64{3, 6}, []int64{refused(first, 6), refused(second, 7)})
	require.Zero(t, refused(second, 6)+refused(third, 6))
	c.exec(`update leat.home set cluster = 1`)
	require.EqualValues(t, 3, notice(false))
	require.EqualValues(t, 3, notice(true))
	c.whole()

	// The epochs are what the log says, also what has left it.
	for range 3 {
		c.fill()
	}
	c.exec(`select leat.alter_channel('s', '{"retention_messages": 1}', 'test')`)
	c.exec(`select leat.publish('s', 'g')`)
	c.exec(`select leat.trim_streams(10)`)
	require.NotZero(t, c.drop())
	require.Zero(t, one[int64](t, c.pool, restores))
	c.exec(`delete from leat.epochs`)
	require.NotEmpty(t, one[string](t, c.pool, `select string_agg(log::text, '') from leat.verify_streams()`))
	_, err := projections.New(c.pool, slog.New(slog.DiscardHandler)).Rebuild(t.Context())
	require.NoError(t, err)
	c.whole()
	require.EqualValues(t, 6, refused(second, 7))
}

// A role that may not see which database this is can serve all the same.
func TestNoticeRestoreMayNot(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	_, err := pool.Exec(t.Context(), `create or replace function leat.identity() returns leat.home language plpgsql as
		$$ begin raise exception 'no' using errcode = '42501'; end $$`)
	require.NoError(t, err)
	require.NoError(t, eventstore.New(pool).NoticeRestore(t.Context(), true))
}
