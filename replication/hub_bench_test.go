package replication_test

import (
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"leat/eventstore"
	"leat/migrations/dbtest"
	"leat/replication"
)

// BenchmarkCatchUp reads a stream from the table, 256 bytes a payload. The aim is
// 100,000 messages a second.
func BenchmarkCatchUp(b *testing.B) {
	for name, sql := range map[string]string{"published": write, "copied": copyIn} {
		b.Run(name, func(b *testing.B) {
			pool := dbtest.New(b)
			hub := startHub(b, replication.HubConfig{Pool: pool})
			s := newStream(b, pool, "s")
			for range 20 {
				_, err := pool.Exec(ctx, sql, s.channel, 10_000, keys, 256-len("message 123456"))
				require.NoError(b, err)
			}
			_, err := pool.Exec(ctx, `vacuum analyze leat.events`)
			require.NoError(b, err)
			hub.Live()
			b.ReportAllocs()
			var count int
			began := cpu(b)
			for b.Loop() {
				sub := s.subscribe(hub, eventstore.SubscribeRequest{Start: from(0)})
				for count = 0; count < 200_000; {
					batch, err := next(ctx, sub)
					require.NoError(b, err)
					count += len(batch.Messages)
				}
				sub.Close()
			}
			b.ReportMetric(float64(b.N*count)/b.Elapsed().Seconds(), "messages/s")
			b.ReportMetric((cpu(b)-began).Seconds()*1e6/float64(b.N*count), "µs-CPU/message")
		})
	}
}

// BenchmarkFanOut hands messages from the tail to 10 subscribers. There are no rows
// of them, so the tail waits for the slowest subscriber: none falls below the ring.
func BenchmarkFanOut(b *testing.B) {
	const subscribers, window = 10, 4000
	pool := dbtest.New(b)
	hub := startHub(b, replication.HubConfig{Pool: pool, LostAfter: time.Hour})
	s := newStream(b, pool, "s")
	hub.Live()
	var (
		got     [subscribers]atomic.Int64
		readers sync.WaitGroup
	)
	for i := range got {
		sub := s.subscribe(hub, eventstore.SubscribeRequest{})
		readers.Go(func() {
			for {
				batch, err := sub.Next(ctx, 0)
				if err != nil {
					return
				}
				got[i].Add(int64(len(batch.Messages)))
			}
		})
	}
	await := func(n eventstore.Offset) {
		for i := range got {
			for got[i].Load() < int64(n) {
				runtime.Gosched()
			}
		}
	}
	b.ReportAllocs()
	sent, began := eventstore.Offset(0), cpu(b)
	payload := make([]byte, 256)
	for b.Loop() {
		for range 100 {
			hub.Wants(s.channel, sent+1)
			hub.Message(s.channel, &eventstore.StreamMessage{Offset: sent, MessageID: 1, OriginMessageID: 1, Payload: payload, ContentType: "x"})
			sent++
		}
		hub.Flush()
		await(sent - window)
	}
	await(sent)
	b.ReportMetric(subscribers*float64(sent)/b.Elapsed().Seconds(), "deliveries/s")
	b.ReportMetric((cpu(b)-began).Seconds()*1e6/float64(sent), "µs-CPU/message")
	hub.Stop()
	readers.Wait()
}

// BenchmarkIdle counts what idle subscribers of one stream cost, while messages
// come one at a time.
func BenchmarkIdle(b *testing.B) {
	pool := dbtest.New(b)
	hub := startHub(b, replication.HubConfig{Pool: pool, LostAfter: time.Hour})
	s := newStream(b, pool, "s")
	hub.Live()
	before := memory()
	const subscribers = 2000
	var (
		total   atomic.Int64
		readers sync.WaitGroup
	)
	for range subscribers {
		sub := s.subscribe(hub, eventstore.SubscribeRequest{})
		readers.Go(func() {
			for {
				batch, err := sub.Next(ctx, 15*time.Second)
				if err != nil {
					return
				}
				total.Add(int64(len(batch.Messages)))
			}
		})
	}
	runtime.Gosched()
	used := memory() - before
	sent := eventstore.Offset(0)
	for b.Loop() {
		hub.Message(s.channel, &eventstore.StreamMessage{Offset: sent, MessageID: 1, OriginMessageID: 1})
		sent++
		hub.Flush()
		for total.Load() < subscribers*int64(sent) {
			runtime.Gosched()
		}
	}
	b.ReportMetric(float64(used)/subscribers, "bytes/subscriber")
	hub.Stop()
	readers.Wait()
}

// memory is what is in use, stacks included.
func memory() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapInuse + stats.StackInuse)
}

// cpu is what this process has used; the server is another.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
