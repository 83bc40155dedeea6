package replication_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"leat/eventstore"
	"leat/migrations/dbtest"
	"leat/queries"
	"leat/replication"
)

// F36: points work through a transaction pooler, in each mode of execution that
// needs no prepared statements to stay.
func TestF36PointsThroughPoolers(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			_, url := dbtest.NewURL(t)
			config, err := pgxpool.ParseConfig(url)
			require.NoError(t, err)
			config.ConnConfig.DefaultQueryExecMode = mode
			config.AfterRelease = func(conn *pgx.Conn) bool {
				_, err := conn.Exec(ctx, "discard all", pgx.QueryExecModeSimpleProtocol)
				return err == nil
			}
			pool, err := pgxpool.NewWithConfig(ctx, config)
			require.NoError(t, err)
			t.Cleanup(pool.Close)
			declareStream(t, pool)
			l := lab{t, pool, replication.NewPoints(replication.PointsConfig{Pool: pool, Logger: quiet})}
			usePoints(t, l)
		})
	}
}

// usePoints runs each statement once.
func usePoints(t *testing.T, l lab) {
	t.Helper()
	l.publish(20)
	l.declare("alone", eventstore.Start{Kind: eventstore.StartTime, Time: time.Now().Add(-time.Hour)})
	require.NoError(t, l.Commit(ctx, "it's me", "s", "alone", eventstore.StreamPosition{Epoch: l.epoch(), Offset: 4}))
	refused(t, eventstore.CommitBehind, l.Commit(ctx, "", "s", "alone", eventstore.StreamPosition{Offset: 3}))

	m := l.join(eventstore.SubscribeRequest{Partitions: 4, Start: earliest, Member: `a'\"`, Actor: "me"})
	require.NoError(t, m.Commit(ctx, map[int]eventstore.Offset{0: 1, 3: 2}))
	_, err := l.pool.Exec(ctx, `delete from leat.point_members`)
	require.NoError(t, err)
	_, err = l.pool.Exec(ctx, `delete from leat.point_holders`)
	require.NoError(t, err)
	stop := run(t, l.Run)
	require.Eventually(t, func() bool { return len(l.shares()) == 4 }, patience, time.Millisecond, "it came again")
	_, err = l.pool.Exec(ctx, `insert into leat.point_members select channel_id, name, 'dead', 'x', joined, now() - interval '1 s' from leat.point_members`)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return l.holders() == 5 }, patience, time.Millisecond, "the dead one is gone")
	points, err := queries.New(l.pool).Points(ctx, "s")
	require.NoError(t, err)
	require.Len(t, points, 2)
	require.Equal(t, m.Name(), points[1].Partitions[3].Member)
	m.Leave()
	stop()
	require.Zero(t, l.holders(), "the last word of a broker that stops")
	require.NoError(t, l.Reset(ctx, "me", "s", "p", at(3)))
	require.NoError(t, l.Delete(ctx, "me", "s", "p"))
}

// G9: a transaction that holds a point for long, be it the position, holds up neither
// the other points of the broker's members nor their signs of life. A commit that
// needs what is held waits as long as its caller likes, and alone.
func TestG9HeldPoint(t *testing.T) {
	t.Parallel()
	l := newLab(t).running(t)
	l.publish(10)
	held := l.join(eventstore.SubscribeRequest{Point: "held", Start: earliest})
	other := l.join(eventstore.SubscribeRequest{Point: "other", Start: earliest})
	release := l.hold(`select from leat.point_members where name = 'held' for update`, `select from leat.points where name = 'held' for update`)
	sign := func() (until time.Time) {
		require.NoError(t, l.pool.QueryRow(ctx, `select until from leat.point_members where name = 'other'`).Scan(&until))
		return until
	}
	until := sign()
	require.Eventually(t, func() bool { return sign().After(until) }, patience, 10*time.Millisecond)
	require.NoError(t, other.Commit(ctx, map[int]eventstore.Offset{0: 3}))
	third := l.join(eventstore.SubscribeRequest{Point: "other"})
	require.EqualValues(t, 4, nextOf(t, third))
	require.NoError(t, held.Commit(ctx, map[int]eventstore.Offset{0: 3}), "a commit needs the position only")
	release()

	release = l.hold(`select from leat.point_positions where name = 'held' for update`)
	waits := make(chan error, 2)
	go func() { waits <- held.Commit(ctx, map[int]eventstore.Offset{0: 6}) }()
	go func() { waits <- l.Commit(ctx, "", "s", "held", eventstore.StreamPosition{Offset: 5}) }()
	for last := range eventstore.Offset(6) {
		require.NoError(t, third.Commit(ctx, map[int]eventstore.Offset{0: 4 + last}), "others need not wait")
	}
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, held.Commit(short, map[int]eventstore.Offset{0: 7}), context.DeadlineExceeded)
	require.Empty(t, waits)
	release()
	for range 2 {
		if err := <-waits; err != nil {
			refused(t, eventstore.CommitBehind, err) // the lower one, if it came after the other
		}
	}
	require.Equal(t, []eventstore.Offset{7}, l.positions("held"))
	l.verify()
	held.Leave()
	third.Leave()
}

// G9, of a group: of a commit of many partitions only what is held waits, and what
// was moved before stays where it is. A commit of all partitions is made at once, or not at all.
func TestG9HeldPartition(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.publish(10)
	m := l.join(eventstore.SubscribeRequest{Partitions: 3, Start: earliest})
	release := l.hold(`select from leat.point_positions where partition = 1 for update`)
	waits := make(chan error, 2)
	go func() { waits <- m.Commit(ctx, map[int]eventstore.Offset{0: 3, 1: 4, 2: 5}) }()
	require.Eventually(t, func() bool { return slices.Equal(l.positions("p"), []eventstore.Offset{4, 0, 6}) }, patience, time.Millisecond)
	go func() { waits <- l.commit(8) }()
	require.NoError(t, m.Commit(ctx, map[int]eventstore.Offset{0: 6}))
	refused(t, eventstore.CommitBehind, m.Commit(ctx, map[int]eventstore.Offset{2: 2}))
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, l.Commit(short, "", "s", "p", eventstore.StreamPosition{Offset: 7}), context.DeadlineExceeded)
	require.Equal(t, []eventstore.Offset{7, 0, 6}, l.positions("p"))
	require.Empty(t, waits)
	release()
	for range 2 {
		if err := <-waits; err != nil {
			refused(t, eventstore.CommitBehind, err) // partition 1, if the commit of all came first
		}
	}
	require.Equal(t, []eventstore.Offset{9, 9, 9}, l.positions("p"))
	l.verify()
}

// G9: who waits for a position that goes over to another is refused, as ever.
func TestG9HeldByTaker(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.publish(10)
	m := l.join(eventstore.SubscribeRequest{Start: earliest})
	tx, err := l.pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(ctx) }()
	_, err = tx.Exec(ctx, `select from leat.point_positions for update`)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, `update leat.point_holders set member = 'other', joined = now()`)
	require.NoError(t, err)
	waits := make(chan error, 1)
	go func() { waits <- m.Commit(ctx, map[int]eventstore.Offset{0: 3}) }()
	require.Never(t, func() bool { return len(waits) > 0 }, 100*time.Millisecond, 10*time.Millisecond)
	require.NoError(t, tx.Commit(ctx))
	refused(t, eventstore.PointTaken, <-waits)
	require.Equal(t, []eventstore.Offset{0}, l.positions("p"))
}

// Many callers who give up, and many that do not: all that wait are answered.
func TestCommitsOfThoseWhoLeave(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.publish(500)
	l.declare("p", earliest)
	var group sync.WaitGroup
	for offset := range eventstore.Offset(500) {
		group.Go(func() {
			leaving, cancel := context.WithCancel(ctx)
			defer cancel()
			if offset%2 == 0 {
				time.AfterFunc(time.Duration(offset%10)*time.Millisecond, cancel)
			}
			err := l.Commit(leaving, "", "s", "p", eventstore.StreamPosition{Offset: offset})
			behind := errors.Is(err, &eventstore.Error{Code: eventstore.CommitBehind})
			if err != nil && !behind && !errors.Is(err, context.Canceled) {
				l.t.Error(err)
			}
		})
	}
	group.Wait()
	require.Equal(t, []eventstore.Offset{500}, l.positions("p"))
	require.Eventually(t, func() bool { return l.Waiting() == 0 }, patience, time.Millisecond)
}

// A broker that slept for longer than its members may be silent finds a group
// without them, and takes part again; a point that somebody else took is lost.
func TestSleepingBroker(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	other := l.another().running(t)
	l.publish(100)
	member := l.join(eventstore.SubscribeRequest{Partitions: 4, Start: earliest, Member: "sleeper"})
	alone := l.join(eventstore.SubscribeRequest{Point: "alone", Start: earliest})
	taken := l.join(eventstore.SubscribeRequest{Point: "taken", Start: earliest})
	before := alone.Grants()
	// It does not run: it sleeps. Its time is over.
	_, err := l.pool.Exec(ctx, `update leat.point_members set until = now() - interval '1 s'`)
	require.NoError(t, err)
	newer := other.join(eventstore.SubscribeRequest{Member: "newer"})
	require.Len(t, newer.Grants(), 4)
	for p := range newer.Grants() {
		require.NoError(t, newer.Commit(ctx, map[int]eventstore.Offset{p: 9}))
	}
	takes := other.join(eventstore.SubscribeRequest{Point: "taken"})
	refused(t, eventstore.PointTaken, member.Commit(ctx, map[int]eventstore.Offset{0: 50}))

	run(t, l.Run) // it wakes up
	refused(t, eventstore.PointTaken, ends(t, taken))
	require.Equal(t, map[int]eventstore.Offset{0: 0}, must(takes.Next()))
	require.Eventually(t, func() bool {
		gets, gives := member.Grants(), newer.Grants() // which lets go of two
		return len(gets) == 2 && len(gives) == 2
	}, patience, time.Millisecond)
	for p, next := range must(member.Next()) {
		require.EqualValues(t, 10, next, "of partition %d: behind what the other has committed", p)
	}
	require.Equal(t, before, alone.Grants(), "nobody else had it: it reads on")
	shares := counts(l.shares())
	require.Equal(t, []string{"newer", "sleeper"}, slices.Sorted(maps.Keys(shares))[:2])
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
