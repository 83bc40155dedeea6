package commands_test

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"leat/commands"
	"leat/migrations/dbtest"
	"leat/migrations/pgserver"
)

// The benchmarks run on a server of their own that syncs to disk. Each reports
// messages per second, WAL bytes and microseconds of server CPU per message.

const benchPayload = 256

// bench is a broker on a server whose costs are known.
type bench struct {
	broker
	server *pgserver.Server
	start  costs
}

// costs are what a server has spent.
type costs struct {
	at  time.Time
	cpu time.Duration
	wal int64
}

func newBench(b *testing.B) *bench {
	b.Helper()
	server := dbtest.Cluster(b, map[string]string{"shared_buffers": "256MB"})
	cfg, err := pgxpool.ParseConfig(server.URL())
	require.NoError(b, err)
	cfg.MaxConns = 20
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	require.NoError(b, err)
	b.Cleanup(pool.Close)
	_, err = pool.Exec(ctx, `select leat.make_partitions()`)
	require.NoError(b, err)
	return &bench{broker: serve(b, pool, commands.Config{}), server: server}
}

// begin starts the measurement.
func (x *bench) begin(b *testing.B) {
	b.Helper()
	x.start = x.costs(b)
	b.ResetTimer()
}

// report ends the measurement of so many messages.
func (x *bench) report(b *testing.B, messages int) {
	b.Helper()
	b.StopTimer()
	end, n := x.costs(b), float64(messages)
	b.ReportMetric(n/end.at.Sub(x.start.at).Seconds(), "msgs/s")
	b.ReportMetric(float64(end.wal-x.start.wal)/n, "WAL-B/msg")
	if end.cpu > 0 {
		b.ReportMetric(float64((end.cpu-x.start.cpu).Microseconds())/n, "server-us/msg")
	}
	b.ReportMetric(0, "ns/op")
}

func (x *bench) costs(b *testing.B) costs {
	b.Helper()
	c := costs{at: time.Now(), cpu: serverCPU(x.server.PID())}
	require.NoError(b, x.pool.QueryRow(ctx, `select pg_current_wal_insert_lsn() - '0/0'`).Scan(&c.wal))
	return c
}

// serverCPU adds up the time of a process and its children, 0 if it is not
// known. Ended children count through their parent.
func serverCPU(pid int) time.Duration {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0
	}
	ticks := 0
	for _, e := range entries {
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		switch strconv.Itoa(pid) {
		case e.Name():
			ticks += number(fields[13]) + number(fields[14])
			fallthrough
		case fields[1]:
			ticks += number(fields[11]) + number(fields[12])
		}
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0
	}
	return n
}

func benchMessages(n, keys int) []commands.Message {
	messages := make([]commands.Message, n)
	for i := range messages {
		messages[i] = commands.Message{
			RoutingKey: fmt.Sprint("key-", i%keys),
			Payload:    bytes.Repeat([]byte("x"), benchPayload),
		}
	}
	return messages
}

// each runs f n times in all, by so many goroutines.
func each(workers, n int, f func(worker int)) {
	var wg sync.WaitGroup
	for w := range workers {
		share := n / workers
		if w < n%workers {
			share++
		}
		wg.Go(func() {
			for range share {
				f(w)
			}
		})
	}
	wg.Wait()
}

func BenchmarkPublish(b *testing.B) {
	for _, mode := range []string{commands.Standard, commands.FIFO} {
		for _, c := range []struct{ producers, batch int }{{1, 1}, {8, 1}, {64, 1}, {1, 100}, {2, 100}, {8, 100}, {1, 1000}} {
			b.Run(fmt.Sprintf("%s/producers=%d/batch=%d", mode, c.producers, c.batch), func(b *testing.B) {
				x := newBench(b)
				x.declare("q", mode, commands.PolicyPatch{})
				messages := benchMessages(c.batch, 1)
				x.begin(b)
				each(c.producers, b.N, func(int) { x.broker.publish("q", messages...) })
				x.report(b, b.N*c.batch)
			})
		}
	}
}

func BenchmarkPoll(b *testing.B) {
	for _, batch := range []int{1, 10, 100} {
		b.Run(fmt.Sprint("batch=", batch), func(b *testing.B) {
			x := newBench(b)
			x.declare("q", commands.Standard, commands.PolicyPatch{})
			x.fill(b.N * batch)
			x.begin(b)
			for range b.N {
				require.NotEmpty(b, x.broker.poll(commands.PollRequest{Queue: "q", Max: batch}))
			}
			x.report(b, b.N*batch)
		})
	}
}

func BenchmarkAck(b *testing.B) {
	for _, batch := range []int{1, 10, 100} {
		b.Run(fmt.Sprint("batch=", batch), func(b *testing.B) {
			x := newBench(b)
			x.declare("q", commands.Standard, commands.PolicyPatch{})
			x.fill(b.N * batch)
			claimed := make([][]commands.Delivery, b.N)
			for i := range claimed {
				claimed[i] = x.broker.poll(commands.PollRequest{Queue: "q", Max: batch, Lease: time.Hour})
			}
			x.begin(b)
			for _, deliveries := range claimed {
				require.Equal(b, batch, x.broker.ack("q", deliveries...).Settled)
			}
			x.report(b, b.N*batch)
		})
	}
}

// fill publishes n messages.
func (x *bench) fill(n int) {
	for n > 0 {
		m := min(n, 1000)
		x.broker.publish("q", benchMessages(m, 1)...)
		n -= m
	}
}

// BenchmarkCycle publishes, polls and acks a batch, by as many workers.
func BenchmarkCycle(b *testing.B) {
	for _, mode := range []string{commands.Standard, commands.FIFO} {
		for _, c := range []struct{ workers, batch int }{{1, 1}, {8, 1}, {1, 100}, {2, 100}, {8, 100}} {
			b.Run(fmt.Sprintf("%s/workers=%d/batch=%d", mode, c.workers, c.batch), func(b *testing.B) {
				x := newBench(b)
				x.declare("q", mode, commands.PolicyPatch{})
				x.begin(b)
				each(c.workers, b.N, func(worker int) {
					messages := benchMessages(c.batch, 1)
					for i := range messages {
						messages[i].RoutingKey = fmt.Sprint("key-", worker)
					}
					x.broker.publish("q", messages...)
					for got := 0; got < c.batch; {
						deliveries := x.broker.poll(commands.PollRequest{Queue: "q", Max: c.batch, Wait: time.Second})
						x.broker.ack("q", deliveries...)
						got += len(deliveries)
					}
				})
				x.report(b, b.N*c.batch)
			})
		}
	}
}
