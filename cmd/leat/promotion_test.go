//go:build unix

package main

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"leat/api"
	"leat/api/client"
	"leat/migrations/dbtest"
	"leat/migrations/pgserver"
)

// eitherOf is the URL of whichever of two servers can be written to.
func eitherOf(t *testing.T, servers ...*pgserver.Server) string {
	t.Helper()
	var hosts, ports []string
	query := url.Values{"target_session_attrs": {"read-write"}, "user": {"leat"}}
	for _, s := range servers {
		u, err := url.Parse(s.URL())
		require.NoError(t, err)
		hosts, ports = append(hosts, u.Query().Get("host")), append(ports, u.Query().Get("port"))
	}
	query.Set("host", strings.Join(hosts, ","))
	query.Set("port", strings.Join(ports, ","))
	return "postgres:///leat?" + query.Encode()
}

// F28: the primary dies and its synchronous standby is promoted, under a subscriber, a
// consumer with a point, a group and a push consumer: all go on by themselves, and
// nothing that was answered is lost.
//
// The primary dies between two publishes, and others are tried while it is dead. One that
// has no answer yet may be in its write-ahead log, and so with subscribers, before it is
// with the standby: where that loses it, subscriptions end with offset_ahead.
func TestF28Promotion(t *testing.T) {
	t.Parallel()
	small := map[string]string{"fsync": "off"}
	primary := dbtest.Cluster(t, small)
	standby := dbtest.Standby(t, primary, small)
	broker := serveProcess(t, "--database-url", eitherOf(t, primary, standby))
	broker.leat("channel", "declare", "events", "--kind", "stream")
	broker.leat("channel", "declare", "jobs")
	c, err := client.New(broker.url, client.Options{})
	require.NoError(t, err)
	defer c.Close()

	running, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	defer group.Wait()
	defer stop()
	reading := func(config client.SubscribeConfig, order bool) func() int {
		config.From = "earliest"
		var mu sync.Mutex
		seen := map[string]bool{}
		group.Go(func() {
			err := c.Subscribe(running, "events", config, func(_ context.Context, m client.Message) error {
				mu.Lock()
				defer mu.Unlock()
				if text := string(m.Bytes()); order && text != m.Offset.String() || text != strconv.Itoa(int(m.Offset)) {
					t.Errorf("message %s at offset %d", text, m.Offset)
				} else if order && int(m.Offset) != len(seen) {
					t.Errorf("message %d behind %d", m.Offset, len(seen))
				} else {
					seen[text] = true
				}
				return nil
			})
			if running.Err() == nil {
				t.Errorf("a subscription ended: %v", err)
			}
		})
		return func() int {
			mu.Lock()
			defer mu.Unlock()
			return len(seen)
		}
	}
	plain := reading(client.SubscribeConfig{}, true)
	alone := reading(client.SubscribeConfig{Point: "alone"}, false)
	one, other := reading(client.SubscribeConfig{Point: "group", Partitions: 4}, false), reading(client.SubscribeConfig{Point: "group", Partitions: 4}, false)
	var mu sync.Mutex
	jobs := map[string]bool{}
	group.Go(func() {
		err := c.Consume(running, "jobs", client.ConsumeConfig{}, func(_ context.Context, d api.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			jobs[string(d.Bytes())] = true
			return nil
		})
		if running.Err() == nil {
			t.Errorf("the consumer ended: %v", err)
		}
	})
	done := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(jobs)
	}

	var sent atomic.Int64
	var underWay sync.Mutex // a publish to both
	publishing, enough := context.WithCancel(t.Context())
	var publisher sync.WaitGroup
	publisher.Go(func() {
		events, work := client.NewPublisher(c, "events", client.PublisherConfig{}), client.NewPublisher(c, "jobs", client.PublisherConfig{})
		for n := int64(0); publishing.Err() == nil; n = sent.Load() {
			batch := make([]api.Message, 10)
			for i := range batch {
				text := strconv.FormatInt(n+int64(i), 10)
				batch[i] = api.Message{RoutingKey: fmt.Sprint("k", (n+int64(i))%17), Payload: []byte(text), DedupID: text}
			}
			underWay.Lock()
			for _, p := range []*client.Publisher{events, work} {
				if _, err := p.PublishAll(t.Context(), batch); err != nil {
					t.Errorf("publish from %d on: %v", n, err)
				}
			}
			sent.Add(int64(len(batch)))
			underWay.Unlock()
		}
		if err := events.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if err := work.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
	all := func(n int64) bool {
		return int64(plain()) >= n && int64(alone()) >= n && int64(one()+other()) >= n && int64(done()) >= n
	}
	seen := sight(func() string {
		return fmt.Sprintf("sent %d, read %d, %d alone, %d+%d in the group, %d jobs", sent.Load(), plain(), alone(), one(), other(), done())
	})
	require.Eventually(t, func() bool { return all(100) }, patience, 10*time.Millisecond, "%s", seen)
	underWay.Lock()
	primary.Kill()
	underWay.Unlock()
	dbtest.Promote(t, standby)
	before := sent.Load()
	require.Eventually(t, func() bool { return all(before + 100) }, patience, 10*time.Millisecond, "promoted at %d: %s", before, seen)
	enough()
	publisher.Wait()
	n := sent.Load()
	require.Eventually(t, func() bool { return all(n) }, patience, 10*time.Millisecond, "%s", seen)
	require.EqualValues(t, n, plain())
	require.EqualValues(t, n, done())
	require.Eventually(t, func() bool {
		return value[api.Point](broker, "point", "show", "events", "alone").Lag == 0 && value[api.Point](broker, "point", "show", "events", "group").Lag == 0
	}, patience, 50*time.Millisecond, "a member says at a heartbeat that it has passed what is of others")
	stop()
	group.Wait()
	broker.leat("verify")
	require.NotNil(t, broker.line("queue views rebuilt"))
}
