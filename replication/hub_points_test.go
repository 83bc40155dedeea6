package replication_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"leat/eventstore"
	"leat/migrations/dbtest"
	"leat/replication"
)

// pointsHub is a hub with points on a database of its own, with a stream.
func pointsHub(t testing.TB) (*replication.Hub, *stream) {
	t.Helper()
	pool := dbtest.New(t)
	points := replication.NewPoints(replication.PointsConfig{Pool: pool, Logger: quiet})
	run(t, points.Run)
	return startHub(t, replication.HubConfig{Pool: pool, Points: points}), newStream(t, pool, "s")
}

func (s *stream) at(n eventstore.Offset) *eventstore.StreamPosition {
	return &eventstore.StreamPosition{Epoch: s.epoch, Offset: n}
}

// F33, G7: a subscriber resumes behind its last commit; what was delivered, or only
// acknowledged, comes again.
func TestF33ResumesBehindCommit(t *testing.T) {
	t.Parallel()
	hub, s := pointsHub(t)
	s.append(10)
	earliest := eventstore.SubscribeRequest{Point: "p", Start: eventstore.Start{Kind: eventstore.StartEarliest}, Window: 5}
	sub := s.subscribe(hub, earliest)
	require.False(t, sub.Subscribed().Resumed)
	require.Equal(t, "p", sub.Subscribed().Point)
	read(t, sub).until(5)
	require.NoError(t, sub.Commit(ctx, *s.at(2)))
	require.NoError(t, sub.Ack(4))
	sub.Close()

	sub = s.subscribe(hub, eventstore.SubscribeRequest{Point: "p"}) // its position beats latest
	require.True(t, sub.Subscribed().Resumed)
	require.Equal(t, *s.at(3), sub.Subscribed().Next)
	read(t, sub).until(10)
	requireCode(t, sub.Commit(ctx, *s.at(10)), eventstore.OffsetAhead, s.at(10))
	requireCode(t, sub.Commit(ctx, *s.at(1)), eventstore.CommitBehind, s.at(3))
	requireCode(t, sub.Commit(ctx, eventstore.StreamPosition{Epoch: s.epoch + 1, Offset: 5}), eventstore.EpochChanged, s.at(3))
	require.NoError(t, sub.Commit(ctx, eventstore.StreamPosition{Offset: 9}))

	newer := s.subscribe(hub, eventstore.SubscribeRequest{Point: "p"})
	require.Equal(t, *s.at(10), newer.Subscribed().Next)
	_, err := next(ctx, sub)
	requireCode(t, err, eventstore.PointTaken, nil)
	requireCode(t, sub.Commit(ctx, *s.at(9)), eventstore.PointTaken, nil)
}

// What was processed in an earlier connection and is committed in this one does
// not come again.
func TestCommitAheadOfDelivery(t *testing.T) {
	t.Parallel()
	hub, s := pointsHub(t)
	s.append(10)
	sub := s.subscribe(hub, eventstore.SubscribeRequest{Point: "p", Start: from(0), Window: 3})
	r := read(t, sub)
	r.until(3)
	require.NoError(t, sub.Commit(ctx, *s.at(6)))
	r.next = 7
	r.until(10)
}

// A page that was read in advance does not hold up who goes on elsewhere.
func TestCommitAheadOfPages(t *testing.T) {
	t.Parallel()
	hub, s := pointsHub(t)
	s.append(4000)
	sub := s.subscribe(hub, eventstore.SubscribeRequest{Point: "p", Start: from(0), Window: 3})
	r := read(t, sub)
	r.until(3)
	both := false // pages are there
	for waited := false; !waited; {
		waiting, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		_, err := sub.Next(waiting, 0) // hears of what arrives, and has no room
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		waited = both
		_, held := hub.Held()
		both = held > 2*1000*400
	}
	committed := make(chan error, 1)
	time.AfterFunc(50*time.Millisecond, func() { committed <- sub.Commit(ctx, *s.at(1500)) }) // while Next waits
	r.next = 1501
	r.until(1504)
	require.NoError(t, <-committed)
}

// The tail tells of a commit before snapshots show it: whoever was given a message
// may commit it.
func TestCommitBeforeSnapshotsShow(t *testing.T) {
	t.Parallel()
	for _, partitions := range []int{0, 4} {
		t.Run(fmt.Sprintf("%d partitions", partitions), func(t *testing.T) {
			t.Parallel()
			hub, s := pointsHub(t)
			hub.Live()
			sub := s.subscribe(hub, eventstore.SubscribeRequest{Point: "p", Partitions: partitions})
			s.tell(hub, 0, 3)
			read(t, sub).until(3)
			committed := make(chan error, 1)
			go func() { committed <- sub.Commit(ctx, *s.at(2)) }()
			select {
			case err := <-committed:
				require.Fail(t, "it was answered before the commit showed", err)
			case <-time.After(time.Second):
			}
			s.append(3)
			require.NoError(t, <-committed)
		})
	}
}

func TestSubscribeRefusesPoints(t *testing.T) {
	t.Parallel()
	hub, s := pointsHub(t)
	s.append(10)
	for _, request := range []eventstore.SubscribeRequest{
		{Partitions: 2}, {Member: "m"}, {Point: "!"}, {Point: "p", Partitions: 65}, {Point: "p", Start: from(-1)},
	} {
		request.Stream = "s"
		_, err := hub.Subscribe(ctx, request)
		requireCode(t, err, eventstore.InvalidField, nil)
	}
	_, err := hub.Subscribe(ctx, eventstore.SubscribeRequest{Stream: "s", Point: "p", Start: from(11)})
	requireCode(t, err, eventstore.OffsetAhead, s.at(10))
	sub := s.subscribe(hub, eventstore.SubscribeRequest{})
	requireCode(t, sub.Commit(ctx, *s.at(0)), eventstore.PointNotFound, nil)
}

// consumer is a member of a group, and what a test knows of it.
type consumer struct {
	*replication.Subscription
	delivered []*eventstore.StreamMessage // and not committed
}

// crowd is what members of a group have got and committed together.
type crowd struct {
	mu        sync.Mutex
	got       map[eventstore.Offset]int
	committed map[eventstore.Offset]bool
	again     int // messages that came more than once
}

// take notes a batch, and finds what came although it was committed before. Commits
// that are under way are not known to the test, so their messages are none of it.
func (g *crowd) take(c *consumer, batch eventstore.StreamBatch) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, m := range batch.Messages {
		if string(m.Payload) != payload(m.Offset) {
			return fmt.Errorf("message %d has payload %q", m.Offset, m.Payload)
		}
		if g.committed[m.Offset] {
			return fmt.Errorf("message %d comes although it was committed", m.Offset)
		}
		if g.got[m.Offset]++; g.got[m.Offset] > 1 {
			g.again++
		}
	}
	c.delivered = append(c.delivered, batch.Messages...)
	return nil
}

// commit commits what was delivered up to a random message.
func (g *crowd) commit(ctx context.Context, c *consumer) error {
	if len(c.delivered) == 0 {
		return nil
	}
	n := 1 + rand.IntN(len(c.delivered))
	err := c.Commit(ctx, eventstore.StreamPosition{Offset: c.delivered[n-1].Offset})
	if errors.Is(err, &eventstore.Error{Code: eventstore.PointTaken}) {
		return nil // of a partition: the others count, and are delivered no more
	}
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, m := range c.delivered[:n] {
		g.committed[m.Offset] = true
	}
	c.delivered = c.delivered[n:]
	return nil
}

// consume is a member for a while.
func (g *crowd) consume(ctx context.Context, hub *replication.Hub, i int) error {
	sub, err := hub.Subscribe(ctx, eventstore.SubscribeRequest{
		Stream: "s", Point: "g", Partitions: 8, Start: from(0), Window: 50 * rand.IntN(3), Member: fmt.Sprint("m", i),
	})
	if err != nil {
		return err
	}
	defer sub.Close()
	c := &consumer{Subscription: sub}
	for range 5 + rand.IntN(60) {
		batch, err := sub.Next(ctx, 50*time.Millisecond)
		if err != nil {
			return err
		}
		if batch.Assigned {
			// What others have now is theirs.
			c.delivered = nil
		}
		if err := errors.Join(g.take(c, batch), g.commit(ctx, c)); err != nil {
			return err
		}
	}
	return nil
}

// G7: members of a group come and go; together they get every message, and nothing
// again that was committed.
func TestG7GroupSharesStream(t *testing.T) {
	t.Parallel()
	hub, s := pointsHub(t)
	tail := &fakeTail{hub: hub, wake: make(chan struct{}, 1)}
	run(t, tail.run)
	tail.turn(true)
	g := &crowd{got: map[eventstore.Offset]int{}, committed: map[eventstore.Offset]bool{}}
	var members sync.WaitGroup
	done := make(chan struct{})
	working, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	for i := range 4 {
		members.Go(func() {
			for working.Err() == nil {
				if !assert.NoError(t, g.consume(working, hub, i)) {
					return
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	const messages = 4000
	for s.next < messages {
		s.step(tail, write, 1+rand.IntN(20))
		pause(ctx, rand.IntN(2))
	}
	all := func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return len(g.got) == int(s.next)
	}
	require.Eventually(t, all, 2*time.Minute, 10*time.Millisecond)
	close(done)
	members.Wait()
	t.Logf("%d messages, %d again", s.next, g.again)

	// The last one to come gets the rest, and commits the whole.
	sub := s.subscribe(hub, eventstore.SubscribeRequest{Point: "g"})
	c := &consumer{Subscription: sub}
	require.Eventually(t, func() bool {
		batch, err := sub.Next(ctx, soon)
		require.NoError(t, err)
		require.NoError(t, g.take(c, batch))
		if len(sub.Subscribed().Partitions) < 8 && len(batch.Partitions) < 8 && batch.Next.Offset < s.next {
			return false
		}
		return maps.Equal(g.done(ctx, s, sub, batch), g.ends(s))
	}, patience, time.Millisecond)
}

// done commits what a batch ends with, and answers where the partitions are.
func (g *crowd) done(ctx context.Context, s *stream, sub *replication.Subscription, batch eventstore.StreamBatch) map[int]eventstore.Offset {
	if err := sub.Commit(ctx, eventstore.StreamPosition{Offset: batch.Next.Offset - 1}); err != nil {
		return nil
	}
	at := map[int]eventstore.Offset{}
	rows, err := s.pool.Query(ctx, `select partition, next_offset from leat.point_positions where name = 'g'`)
	require.NoError(s.t, err)
	for rows.Next() {
		var partition int
		var next eventstore.Offset
		require.NoError(s.t, rows.Scan(&partition, &next))
		at[partition] = next
	}
	require.NoError(s.t, rows.Err())
	return at
}

// ends are all partitions at the end of the stream.
func (g *crowd) ends(s *stream) map[int]eventstore.Offset {
	at := map[int]eventstore.Offset{}
	for partition := range 8 {
		at[partition] = s.next
	}
	return at
}
