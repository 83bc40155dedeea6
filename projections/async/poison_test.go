package async_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"leat/eventstore"
	"leat/migrations/dbtest"
	"leat/projections/async"
)

// picky is Statistics, but for the messages with a routing key that it cannot take.
type picky struct {
	async.Statistics
	refuses *atomic.Bool
	how     func(ctx context.Context, tx pgx.Tx) error
}

// Apply refuses a range with such a message, after it has written something.
func (p picky) Apply(ctx context.Context, tx pgx.Tx, r async.Range) error {
	if err := p.Statistics.Apply(ctx, tx, r); err != nil {
		return err
	}
	var there bool
	err := tx.QueryRow(ctx, `select exists (select from leat.events e where e.position > $1 and e.position <= $2 and e.routing_key = 'poison')`,
		r.After, r.UpTo).Scan(&there)
	if err == nil && there && p.refuses.Load() {
		return p.how(ctx, tx)
	}
	return err
}

// row is that of a generation.
type row struct {
	Generation     int
	State          string
	Stopped        bool
	Position       int64
	FailedPosition *int64
	Error          *string
}

func rowsOf(t testing.TB, pool *pgxpool.Pool, name string) []row {
	t.Helper()
	return all[row](t, pool, `select p.generation, p.state, p.stopped, p.position, p.failed_position, p.error
		from leat.projections p where p.name = $1 order by p.generation`, name)
}

// recorded are the data of the events of a kind.
func recorded(t testing.TB, pool *pgxpool.Pool, kind eventstore.Kind) (list []map[string]any) {
	t.Helper()
	type record struct {
		Actor string
		Data  []byte
	}
	for _, r := range all[record](t, pool, `select e.actor, e.data from leat.events e where e.kind = $1::text::leat.event_kind order by e.position`, kind) {
		data := map[string]any{"actor": r.Actor}
		require.NoError(t, json.Unmarshal(r.Data, &data))
		list = append(list, data)
	}
	return list
}

// An event that a projection cannot take stops that one alone, and visibly; a person
// lets it try again, or skip the event.
func TestPoisonStopsOneProjection(t *testing.T) {
	t.Parallel()
	ways := map[string]func(ctx context.Context, tx pgx.Tx) error{
		"error": func(context.Context, pgx.Tx) error { return errors.New("no such thing") },
		"panic": func(context.Context, pgx.Tx) error { panic("no such thing") },
		"sql": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `select 'no such thing'::integer`)
			return err
		},
	}
	for name, how := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := dbtest.New(t)
			by := hand(t, pool)
			refuses := &atomic.Bool{}
			refuses.Store(true)
			cfg := quick(t, pool)
			cfg.Projections = []async.Projection{picky{refuses: refuses, how: how}, async.Consumers{}, async.Failures{}}
			s, _ := run(t, cfg)
			do(t, by, `select leat.declare_channel('s', 'queue', 'standard', '{}', 'test')`)
			do(t, by, `select leat.publish('s', 'x') from generate_series(1, 13)`)
			first := one[int64](t, by, `select leat.publish('s', 'x', 'poison')`)
			do(t, by, `select leat.publish('s', 'x') from generate_series(1, 7)`)
			second := one[int64](t, by, `select leat.publish('s', 'x', 'poison')`)
			do(t, by, `select leat.publish('s', 'x') from generate_series(1, 5)`)

			failed := failsAt(t, pool, first)
			require.Contains(t, *failed.Error, "no such thing")
			require.Equal(t, first-1, failed.Position)
			require.EqualValues(t, 13, one[int64](t, pool, `select sum(published)::bigint from leat.channel_minutes`), "what is before it counts, once")
			head := one[int64](t, pool, "select last_value from leat.position_seq")
			eventually(t, func() bool { // the others go on
				return rowsOf(t, pool, "consumers")[0].Position >= head && rowsOf(t, pool, "failures")[0].Position >= head
			})

			changed, err := s.Skip(t.Context(), "statistics", "ann")
			require.NoError(t, err)
			require.True(t, changed)
			failsAt(t, pool, second)
			refuses.Store(false)
			changed, err = s.Retry(t.Context(), "statistics", "bob")
			require.NoError(t, err)
			require.True(t, changed)
			caughtUp(t, pool)
			require.EqualValues(t, 13+7+1+5, one[int64](t, pool, `select sum(published)::bigint from leat.channel_minutes`))

			require.Len(t, recorded(t, pool, eventstore.ProjectionFailed), 2)
			skipped, retried := recorded(t, pool, eventstore.ProjectionSkipped), recorded(t, pool, eventstore.ProjectionRetried)
			require.Len(t, skipped, 1)
			require.Equal(t, "ann", skipped[0]["actor"])
			require.InDelta(t, first, skipped[0]["position"], 0)
			require.Len(t, retried, 1)
			require.Equal(t, "bob", retried[0]["actor"])
			changed, err = s.Skip(t.Context(), "statistics", "ann")
			require.NoError(t, err)
			require.False(t, changed, "nothing has failed")
		})
	}
}

// failsAt waits until the statistics have failed at a position.
func failsAt(t testing.TB, pool *pgxpool.Pool, position int64) (failed row) {
	t.Helper()
	eventually(t, func() bool {
		rows := rowsOf(t, pool, "statistics")
		if len(rows) == 0 {
			return false
		}
		failed = rows[len(rows)-1]
		return failed.FailedPosition != nil && *failed.FailedPosition == position
	})
	return failed
}

// A damaged event of the log is poison of those who read that part of it.
func TestPoisonOfTheLog(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	run(t, quick(t, pool))
	do(t, pool, `select leat.declare_channel('s', 'queue', 'standard', '{}', 'test')`)
	bad := one[int64](t, pool, `select leat.append('message.acked', 1, 'x', array[null]::bigint[])`)
	do(t, pool, `select leat.publish('s', 'x')`)
	failed := failsAt(t, pool, bad)
	require.Contains(t, *failed.Error, "NULL")
}

func TestStopAndStart(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	by := hand(t, pool)
	s, _ := run(t, quick(t, pool))
	do(t, by, `select leat.declare_channel('s', 'queue', 'standard', '{}', 'test')`)
	caughtUp(t, pool)
	changed, err := s.Stop(t.Context(), "statistics", "ann")
	require.NoError(t, err)
	require.True(t, changed)
	changed, err = s.Stop(t.Context(), "statistics", "ann")
	require.NoError(t, err)
	require.False(t, changed)
	before := rowsOf(t, pool, "statistics")[0]
	require.True(t, before.Stopped)
	do(t, by, `select leat.publish('s', 'x')`)
	head := one[int64](t, pool, "select last_value from leat.position_seq")
	eventually(t, func() bool { return rowsOf(t, pool, "consumers")[0].Position >= head })
	require.Equal(t, before, rowsOf(t, pool, "statistics")[0])
	changed, err = s.Start(t.Context(), "statistics", "bob")
	require.NoError(t, err)
	require.True(t, changed)
	caughtUp(t, pool)
	requireEqual(t, pool)
	require.Equal(t, "ann", recorded(t, pool, eventstore.ProjectionStopped)[0]["actor"])
	require.Equal(t, "bob", recorded(t, pool, eventstore.ProjectionStarted)[0]["actor"])

	// What is built while it is stopped waits too.
	_, err = s.Stop(t.Context(), "failures", "ann")
	require.NoError(t, err)
	for _, begins := range []bool{true, false} {
		changed, err = s.Rebuild(t.Context(), "failures", "ann", false)
		require.NoError(t, err)
		require.Equal(t, begins, changed, "it is under way the second time")
	}
	require.True(t, rowsOf(t, pool, "failures")[1].Stopped)
	_, err = s.Start(t.Context(), "failures", "ann")
	require.NoError(t, err)
	eventually(t, func() bool {
		rows := rowsOf(t, pool, "failures")
		return len(rows) == 1 && rows[0].Generation == 2 && !rows[0].Stopped
	})

	_, err = s.Stop(t.Context(), "nothing", "ann")
	require.ErrorIs(t, err, &eventstore.Error{Code: eventstore.ProjectionNotFound})
	_, err = s.Start(t.Context(), "\x00", "ann")
	require.ErrorIs(t, err, &eventstore.Error{Code: eventstore.ProjectionNotFound})
	_, err = s.Rebuild(t.Context(), "nothing", "ann", false)
	require.ErrorIs(t, err, &eventstore.Error{Code: eventstore.ProjectionNotFound})
}

// What has left the log cannot be counted again: a rebuild that would lose it has to be
// forced.
func TestRebuildLosesNothingInSilence(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	s, _ := run(t, quick(t, pool))
	caughtUp(t, pool)
	do(t, pool, `insert into leat.log_begin (first_position, event) values (7, 7)`)
	_, err := s.Rebuild(t.Context(), "statistics", "ann", false)
	var gone *eventstore.Error
	require.ErrorAs(t, err, &gone)
	require.Equal(t, eventstore.EventsGone, gone.Code)
	require.EqualValues(t, 7, gone.First)
	require.Empty(t, recorded(t, pool, eventstore.ProjectionRebuildStarted))
	changed, err := s.Rebuild(t.Context(), "statistics", "ann", true)
	require.NoError(t, err)
	require.True(t, changed)
	require.InDelta(t, 7, recorded(t, pool, eventstore.ProjectionRebuildStarted)[0]["logBegins"], 0)
}

// slow is Statistics that waits, while it builds a generation.
type slow struct {
	async.Statistics
	version int
	from    int // the first generation that waits
	let     chan struct{}
}

func (s slow) Version() int { return s.version }

// Apply waits to be let go on.
func (s slow) Apply(ctx context.Context, tx pgx.Tx, r async.Range) error {
	if r.Generation >= s.from {
		select {
		case <-s.let:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return s.Statistics.Apply(ctx, tx, r)
}

// A rebuild is another generation: the live one is read, and goes on, until it takes its
// place; then the rows of the old one go.
func TestRebuildBesideTheLiveOne(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	by := hand(t, pool)
	let := make(chan struct{})
	cfg := quick(t, pool)
	cfg.Projections = []async.Projection{slow{version: 1, from: 2, let: let}, async.Consumers{}, async.Failures{}}
	s, stop := run(t, cfg)
	do(t, by, `select leat.declare_channel('s', 'queue', 'standard', '{}', 'test')`)
	do(t, by, `select leat.publish('s', 'x') from generate_series(1, 120)`)
	caughtUp(t, pool)

	changed, err := s.Rebuild(t.Context(), "statistics", "ann", false)
	require.NoError(t, err)
	require.True(t, changed)
	do(t, by, `select leat.publish('s', 'x') from generate_series(1, 10)`)
	caughtUp(t, pool)
	requireEqual(t, pool)
	rows := rowsOf(t, pool, "statistics")
	require.Len(t, rows, 2)
	require.Equal(t, "live", rows[0].State)
	require.Equal(t, "building", rows[1].State)

	close(let)
	eventually(t, func() bool {
		rows := rowsOf(t, pool, "statistics")
		return len(rows) == 1 && rows[0].Generation == 2 && rows[0].State == "live"
	})
	caughtUp(t, pool)
	requireEqual(t, pool)
	require.Zero(t, one[int64](t, pool, `select count(*) from leat.channel_minutes where generation = 1`))
	require.Zero(t, one[int64](t, pool, `select count(*) from leat.pending_messages where generation = 1`))
	require.Equal(t, "ann", recorded(t, pool, eventstore.ProjectionRebuildStarted)[0]["actor"])
	rebuilt := recorded(t, pool, eventstore.ProjectionRebuilt)
	require.Len(t, rebuilt, 1)
	require.Equal(t, "ann", rebuilt[0]["actor"])

	// A newer version of the code is built by itself, beside what the older one made.
	stop()
	cfg.Projections[0] = slow{version: 2, from: 99}
	run(t, cfg)
	eventually(t, func() bool {
		rows := rowsOf(t, pool, "statistics")
		return len(rows) == 1 && rows[0].Generation == 3 && rows[0].State == "live"
	})
	caughtUp(t, pool)
	requireEqual(t, pool)
}

// A rebuild repairs what somebody did to the rows.
func TestRebuildRepairs(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	by := hand(t, pool)
	s, _ := run(t, quick(t, pool))
	declareAll(t, by)
	do(t, by, `select leat.publish('x', 'x', 'k') from generate_series(1, 20)`)
	caughtUp(t, pool)
	do(t, pool, `update leat.channel_minutes set published = published + 1, first_delivery = '\x00'`)
	do(t, pool, `update leat.pending_messages set data = '\xff'`)
	for _, p := range async.All() {
		_, err := s.Rebuild(t.Context(), p.Name(), "ann", false)
		require.NoError(t, err)
	}
	for _, p := range async.All() {
		eventually(t, func() bool {
			rows := rowsOf(t, pool, p.Name())
			return len(rows) == 1 && rows[0].Generation == 2
		})
	}
	do(t, by, `select leat.ack('s', array(select receipt from leat.poll('s', 5)))`)
	caughtUp(t, pool)
	requireEqual(t, pool)
}
