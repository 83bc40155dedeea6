package replication_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"leat/eventstore"
)

// A newer reader takes a point over at once; the older is told, and its commits
// change nothing.
func TestTakeover(t *testing.T) {
	t.Parallel()
	for name, brokers := range map[string]func(lab) lab{
		"within a broker": func(l lab) lab { return l },
		"across two":      lab.another,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t).running(t)
			other := brokers(l)
			if other.Points != l.Points {
				other.running(t)
			}
			l.publish(10)
			first := l.join(eventstore.SubscribeRequest{Start: earliest})
			require.NoError(t, first.Commit(ctx, map[int]eventstore.Offset{0: 2}))
			second := other.join(eventstore.SubscribeRequest{})
			require.EqualValues(t, 3, nextOf(t, second))
			refused(t, eventstore.PointTaken, first.Commit(ctx, map[int]eventstore.Offset{0: 5}))
			require.Equal(t, []eventstore.Offset{3}, l.positions("p"))
			refused(t, eventstore.PointTaken, ends(t, first))
			first.Leave()
			require.NoError(t, second.Commit(ctx, map[int]eventstore.Offset{0: 7}))
			require.NoError(t, l.commit(8), "an operator's commit counts")
			second.Leave()
			require.Eventually(t, func() bool { return l.holders() == 0 }, patience, 5*time.Millisecond)
		})
	}
}

func (l lab) holders() (n int) {
	l.t.Helper()
	err := l.pool.QueryRow(ctx, `select (select count(*) from leat.point_holders) + (select count(*) from leat.point_members)`).Scan(&n)
	require.NoError(l.t, err)
	return n
}

// Takeovers and commits at once: nothing that was committed is given out again.
func TestTakeoverRace(t *testing.T) {
	t.Parallel()
	l := newLab(t).running(t)
	other := l.another().running(t)
	l.publish(2000)
	l.declare("p", earliest)
	var mu sync.Mutex
	var committed eventstore.Offset
	var group sync.WaitGroup
	for i := range 6 {
		broker := []lab{l, other}[i%2]
		group.Go(func() {
			for range 15 {
				mu.Lock()
				floor := committed
				mu.Unlock()
				m := broker.join(eventstore.SubscribeRequest{})
				next, err := m.Next()
				if err != nil {
					continue
				}
				if next[0] < floor {
					l.t.Errorf("begins at %d, after a commit up to %d", next[0], floor)
				}
				for last := next[0]; last < next[0]+20; last += 4 {
					if err := m.Commit(ctx, map[int]eventstore.Offset{0: last}); err != nil {
						break
					}
					mu.Lock()
					committed = max(committed, last+1)
					mu.Unlock()
				}
				m.Leave()
			}
		})
	}
	group.Wait()
}

// A reset moves a point anywhere. Who reads with it is told to come again, and
// cannot undo it by a commit.
func TestResetEndsReaders(t *testing.T) {
	t.Parallel()
	l := newLab(t).running(t)
	l.publish(10)
	m := l.join(eventstore.SubscribeRequest{Start: earliest})
	require.NoError(t, m.Commit(ctx, map[int]eventstore.Offset{0: 7}))
	require.NoError(t, l.another().Reset(ctx, "test", "s", "p", at(2)))
	refused(t, eventstore.PointMoved, m.Commit(ctx, map[int]eventstore.Offset{0: 8}))
	refused(t, eventstore.PointMoved, ends(t, m))
	require.Equal(t, []eventstore.Offset{2}, l.positions("p"))
	require.EqualValues(t, 2, nextOf(t, l.join(eventstore.SubscribeRequest{})))
}

func TestDeleteEndsReaders(t *testing.T) {
	t.Parallel()
	l := newLab(t).running(t)
	l.publish(10)
	m := l.join(eventstore.SubscribeRequest{})
	require.NoError(t, l.another().Delete(ctx, "test", "s", "p"))
	refused(t, eventstore.PointNotFound, m.Commit(ctx, map[int]eventstore.Offset{0: 8}))
	refused(t, eventstore.PointNotFound, ends(t, m))
	require.Empty(t, l.positions("p"))
	require.Contains(t, l.events(), `point.deleted {"point": "p"}`)

	// Points go with their stream; one of the same name is another.
	m = l.join(eventstore.SubscribeRequest{Start: earliest})
	epoch := m.Epoch()
	dropStream(t, l.pool)
	refused(t, eventstore.ChannelNotFound, ends(t, m))
	declareStream(t, l.pool)
	_, err := l.Join(ctx, eventstore.SubscribeRequest{Stream: "s", Point: "p", Start: eventstore.Start{Kind: eventstore.StartOffset, Epoch: epoch}})
	refused(t, eventstore.EpochChanged, err)
	m = l.join(eventstore.SubscribeRequest{})
	require.False(t, m.Resumed())
	refused(t, eventstore.EpochChanged, m.CommitAt(ctx, epoch, map[int]eventstore.Offset{0: 1}))
}

// G7: resume below retention is refused with the first offset there is, and moves
// nothing; a reset does.
func TestG7ResumeBelowRetention(t *testing.T) {
	t.Parallel()
	l := newLab(t).running(t)
	l.publish(10)
	m := l.join(eventstore.SubscribeRequest{Start: earliest})
	require.NoError(t, m.Commit(ctx, map[int]eventstore.Offset{0: 2}))
	l.trim(5)
	_, err := l.another().Join(ctx, eventstore.SubscribeRequest{Stream: "s", Point: "p"})
	e := refusal(t, eventstore.OffsetGone, err)
	require.Equal(t, &eventstore.StreamPosition{Epoch: l.epoch(), Offset: 5}, e.Resume)
	require.Equal(t, []eventstore.Offset{3}, l.positions("p"))
	require.NoError(t, m.Commit(ctx, map[int]eventstore.Offset{0: 3}), "who could not join has not taken it over")
	require.NoError(t, l.Reset(ctx, "test", "s", "p", earliest))
	require.EqualValues(t, 5, nextOf(t, l.join(eventstore.SubscribeRequest{})))
}
