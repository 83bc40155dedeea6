package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"leat/api"
	"leat/api/client"
	"leat/eventstore"
)

const (
	groupPartitions = 8
	groupKeys       = 24
)

// group is a stream "s" and who reads it with the point "g". Message n is n, of
// key n modulo groupKeys.
type group struct {
	*testing.T
	*client.Client
	published int

	mu      sync.Mutex
	handled map[int]bool
	members map[string]*groupMember
}

type groupMember struct {
	stop     context.CancelFunc
	stopped  chan struct{}
	assigned []int
	handled  int
}

func newGroup(t *testing.T) *group {
	g := &group{T: t, Client: setup(t), handled: map[int]bool{}, members: map[string]*groupMember{}}
	_, err := g.DeclareChannel(t.Context(), "s", api.ChannelSpec{Kind: "stream"})
	require.NoError(t, err)
	return g
}

func groupKey(n int) string { return fmt.Sprint("key ", n%groupKeys) }

// publish publishes 500 messages.
func (g *group) publish() {
	g.Helper()
	for range 10 {
		var r api.PublishRequest
		for range 50 {
			r.Messages = append(r.Messages, api.Message{Payload: fmt.Append(nil, g.published), RoutingKey: groupKey(g.published)})
			g.published++
		}
		_, err := g.Publish(g.Context(), "s", r, false)
		require.NoError(g, err)
	}
}

func (g *group) join(name string) {
	ctx, stop := context.WithCancel(g.Context())
	m := &groupMember{stop: stop, stopped: make(chan struct{})}
	g.mu.Lock()
	g.members[name] = m
	g.mu.Unlock()
	assigned := func(partitions []int) {
		g.mu.Lock()
		defer g.mu.Unlock()
		m.assigned = partitions
	}
	config := client.SubscribeConfig{
		Point: "g", Partitions: groupPartitions, Member: name, From: "earliest", Window: 50, Concurrency: 2, OnAssigned: assigned,
	}
	g.Cleanup(func() { g.leave(name) })
	go func() {
		defer close(m.stopped)
		assert.NoError(g, g.Subscribe(ctx, "s", config, func(_ context.Context, message client.Message) error {
			g.handle(m, message)
			return nil
		}), name)
	}()
}

// leave ends a member after the commit of what it handled.
func (g *group) leave(name string) {
	m := g.members[name]
	m.stop()
	<-m.stopped
}

// handle notes a message. None of its key may have been passed over.
func (g *group) handle(m *groupMember, message client.Message) {
	n, err := strconv.Atoi(string(message.Payload))
	g.mu.Lock()
	defer g.mu.Unlock()
	assert.NoError(g, err)
	assert.EqualValues(g, n, message.Offset)
	assert.Equal(g, groupKey(n), message.RoutingKey)
	if n >= groupKeys {
		assert.True(g, g.handled[n-groupKeys], "%d comes before %d", n, n-groupKeys)
	}
	g.handled[n] = true
	m.handled++
}

// shared waits until these members have all partitions, and each has some.
func (g *group) shared(names ...string) {
	g.Helper()
	require.Eventually(g, func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		var all []int
		for _, name := range names {
			if len(g.members[name].assigned) == 0 {
				return false
			}
			all = append(all, g.members[name].assigned...)
		}
		slices.Sort(all)
		return len(all) == groupPartitions && len(slices.Compact(all)) == groupPartitions
	}, patience, time.Millisecond, "%v", names)
}

// commits are the ends of the commits of each partition, as the log has them.
func (g *group) commits() (ends [groupPartitions][]int) {
	g.Helper()
	filter := client.EventsFilter{Channel: "s", Kinds: []eventstore.Kind{eventstore.PointCommitted}}
	for event, err := range g.StreamEvents(g.Context(), filter) {
		require.NoError(g, err)
		var data struct{ Positions map[int]int }
		require.NoError(g, json.Unmarshal(event.Data, &data))
		for partition, last := range data.Positions {
			ends[partition] = append(ends[partition], last)
		}
	}
	return ends
}

// committed answers whether everything is. What is must have been handled before.
func (g *group) committed() bool {
	g.Helper()
	point, err := g.Point(g.Context(), "s", "g")
	require.NoError(g, err)
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range point.Partitions {
		for n := range int(p.Next) {
			if client.PartitionOf(groupKey(n), groupPartitions) == p.Partition {
				require.True(g, g.handled[n], "%d was committed and not handled", n)
			}
		}
	}
	return int(point.Next) == g.published
}

// G7: three members share a stream; one leaves and one joins while messages come.
// Every key is handled in order, nothing is lost, and nothing is committed twice.
func TestG7GroupOfClients(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	g.join("a")
	g.join("b")
	g.join("c")
	g.shared("a", "b", "c")
	g.publish()
	g.leave("a")
	g.committed()
	g.publish()
	g.join("d")
	g.publish()
	g.shared("b", "c", "d")
	g.publish()
	require.Eventually(t, g.committed, patience, 10*time.Millisecond)
	for _, name := range []string{"b", "c", "d"} {
		g.leave(name)
		require.NotZero(t, g.members[name].handled, name)
	}
	require.Len(t, g.handled, g.published)
	for partition, ends := range g.commits() {
		next := 0
		for _, last := range ends {
			require.GreaterOrEqual(t, last, next, "partition %d: committed twice", partition)
			next = last + 1
		}
		require.Equal(t, g.published, next, "the end of partition %d", partition)
	}
}
