package replication_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
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

func TestPartitionOf(t *testing.T) {
	t.Parallel()
	for i := range 1000 {
		key := fmt.Sprintf("key-%d", i)
		hash := fnv.New64a()
		_, _ = hash.Write([]byte(key)) // it never fails
		require.Equal(t, int(hash.Sum64()%64), replication.PartitionOf(key, 64))
		require.Equal(t, 0, replication.PartitionOf(key, 1))
	}
	require.Equal(t, 5, replication.PartitionOf("", 16), "as documented: it must never change")
	require.Equal(t, 12, replication.PartitionOf("a", 16))
}

// shares are who holds each partition of the point p, as the database has it.
func (l lab) shares() map[int]string {
	l.t.Helper()
	rows, err := l.pool.Query(ctx, `select partition, member from leat.point_holders where name = 'p'`)
	require.NoError(l.t, err)
	shares := map[int]string{}
	var partition int
	var member string
	_, err = pgx.ForEachRow(rows, []any{&partition, &member}, func() error {
		shares[partition] = member
		return nil
	})
	require.NoError(l.t, err)
	return shares
}

// settled says whether nobody waits for a partition of the point p.
func (l lab) settled() (is bool) {
	l.t.Helper()
	err := l.pool.QueryRow(ctx, `select not coalesce(bool_or(leaving), true) from leat.point_holders where name = 'p'`).Scan(&is)
	require.NoError(l.t, err)
	return is
}

// isMember says whether the point p has that member.
func (l lab) isMember(name string) (is bool) {
	l.t.Helper()
	err := l.pool.QueryRow(ctx, `select exists (select from leat.point_members where name = 'p' and member = $1)`, name).Scan(&is)
	require.NoError(l.t, err)
	return is
}

// counts are how many partitions each holds.
func counts(shares map[int]string) map[string]int {
	n := map[string]int{}
	for _, member := range shares {
		n[member]++
	}
	return n
}

// Members come and go; all partitions are held, evenly, and no more of them move
// than have to.
func TestGroupShares(t *testing.T) {
	t.Parallel()
	l := newLab(t).running(t)
	other := l.another().running(t)
	const partitions = 16
	members := map[string]replication.Member{}
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 60 {
		before := l.shares()
		leaves := ""
		if len(members) > 1 && random.IntN(3) == 0 || len(members) == 20 {
			leaves = slices.Sorted(maps.Keys(members))[random.IntN(len(members))]
			members[leaves].Leave()
			delete(members, leaves)
		} else {
			name := fmt.Sprintf("m%02d", i)
			members[name] = []lab{l, other}[i%2].join(eventstore.SubscribeRequest{Partitions: partitions, Member: name})
		}
		require.Eventually(t, func() bool {
			for _, m := range members {
				m.Grants() // it lets go of what it is to give up
			}
			return !l.isMember(leaves) && l.settled()
		}, patience, time.Millisecond)
		after := l.shares()
		require.Len(t, after, partitions)
		n := counts(after)
		held := make([]int, 0, len(members))
		for name := range members {
			held = append(held, n[name])
		}
		require.LessOrEqual(t, slices.Max(held)-slices.Min(held), 1, "%v", n)
		moved := 0
		for p, member := range after {
			if before[p] != "" && before[p] != leaves && before[p] != member {
				moved++
			}
		}
		require.LessOrEqual(t, moved, partitions/len(members), "%v -> %v", before, after)
	}
	// Everybody learns what it has.
	for name, m := range members {
		require.Eventually(t, func() bool {
			next, err := m.Next()
			return err == nil && len(next) == counts(l.shares())[name]
		}, patience, time.Millisecond)
	}
}

// A name given twice: the newer takes over what the older had.
func TestGroupNameGivenTwice(t *testing.T) {
	t.Parallel()
	l := newLab(t).running(t)
	other := l.another().running(t)
	l.publish(10)
	begin := eventstore.SubscribeRequest{Partitions: 4, Start: earliest}
	begin.Member = "a"
	first := l.join(begin)
	begin.Member = "b"
	neighbour := l.join(begin)
	require.Eventually(t, func() bool { return len(first.Grants()) == 2 && len(neighbour.Grants()) == 2 }, patience, time.Millisecond)
	begin.Member = "a"
	second := other.join(begin)
	refused(t, eventstore.PointTaken, ends(t, first))
	refused(t, eventstore.PointTaken, first.Commit(ctx, map[int]eventstore.Offset{0: 1}))
	first.Leave()
	require.Len(t, second.Grants(), 2)
	require.Len(t, neighbour.Grants(), 2)
	for p := range second.Grants() {
		require.NoError(t, second.Commit(ctx, map[int]eventstore.Offset{p: 3}))
	}
	require.Equal(t, map[string]int{"a": 2, "b": 2}, counts(l.shares()))
}

func TestGroupRefuses(t *testing.T) {
	t.Parallel()
	l := newLab(t).running(t)
	l.publish(10)
	join := func(point string, partitions int) error {
		_, err := l.Join(ctx, eventstore.SubscribeRequest{Stream: "s", Point: point, Partitions: partitions, Start: earliest})
		return err
	}
	require.NoError(t, join("p", 4))
	require.NoError(t, join("p", 4), "another member")
	require.NoError(t, join("p", 0), "and one that does not say how many there are")
	require.NoError(t, join("alone", 0))
	refused(t, eventstore.PointConflict, join("p", 5))
	refused(t, eventstore.PointConflict, join("p", 1))
	refused(t, eventstore.PointConflict, join("alone", 4))
	refused(t, eventstore.InvalidField, join("many", 65))
	refused(t, eventstore.InvalidField, join("few", -1))
	_, err := l.Join(ctx, eventstore.SubscribeRequest{Stream: "s", Point: "p", Member: "\xff"})
	refused(t, eventstore.InvalidField, err)
	// One commit of all partitions moves those that are behind; the answer says if none is.
	m := l.join(eventstore.SubscribeRequest{Point: "q", Partitions: 3, Start: earliest})
	require.NoError(t, m.Commit(ctx, map[int]eventstore.Offset{0: 6, 1: 2}))
	commit := func(offset eventstore.Offset) error {
		return l.Commit(ctx, "test", "s", "q", eventstore.StreamPosition{Offset: offset})
	}
	require.NoError(t, commit(4))
	require.Equal(t, []eventstore.Offset{7, 5, 5}, l.positions("q"))
	refusal := refusal(t, eventstore.CommitBehind, commit(3))
	require.EqualValues(t, 5, refusal.Resume.Offset)
	require.Contains(t, l.events(), `point.committed {"point": "q", "positions": {"0": 6, "1": 2}}`)
	require.Contains(t, l.events(), `point.committed {"point": "q", "positions": {"1": 4, "2": 4}}`)
	require.NoError(t, l.Reset(ctx, "", "s", "q", at(1)))
	require.Equal(t, []eventstore.Offset{1, 1, 1}, l.positions("q"))
	l.verify()
}

// G7: a member gets a partition when the reader of who had it has let go of it, and not
// before: two never read it. Meanwhile its commits of that one are refused, and those
// of the others count.
func TestG7GroupHandOver(t *testing.T) {
	t.Parallel()
	l := newLab(t).running(t)
	l.publish(10)
	first := l.join(eventstore.SubscribeRequest{Partitions: 2, Start: earliest, Member: "a"})
	second := l.another().running(t).join(eventstore.SubscribeRequest{Member: "b"})
	select {
	case <-first.Changed():
	case <-time.After(patience):
		require.FailNow(t, "not told")
	}
	require.Never(t, func() bool { return len(second.Grants()) > 0 }, 2500*time.Millisecond, 10*time.Millisecond)
	require.Equal(t, map[int]string{0: "a", 1: "a"}, l.shares())
	refused(t, eventstore.PointTaken, first.Commit(ctx, map[int]eventstore.Offset{0: 5, 1: 5}))
	require.Equal(t, []eventstore.Offset{6, 0}, l.positions("p"))

	kept, err := first.Next()
	require.NoError(t, err)
	require.Equal(t, []int{0}, slices.Collect(maps.Keys(kept)))
	require.Eventually(t, func() bool { return len(second.Grants()) == 1 }, patience, time.Millisecond)
	require.NoError(t, second.Commit(ctx, map[int]eventstore.Offset{1: 7}))
	require.NoError(t, first.Commit(ctx, map[int]eventstore.Offset{0: 8}))
	require.Equal(t, []eventstore.Offset{9, 8}, l.positions("p"))
}

// G7: commits count by the grant that was read by: neither when the partition is with
// somebody else, nor when it is back. Those of other partitions count.
func TestG7GroupCommitAfterLoss(t *testing.T) {
	t.Parallel()
	l := newLab(t) // nobody tells it
	l.publish(10)
	m := l.join(eventstore.SubscribeRequest{Partitions: 2, Start: earliest, Member: "a"})
	hand := func(sql string) {
		_, err := l.pool.Exec(ctx, `update leat.point_holders set `+sql+` where partition = 1`)
		require.NoError(t, err)
	}
	hand(`member = 'b', since = now()`)
	refused(t, eventstore.PointTaken, m.Commit(ctx, map[int]eventstore.Offset{0: 5, 1: 5}))
	hand(`member = 'a', since = now()`)
	refused(t, eventstore.PointTaken, m.Commit(ctx, map[int]eventstore.Offset{0: 6, 1: 6}))
	require.Equal(t, []eventstore.Offset{7, 0}, l.positions("p"))
	run(t, l.Run)
	require.Eventually(t, func() bool {
		m.Grants()
		return m.Commit(ctx, map[int]eventstore.Offset{1: 7}) == nil
	}, patience, 10*time.Millisecond)
	require.Equal(t, []eventstore.Offset{7, 8}, l.positions("p"))
}

// A member whose broker gives no sign of life may have been taken for dead: it reads
// nothing until its broker has looked again.
func TestG7GroupSilence(t *testing.T) {
	t.Parallel()
	l := newLab(t) // it gives none
	l.publish(10)
	m := l.join(eventstore.SubscribeRequest{Partitions: 2, Start: earliest, Member: "a"})
	require.True(t, m.IsAlive())
	require.Eventually(t, func() bool { return !m.IsAlive() }, patience, 100*time.Millisecond)
	var left time.Duration
	require.NoError(t, l.pool.QueryRow(ctx, `select until - clock_timestamp() from leat.point_members`).Scan(&left))
	require.Positive(t, left, "it noticed before others may have")
	run(t, l.Run)
	require.Eventually(t, m.IsAlive, patience, 10*time.Millisecond)

	exec := func(sql string) {
		_, err := l.pool.Exec(ctx, sql)
		require.NoError(t, err)
	}
	// A look that fails, and a database that knows no members any more, as after a crash.
	exec(`alter function leat.watch_members rename to hidden`)
	require.Eventually(t, func() bool { return !m.IsAlive() }, 5*time.Second, time.Millisecond)
	exec(`delete from leat.point_members`)
	exec(`delete from leat.point_holders`)
	exec(`alter function leat.hidden rename to watch_members`)
	require.Eventually(t, m.IsAlive, patience, 10*time.Millisecond)
	require.Len(t, l.shares(), 2)
}

// A broker that is killed renews its members no more: others get their partitions
// within about ten seconds.
func TestGroupOfDeadBroker(t *testing.T) {
	t.Parallel()
	l := newLab(t).running(t)
	l.publish(10)
	dead := l.another()
	stop := run(t, dead.Run)
	lost := dead.join(eventstore.SubscribeRequest{Partitions: 4, Start: earliest, Member: "a"})
	kept := l.join(eventstore.SubscribeRequest{Member: "b"})
	var committed int
	require.Eventually(t, func() bool { return len(lost.Grants()) == 2 && len(kept.Grants()) == 2 }, patience, time.Millisecond)
	for p := range lost.Grants() {
		committed = p
		require.NoError(t, lost.Commit(ctx, map[int]eventstore.Offset{p: 4}))
	}
	lost.Forget()
	stop()
	died := time.Now()
	require.Eventually(t, func() bool { return len(kept.Grants()) == 4 }, patience, 10*time.Millisecond)
	require.Less(t, time.Since(died), 20*time.Second)
	next, err := kept.Next()
	require.NoError(t, err)
	require.EqualValues(t, 5, next[committed], "behind the last commit")
}

// G7: a group over two brokers, whose members come, go and crash: of each
// partition every message is processed and committed once, in order.
func TestG7GroupUnderChurn(t *testing.T) {
	t.Parallel()
	const partitions, messages, keys = 8, 10_000, 500
	l := newLab(t).running(t)
	other := l.another().running(t)
	l.publish(messages)
	l.declareGroup(partitions)
	g := &group{offsets: make([][]eventstore.Offset, partitions), ranges: make([][]span, partitions)}
	for offset := range eventstore.Offset(messages) {
		p := replication.PartitionOf(fmt.Sprint("key", int(offset)*7919%keys), partitions)
		g.offsets[p] = append(g.offsets[p], offset)
	}
	var wait sync.WaitGroup
	for i := range 3 {
		wait.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 5))
			for life := 0; !g.done(); life++ {
				g.live([]lab{l, other}[random.IntN(2)], fmt.Sprintf("m%d-%d", i, life), random)
			}
		})
	}
	wait.Wait()
	for p, ranges := range g.ranges {
		slices.SortFunc(ranges, func(a, b span) int { return int(a.from - b.from) })
		next := eventstore.Offset(0)
		for _, r := range ranges {
			require.Equal(t, next, r.from, "partition %d: %v", p, ranges)
			next = r.to
		}
		require.EqualValues(t, len(g.offsets[p]), next, "all of partition %d", p)
	}
	l.verify()
}

func (l lab) declareGroup(partitions int) {
	l.t.Helper()
	_, err := l.Declare(ctx, "test", "s", "p", partitions, earliest)
	require.NoError(l.t, err)
}

// span is what one commit covers, counted in messages of the partition.
type span struct{ from, to eventstore.Offset }

// group is what members have processed and committed.
type group struct {
	offsets [][]eventstore.Offset // by partition

	mu     sync.Mutex
	ranges [][]span
	count  int
}

func (g *group) done() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	total := 0
	for _, o := range g.offsets {
		total += len(o)
	}
	return g.count >= total
}

// index is how many messages of a partition lie below an offset.
func (g *group) index(p int, offset eventstore.Offset) int {
	i, _ := slices.BinarySearch(g.offsets[p], offset)
	return i
}

// live is one member from its join until it leaves or crashes.
func (g *group) live(l lab, name string, random *rand.Rand) {
	m := l.join(eventstore.SubscribeRequest{Member: name})
	at, grants := map[int]int{}, map[int]uint64{}
	for range 5 + random.IntN(20) {
		next, err := m.Next()
		if err != nil {
			l.t.Error("a member ended:", err)
			break
		}
		now := m.Held()
		for p := range grants {
			if now[p] != grants[p] {
				delete(at, p)
			}
		}
		for p, id := range now {
			if grants[p] != id {
				at[p] = g.index(p, next[p])
			}
		}
		grants = now
		if len(now) == 0 {
			select { // others are to let go first
			case <-m.Changed():
			case <-time.After(50 * time.Millisecond):
			}
		}
		g.work(l, m, at, 1+random.IntN(20))
		if g.done() {
			break
		}
	}
	if random.IntN(3) > 0 {
		m.Leave()
		return
	}
	// It crashes, and ten seconds pass.
	m.Forget()
	_, err := l.pool.Exec(ctx, `update leat.point_members set until = now() - interval '1 s' where member = $1`, name)
	if err != nil {
		l.t.Error(err)
	}
}

// work processes some messages of each partition, and commits them one by one.
func (g *group) work(l lab, m replication.Member, at map[int]int, n int) {
	for p, from := range at {
		to := min(from+n, len(g.offsets[p]))
		if from == to {
			continue
		}
		err := m.Commit(ctx, map[int]eventstore.Offset{p: g.offsets[p][to-1]})
		if err != nil {
			refused(l.t, eventstore.PointTaken, err)
			delete(at, p)
			continue
		}
		at[p] = to
		g.mu.Lock()
		g.ranges[p] = append(g.ranges[p], span{eventstore.Offset(from), eventstore.Offset(to)})
		g.count += to - from
		g.mu.Unlock()
	}
}

// F28: a crash of PostgreSQL empties the tables of members. All come again under
// their names, keep reading where they were, and what was committed stays.
func TestF28MembersComeBackAfterCrash(t *testing.T) {
	t.Parallel()
	server := dbtest.Cluster(t, nil)
	pool, err := pgxpool.New(ctx, server.URL())
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	declareStream(t, pool)
	l := lab{t, pool, replication.NewPoints(replication.PointsConfig{Pool: pool, Logger: quiet})}.running(t)
	other := l.another().running(t)
	l.publish(100)
	alone := l.join(eventstore.SubscribeRequest{Point: "alone", Start: earliest})
	members := []replication.Member{
		l.join(eventstore.SubscribeRequest{Partitions: 4, Start: earliest, Member: "a"}),
		l.join(eventstore.SubscribeRequest{Member: "b"}),
		other.join(eventstore.SubscribeRequest{Member: "c"}),
	}
	require.NoError(t, alone.Commit(ctx, map[int]eventstore.Offset{0: 9}))
	granted := alone.Grants()
	before := l.shares()
	require.Len(t, before, 4)

	server.Kill()
	committing := make(chan error, 1)
	go func() { committing <- alone.Commit(ctx, map[int]eventstore.Offset{0: 19}) }()
	require.NoError(t, server.Restart(ctx))
	require.NoError(t, <-committing, "it was tried again until the server was back")
	require.Eventually(t, func() bool {
		var n int
		err := pool.QueryRow(ctx, `select count(*) from leat.point_members`).Scan(&n)
		return err == nil && n == 4
	}, patience, 10*time.Millisecond)
	require.Eventually(t, func() bool {
		shared := true
		for _, m := range members {
			next, err := m.Next()
			shared = shared && err == nil && len(next) > 0 && len(next) == counts(l.shares())[m.Name()]
		}
		return shared
	}, patience, 10*time.Millisecond)
	require.Equal(t, granted, alone.Grants(), "it reads on")
	require.Equal(t, []eventstore.Offset{20}, l.positions("alone"))
	require.NoError(t, alone.Commit(ctx, map[int]eventstore.Offset{0: 29}))
	newer := other.join(eventstore.SubscribeRequest{Point: "alone"})
	require.EqualValues(t, 30, nextOf(t, newer))
	refused(t, eventstore.PointTaken, ends(t, alone))
}

// F28: where the database comes back with a commit of which nobody was told, or without one
// that was answered, readers go on where they were, and nothing comes twice to them. Where
// others have read on meanwhile, a reader without a group has to come again.
func TestF28MembersComeBackInTheMiddle(t *testing.T) {
	t.Parallel()
	for next, end := range map[eventstore.Offset]eventstore.Code{13: "", 2: "", 20: "", 50: eventstore.PointMoved} {
		t.Run(next.String(), func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			l.publish(100)
			alone := l.join(eventstore.SubscribeRequest{Point: "alone", Start: earliest})
			group := l.join(eventstore.SubscribeRequest{Point: "group", Partitions: 2, Start: earliest})
			require.NoError(t, alone.Commit(ctx, map[int]eventstore.Offset{0: 9}))
			require.NoError(t, group.Commit(ctx, map[int]eventstore.Offset{0: 9, 1: 9}))
			release := l.hold(`select from leat.point_positions for update`)
			for _, last := range []eventstore.Offset{12, 19} {
				short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
				require.ErrorIs(t, alone.Commit(short, map[int]eventstore.Offset{0: last}), context.DeadlineExceeded)
				require.ErrorIs(t, group.Commit(short, map[int]eventstore.Offset{0: last, 1: last}), context.DeadlineExceeded)
				cancel()
			}
			granted, shared := alone.Grants(), group.Grants()
			release()
			exec := func(sql string, args ...any) {
				_, err := l.pool.Exec(ctx, sql, args...)
				require.NoError(t, err)
			}
			exec(`delete from leat.point_members`)
			exec(`delete from leat.point_holders`)
			exec(`update leat.point_positions set next_offset = $1`, next)
			run(t, l.Run)
			if end != "" {
				refused(t, end, ends(t, alone))
				require.Eventually(t, func() bool { return !maps.Equal(shared, group.Grants()) }, patience, 5*time.Millisecond)
				return
			}
			require.Eventually(t, func() bool { // from the look after that on, at the latest
				return l.holders() == 5 && group.Commit(ctx, map[int]eventstore.Offset{0: 29, 1: 29}) == nil
			}, patience, 5*time.Millisecond)
			require.NoError(t, alone.Commit(ctx, map[int]eventstore.Offset{0: 29}))
			require.Equal(t, granted, alone.Grants())
			require.Equal(t, shared, group.Grants())
			require.Equal(t, []eventstore.Offset{30}, l.positions("alone"))
			require.Equal(t, []eventstore.Offset{30, 30}, l.positions("group"))
		})
	}
}
