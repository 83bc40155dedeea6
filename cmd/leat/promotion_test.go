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
	publishing, enough := context.WithCancel(t.Context())
	var publisher sync.WaitGroup
	publisher.Go(func() {
		events, work := client.NewPublisher(c, "events", client.PublisherConfig{}), client.NewPublisher(c, "jobs", client.PublisherConfig{})
		for n := int64(0); publishing.Err() == nil; n++ {
			text := strconv.FormatInt(n, 10)
			for _, p := range []*client.Publisher{events, work} {
				if _, err := p.Publish(t.Context(), api.Message{RoutingKey: fmt.Sprint("k", n%17), Payload: []byte(text), DedupID: text}); err != nil {
					t.Errorf("publish %d: %v", n, err)
				}
			}
			sent.Store(n + 1)
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
	require.Eventually(t, func() bool { return all(100) }, patience, 10*time.Millisecond)
	primary.Kill()
	dbtest.Promote(t, standby)
	before := sent.Load()
	require.Eventually(t, func() bool { return all(before + 100) }, patience, 10*time.Millisecond,
		"%d were sent: %d %d %d+%d %d", &sent, plain, alone, one, other, done)
	enough()
	publisher.Wait()
	n := sent.Load()
	require.Eventually(t, func() bool { return all(n) }, patience, 10*time.Millisecond)
	require.EqualValues(t, n, plain())
	require.EqualValues(t, n, done())
	require.Eventually(t, func() bool {
		return value[api.Point](broker, "point", "show", "events", "alone").Lag == 0 && value[api.Point](broker, "point", "show", "events", "group").Lag == 0
	}, patience, 50*time.Millisecond)
	stop()
	group.Wait()
	broker.leat("verify")
	require.NotNil(t, broker.line("queue views rebuilt"))
}
