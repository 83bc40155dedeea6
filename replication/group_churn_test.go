package replication_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"leat/eventstore"
	"leat/replication"
)

// life is one subscription of a member, and what it was given, by partition, in order.
type life struct {
	name      string
	committed []eventstore.Offset // of all partitions, before it began
	delivered [][]eventstore.Offset
}

// churn is a group over two brokers, whose members come, go and crash.
type churn struct {
	lab
	hubs       []*replication.Hub
	partitions int
	end        eventstore.Offset

	mu    sync.Mutex
	lives []*life
}

func (c *churn) done() bool {
	return !slices.ContainsFunc(c.positions("p"), func(next eventstore.Offset) bool { return next < c.end })
}

// live is one member, from its subscription to its end.
func (c *churn) live(name string, random *rand.Rand) error {
	one := &life{name: name, committed: c.positions("p"), delivered: make([][]eventstore.Offset, c.partitions)}
	c.mu.Lock()
	c.lives = append(c.lives, one)
	c.mu.Unlock()
	sub, err := c.hubs[random.IntN(len(c.hubs))].Subscribe(ctx, eventstore.SubscribeRequest{
		Stream: "s", Point: "p", Member: name, Window: 50 + random.IntN(200),
	})
	if err != nil {
		return err
	}
	var last eventstore.Offset = -1
	for range 5 + random.IntN(25) {
		batch, err := sub.Next(ctx, 50*time.Millisecond)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		for _, m := range batch.Messages {
			p := replication.PartitionOf(m.RoutingKey, c.partitions)
			one.delivered[p] = append(one.delivered[p], m.Offset)
			last = m.Offset
		}
		if random.IntN(4) == 0 || last < 0 {
			continue
		}
		err = sub.Commit(ctx, eventstore.StreamPosition{Offset: last})
		if err != nil && !errors.Is(err, &eventstore.Error{Code: eventstore.PointTaken}) {
			return fmt.Errorf("%s commits %d: %w", name, last, err)
		}
	}
	if random.IntN(3) > 0 {
		sub.Close()
		return nil
	}
	sub.Crash()
	_, err = c.pool.Exec(ctx, `update leat.point_members set until = now() - interval '1 s' where member = $1`, name)
	return err
}

// commits are the last offsets of a partition that the log has. Commits of one
// broker's members share an event, so it does not say who it was.
func (c *churn) commits(partition int) []eventstore.Offset {
	c.t.Helper()
	rows, err := c.pool.Query(ctx, `
		select (e.data -> 'positions' ->> $1)::bigint from leat.events e
		where e.kind = 'point.committed' and e.data -> 'positions' ? $1 order by e.position`, fmt.Sprint(partition))
	require.NoError(c.t, err)
	lasts, err := pgx.CollectRows(rows, pgx.RowTo[eventstore.Offset])
	require.NoError(c.t, err)
	return lasts
}

// check holds the log of a partition against what was delivered: what one commit
// covers one member had, all of it and in order.
func (c *churn) check(partition int, messages []eventstore.Offset) {
	c.t.Helper()
	for _, one := range c.lives {
		for _, offset := range one.delivered[partition] {
			require.GreaterOrEqual(c.t, offset, one.committed[partition], "%s got what was committed before", one.name)
		}
	}
	next := eventstore.Offset(0)
	for _, last := range c.commits(partition) {
		require.GreaterOrEqual(c.t, last, next, "partition %d goes back", partition)
		from, _ := slices.BinarySearch(messages, next)
		to, _ := slices.BinarySearch(messages, last+1)
		require.True(c.t, slices.ContainsFunc(c.lives, func(one *life) bool {
			return one.had(partition, messages[from:to])
		}), "nobody had what was committed from %d to %d of partition %d", next, last, partition)
		next = last + 1
	}
	require.Equal(c.t, c.end, next, "the end of partition %d", partition)
}

// had reports whether the messages were delivered, one after the other.
func (o *life) had(partition int, messages []eventstore.Offset) bool {
	if len(messages) == 0 {
		return true
	}
	got := o.delivered[partition]
	at := lastIndex(got, messages[0])
	return at >= 0 && at+len(messages) <= len(got) && slices.Equal(messages, got[at:at+len(messages)])
}

// lastIndex is the last place of an offset.
func lastIndex(list []eventstore.Offset, offset eventstore.Offset) int {
	for i, o := range slices.Backward(list) {
		if o == offset {
			return i
		}
	}
	return -1
}

// G7: three members over two brokers come, go and crash. Each key is with one
// member at a time, in order; nothing is lost, and nothing comes again that was
// committed.
func TestG7GroupOverBrokers(t *testing.T) {
	t.Parallel()
	const partitions, messages, keys = 8, 10_000, 500
	l := newLab(t)
	c := &churn{lab: l, partitions: partitions, end: messages}
	for _, broker := range []lab{l.running(t), l.another().running(t)} {
		c.hubs = append(c.hubs, startHub(t, replication.HubConfig{Pool: l.pool, Points: broker.Points}))
	}
	l.declareGroup(partitions)
	byPartition := make([][]eventstore.Offset, partitions)
	for offset := range eventstore.Offset(messages) {
		p := replication.PartitionOf(fmt.Sprint(int(offset)*7919%keys), partitions)
		byPartition[p] = append(byPartition[p], offset)
	}
	var group sync.WaitGroup
	group.Go(func() {
		for first := 0; first < messages; first += 100 {
			_, err := l.pool.Exec(ctx, `
				select leat.publish_batch('s', array_fill('\x31'::bytea, array[100]),
				    array(select (g * 7919 % $2)::text from generate_series($1::integer, $1 + 99) g))`, first, keys)
			if err != nil {
				l.t.Error(err)
			}
		}
	})
	for i := range 3 {
		group.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 7))
			for n := 0; !c.done() && !t.Failed(); n++ {
				if err := c.live(fmt.Sprintf("m%d-%d", i, n), random); err != nil {
					l.t.Error(err)
				}
			}
		})
	}
	group.Wait()
	t.Logf("%d lives", len(c.lives))
	for p := range partitions {
		c.check(p, byPartition[p])
	}
	l.verify()
}
