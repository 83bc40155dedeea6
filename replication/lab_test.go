package replication_test

import (
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"leat/eventstore"
	"leat/migrations/dbtest"
	"leat/replication"
)

// lab is a stream that is written by hand, and points on it.
type lab struct {
	t    testing.TB
	pool *pgxpool.Pool
	*replication.Points
}

func newLab(t testing.TB) lab {
	t.Helper()
	pool := dbtest.New(t)
	declareStream(t, pool)
	return lab{t, pool, replication.NewPoints(replication.PointsConfig{Pool: pool, Logger: quiet})}
}

// another is another broker on the same database.
func (l lab) another() lab {
	l.Points = replication.NewPoints(replication.PointsConfig{Pool: l.pool, Logger: quiet})
	return l
}

// running is a lab whose points look after their readers.
func (l lab) running(t *testing.T) lab {
	t.Helper()
	run(t, l.Run)
	return l
}

func declareStream(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	_, err := pool.Exec(ctx, `select leat.declare_channel('s', 'stream', 'stream', '{}', 'test')`)
	require.NoError(t, err)
}

func dropStream(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	_, err := pool.Exec(ctx, `select leat.delete_channel('s', true, 'test')`)
	require.NoError(t, err)
}

// publish appends n messages to the stream s.
func (l lab) publish(n int) {
	l.t.Helper()
	l.publishAt(n, time.Now())
}

func (l lab) publishAt(n int, at time.Time) {
	l.t.Helper()
	_, err := l.pool.Exec(ctx, `
		with head as (
		    update leat.stream_heads h set next_offset = h.next_offset + $1
		    from leat.channels c where c.name = 's' and c.deleted_at is null and h.channel_id = c.id
		    returning h.channel_id, h.next_offset - $1 as first
		)
		insert into leat.events (kind, channel_id, stream_offset, at, payload)
		select 'message.published', h.channel_id, h.first + g, $2, '' from head h, generate_series(0, $1 - 1) g`, n, at)
	require.NoError(l.t, err)
}

// trim has the stream s begin at an offset.
func (l lab) trim(first eventstore.Offset) {
	l.t.Helper()
	_, err := l.pool.Exec(ctx, `
		update leat.streams s set first_offset = $1
		from leat.channels c where c.name = 's' and c.deleted_at is null and s.channel_id = c.id`, first)
	require.NoError(l.t, err)
}

func (l lab) epoch() (epoch eventstore.Position) {
	l.t.Helper()
	err := l.pool.QueryRow(ctx, `select epoch from leat.channels where name = 's' and deleted_at is null`).Scan(&epoch)
	require.NoError(l.t, err)
	return epoch
}

// verify holds the points against the log.
func (l lab) verify() {
	l.t.Helper()
	rows, err := l.pool.Query(ctx, `select concat(v.log, ' in the log, not ', v.view) from leat.verify_streams() v`)
	require.NoError(l.t, err)
	different, err := pgx.CollectRows(rows, pgx.RowTo[*string])
	require.NoError(l.t, err)
	require.Empty(l.t, different)
}

// positions are those of a point of the stream s.
func (l lab) positions(point string) []eventstore.Offset {
	l.t.Helper()
	rows, err := l.pool.Query(ctx, `
		select p.next_offset from leat.point_positions p
		join leat.channels c on c.id = p.channel_id and c.name = 's' and c.deleted_at is null
		where p.name = $1 order by p.partition`, point)
	require.NoError(l.t, err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[eventstore.Offset])
	require.NoError(l.t, err)
	return list
}

// events are what the log has of points: kind and data.
func (l lab) events() []string {
	l.t.Helper()
	rows, err := l.pool.Query(ctx, `select kind || ' ' || data from leat.events where kind::text like 'point.%' order by position`)
	require.NoError(l.t, err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(l.t, err)
	return list
}

// hold runs statements in a transaction that ends with the test, or by release.
func (l lab) hold(statements ...string) (release func()) {
	l.t.Helper()
	tx, err := l.pool.Begin(ctx)
	require.NoError(l.t, err)
	release = sync.OnceFunc(func() { _ = tx.Rollback(ctx) })
	l.t.Cleanup(release)
	for _, sql := range statements {
		_, err := tx.Exec(ctx, sql)
		require.NoError(l.t, err)
	}
	return release
}

func (l lab) declare(point string, start eventstore.Start) {
	l.t.Helper()
	created, err := l.Declare(ctx, "test", "s", point, 0, start)
	require.NoError(l.t, err)
	require.True(l.t, created)
}

func (l lab) commit(offset eventstore.Offset) error {
	return l.Commit(ctx, "test", "s", "p", eventstore.StreamPosition{Offset: offset})
}

func (l lab) join(r eventstore.SubscribeRequest) replication.Member {
	l.t.Helper()
	r.Stream = "s"
	if r.Point == "" {
		r.Point = "p"
	}
	m, err := l.Join(ctx, r)
	require.NoError(l.t, err)
	return m
}

func nextOf(t testing.TB, m replication.Member) eventstore.Offset {
	t.Helper()
	next, err := m.Next()
	require.NoError(t, err)
	require.Len(t, next, 1)
	return next[0]
}

// ends waits for the end of a membership, and answers why.
func ends(t testing.TB, m replication.Member) error {
	t.Helper()
	late := time.After(patience)
	for {
		if _, err := m.Next(); err != nil {
			return err
		}
		select {
		case <-m.Changed():
		case <-late:
			require.FailNow(t, "the membership does not end")
		}
	}
}

func refused(t testing.TB, code eventstore.Code, err error) {
	t.Helper()
	_ = refusal(t, code, err)
}

// refusal is an error of that code.
func refusal(t testing.TB, code eventstore.Code, err error) eventstore.Error {
	t.Helper()
	var e *eventstore.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, code, e.Code, "%v", err)
	require.NotEmpty(t, e.Message)
	return *e
}

var (
	earliest = eventstore.Start{Kind: eventstore.StartEarliest}
	latest   = eventstore.Start{Kind: eventstore.StartLatest}
)

func at(offset eventstore.Offset) eventstore.Start {
	return eventstore.Start{Kind: eventstore.StartOffset, Offset: offset}
}
