package replication_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"leat/eventstore"
)

// F33: 1, 2, 3 are committed; it goes on at 4. What was only delivered does not
// count, and a position stays a position whatever it was made from.
func TestF33CommitNotDelivery(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.publish(20)
	m := l.join(eventstore.SubscribeRequest{Start: eventstore.Start{Kind: eventstore.StartTime, Time: time.Now().Add(-time.Hour)}})
	require.False(t, m.Resumed())
	require.EqualValues(t, 0, nextOf(t, m))
	m.Forget() // killed, with nothing committed
	l.publish(20)

	m = l.join(eventstore.SubscribeRequest{Start: latest})
	require.True(t, m.Resumed())
	require.EqualValues(t, 0, nextOf(t, m), "not the time, and not what the request says")
	for _, last := range []eventstore.Offset{1, 2, 3} {
		require.NoError(t, m.Commit(ctx, map[int]eventstore.Offset{0: last}))
	}
	m.Forget()
	m = l.join(eventstore.SubscribeRequest{Start: earliest})
	require.EqualValues(t, 4, nextOf(t, m))
	require.Equal(t, []string{
		`point.created {"next": 0, "point": "p", "partitions": 1}`, `point.committed {"point": "p", "offset": 1}`,
		`point.committed {"point": "p", "offset": 2}`, `point.committed {"point": "p", "offset": 3}`,
	}, l.events())
}

// FS7: without a word a subscription begins at the end, and a stored position beats
// what the request says.
func TestFS7StoredPositionBeatsStart(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.publish(5)
	require.EqualValues(t, 5, nextOf(t, l.join(eventstore.SubscribeRequest{})))
	l.publish(5)
	for _, start := range []eventstore.Start{earliest, latest, at(9), at(1 << 40)} {
		require.EqualValues(t, 5, nextOf(t, l.join(eventstore.SubscribeRequest{Start: start})))
	}
}

func TestCommitIsMonotonic(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.publish(10)
	l.declare("p", earliest)
	require.NoError(t, l.commit(4))
	require.NoError(t, l.commit(4), "the same again")
	require.EqualValues(t, 5, refusal(t, eventstore.CommitBehind, l.commit(3)).Resume.Offset)
	require.NoError(t, l.commit(9), "the last one there is")
	require.NoError(t, l.Reset(ctx, "test", "s", "p", at(2)))
	require.Equal(t, []eventstore.Offset{2}, l.positions("p"))
	require.NoError(t, l.commit(2))
	require.Equal(t, []string{
		`point.created {"next": 0, "point": "p", "partitions": 1}`, `point.committed {"point": "p", "offset": 4}`,
		`point.committed {"point": "p", "offset": 9}`, `point.reset {"next": 2, "point": "p"}`,
		`point.committed {"point": "p", "offset": 2}`,
	}, l.events())
	l.verify()
	require.NoError(t, l.Delete(ctx, "test", "s", "p"))
	l.verify()
}

// Commits that come together share a transaction, and a point has one event of it.
func TestCommitsCoalesce(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	const points, commits = 20, 50
	l.publish(commits)
	for i := range points {
		l.declare(name(i), earliest)
	}
	// A flush that waits for a lock gathers all that come.
	tx, err := l.pool.Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, `lock table leat.point_positions in exclusive mode`)
	require.NoError(t, err)
	var group sync.WaitGroup
	for i := range points {
		for offset := range eventstore.Offset(commits) {
			group.Go(func() {
				err := l.Commit(ctx, "test", "s", name(i), eventstore.StreamPosition{Offset: offset})
				if err != nil && !errors.Is(err, &eventstore.Error{Code: eventstore.CommitBehind}) {
					l.t.Error(err)
				}
			})
		}
	}
	require.Eventually(t, func() bool { return l.Waiting() >= points*commits-5 }, patience, time.Millisecond)
	require.NoError(t, tx.Rollback(ctx))
	group.Wait()
	require.Less(t, len(l.events()), points*4)
	for i := range points {
		require.Equal(t, []eventstore.Offset{commits}, l.positions(name(i)))
	}
	l.verify()
}

func name(i int) string { return "p" + string(rune('a'+i)) }

// FS10: a flush that fails is tried again, for as long as somebody waits, and later
// commits go on.
func TestFS10FailedFlushIsTriedAgain(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.publish(10)
	l.declare("p", earliest)
	// The next flushes fail as a full disk does.
	_, err := l.pool.Exec(ctx, `
		create sequence leat.failures;
		create function leat.fail() returns trigger language plpgsql as $$
		begin
		    if nextval('leat.failures') <= 3 then
		        raise exception 'disk full' using errcode = '53100';
		    end if;
		    return new;
		end $$;
		create trigger fail before update on leat.point_positions for each row execute function leat.fail()`)
	require.NoError(t, err)
	require.NoError(t, l.commit(3))
	require.Equal(t, []eventstore.Offset{4}, l.positions("p"))
	require.NoError(t, l.commit(4))

	// Nobody waits any more: it is not tried for ever, and others go on.
	_, err = l.pool.Exec(ctx, `select setval('leat.failures', 1, false); alter sequence leat.failures increment 1`)
	require.NoError(t, err)
	_, err = l.pool.Exec(ctx, `create or replace function leat.fail() returns trigger language plpgsql as $$
		begin raise exception 'disk full' using errcode = '53100'; end $$`)
	require.NoError(t, err)
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	err = l.Commit(short, "test", "s", "p", eventstore.StreamPosition{Offset: 5})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = l.pool.Exec(ctx, `drop trigger fail on leat.point_positions`)
	require.NoError(t, err)
	require.NoError(t, l.commit(6))
	require.Equal(t, []eventstore.Offset{7}, l.positions("p"))
}

// One commit that cannot be made at all does not take others with it.
func TestCommitThatFailsAlone(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.publish(10)
	l.declare("p", earliest)
	l.declare("broken", earliest)
	_, err := l.pool.Exec(ctx, `
		create function leat.fail() returns trigger language plpgsql as $$ begin raise exception 'no'; end $$;
		create trigger fail before update on leat.point_positions for each row when (new.name = 'broken') execute function leat.fail()`)
	require.NoError(t, err)
	tx, err := l.pool.Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, `lock table leat.point_positions in exclusive mode`)
	require.NoError(t, err)
	var group sync.WaitGroup
	fine, broken := make([]error, 10), make([]error, 10)
	for i := range fine {
		group.Go(func() { fine[i] = l.commit(9) })
		group.Go(func() { broken[i] = l.Commit(ctx, "test", "s", "broken", eventstore.StreamPosition{Offset: 9}) })
	}
	require.Eventually(t, func() bool { return l.Waiting() >= 15 }, patience, time.Millisecond)
	require.NoError(t, tx.Rollback(ctx))
	group.Wait()
	for i := range fine {
		require.NoError(t, fine[i])
		require.ErrorContains(t, broken[i], "no")
	}
}

// F26, of a point: an offset whose message is not committed yet cannot be committed,
// and a rollback leaves the point where it is.
func TestF26NoCommitOfWhatIsNotThere(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.publish(3)
	l.declare("p", earliest)
	tx, err := l.pool.Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, `update leat.stream_heads set next_offset = next_offset + 5`)
	require.NoError(t, err)
	require.EqualValues(t, 3, refusal(t, eventstore.OffsetAhead, l.commit(3)).Resume.Offset)
	require.NoError(t, l.commit(2))
	require.NoError(t, tx.Rollback(ctx))
	refused(t, eventstore.OffsetAhead, l.commit(3))
	require.Equal(t, []eventstore.Offset{3}, l.positions("p"))
}
