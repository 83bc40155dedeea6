package commands_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"leat/commands"
	"leat/migrations/dbtest"
)

// waitWaitingFor waits until n polls have found nothing and wait.
func (b broker) waitWaitingFor(n int) {
	b.t.Helper()
	require.Eventually(b.t, func() bool { return b.Waiting() == n }, patience, time.Millisecond)
}

// What arrives at once is divided evenly among those who wait, in whole FIFO keys.
func TestPollsShareEvenly(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{commands.Standard, commands.FIFO} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.declare("q", mode, commands.PolicyPatch{})
			got := make(chan int)
			for range 4 {
				go func() { got <- len(b.poll(commands.PollRequest{Queue: "q", Max: 1000, Wait: patience})) }()
			}
			b.waitWaitingFor(4)
			messages := make([]commands.Message, 100)
			for i := range messages {
				messages[i] = commands.Message{RoutingKey: fmt.Sprint(i), Payload: []byte("x")}
			}
			b.publish("q", messages...)
			for range 4 {
				require.Equal(t, 25, <-got)
			}
			b.verify()
		})
	}
}

// Polls that come again take turns at messages that come one by one.
func TestPollsTakeTurns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	got := make(chan int)
	poll := func(who int) {
		if len(b.poll(commands.PollRequest{Queue: "q", Max: 1000, Wait: patience})) == 1 {
			got <- who
		}
	}
	for who := range 4 {
		go poll(who)
		b.waitWaitingFor(who + 1)
	}
	for i := range 12 {
		b.publishTexts("q", "", "x")
		require.Equal(t, i%4, <-got)
		if i < 8 {
			go poll(i % 4)
			b.waitWaitingFor(4)
		}
	}
}

// A poll that is alone gets what it asks for, and polls together no less than
// a fair part of what there is.
func TestPollsGetTheirMax(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	for range 10 {
		b.publishTexts("q", "", numbered(1000)...)
	}
	require.Len(t, b.poll(commands.PollRequest{Queue: "q", Max: 1000}), 1000)
	got := make(chan int)
	for range 8 {
		go func() { got <- len(b.poll(commands.PollRequest{Queue: "q", Max: 1000})) }()
	}
	for range 8 {
		require.GreaterOrEqual(t, <-got, 250)
	}
}

// leat.share gives everything to somebody, nobody more than wanted, in order, and
// as even as the grain lets it.
func TestShareProperties(t *testing.T) {
	t.Parallel()
	pool := setup(t).pool
	rapid.Check(t, func(t *rapid.T) {
		wants := rapid.SliceOfN(rapid.Int32Range(1, 50), 2, 20).Draw(t, "wants")
		wanted := 0
		for _, w := range wants {
			wanted += int(w)
		}
		sizes := rapid.SliceOfN(rapid.Int32Range(1, 20), 1, 30).Draw(t, "runs")
		total := 0
		for i, size := range sizes {
			if total+int(size) > wanted {
				sizes = sizes[:i]
				break
			}
			total += int(size)
		}
		grain := rapid.IntRange(1, 16).Draw(t, "grain")
		rows, err := pool.Query(ctx, `
			select p.request, p.tid::text || '/' || p.start, p.upto - p.start + 1, p.size
			from unnest(leat.share(array(
				select row(format('(%s,1)', n)::tid, 1, 1, u.size, u.size)::leat.pick
				from unnest($1::integer[]) with ordinality u (size, n)), $2, $3)) with ordinality p (tid, request, start, upto, size, n)
			order by p.n`, sizes, wants, grain)
		require.NoError(t, err)
		type pick struct {
			Request int
			Place   string
			Taken   int
			Size    int
		}
		picks, err := pgx.CollectRows(rows, pgx.RowToStructByPos[pick])
		require.NoError(t, err)
		shares := make([]int, len(wants))
		places := map[string]bool{}
		request := 1
		for _, p := range picks {
			require.GreaterOrEqual(t, p.Request, request)
			require.LessOrEqual(t, p.Request, request+1, "those that get something are the first ones")
			request = p.Request
			shares[request-1] += p.Taken
			require.False(t, places[p.Place])
			places[p.Place] = true
			total -= p.Taken
		}
		require.Zero(t, total)
		for i, share := range shares {
			require.LessOrEqual(t, share, int(wants[i]))
			// Whoever could take more has as much as anybody, but for one and the grain.
			if share < int(wants[i]) && (grain == 1 || slices.Max(shares) > grain) {
				require.GreaterOrEqual(t, share, slices.Max(shares)-1)
			}
		}
	})
}

// statementCounter counts claims.
type statementCounter struct{ claims atomic.Int64 }

func (s *statementCounter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if data.SQL == commands.ClaimSQL {
		s.claims.Add(1)
	}
	return ctx
}

func (s *statementCounter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (s *statementCounter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, q := range data.Batch.QueuedQueries {
		if q.SQL == commands.ClaimSQL {
			s.claims.Add(1)
		}
	}
	return ctx
}

func (s *statementCounter) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (s *statementCounter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// traced is a broker whose claims are counted.
func traced(t *testing.T) (broker, *statementCounter) {
	t.Helper()
	base := dbtest.New(t)
	config, err := pgxpool.ParseConfig(dbtest.URL(base))
	require.NoError(t, err)
	counter := &statementCounter{}
	config.ConnConfig.Tracer = counter
	pool, err := pgxpool.NewWithConfig(ctx, config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return serve(t, pool, commands.Config{}), counter
}

// Two hundred consumers of one queue share claims: idle they cost about one a
// second together, and they take turns at what comes.
func TestConsumersShareClaims(t *testing.T) {
	t.Parallel()
	b, counter := traced(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	const consumers = 200
	for _, filter := range [][]string{nil, {"k"}} {
		working, cancel := context.WithCancel(ctx)
		got := make(chan int, consumers)
		ended := make(chan struct{})
		for who := range consumers {
			c := b.consume(commands.ConsumeRequest{Queue: "q", Prefetch: 1000, RoutingKeys: filter})
			go func() {
				defer func() { ended <- struct{}{} }()
				defer c.Close()
				for {
					deliveries, err := c.Next(working, patience)
					if err != nil {
						assert.ErrorIs(t, err, context.Canceled)
						return
					}
					for range deliveries {
						got <- who
					}
				}
			}()
		}
		b.waitWaitingFor(consumers)
		before := counter.claims.Load()
		quiet := time.NewTimer(3 * time.Second)
		<-quiet.C
		require.Less(t, counter.claims.Load()-before, int64(60), "of 600 if each looked by itself")

		before = counter.claims.Load()
		seen := map[int]int{}
		for range consumers {
			b.publishTexts("q", "k", "x")
			seen[<-got]++
		}
		if filter == nil {
			require.Len(t, seen, consumers, "each has one")
		}
		require.Less(t, counter.claims.Load()-before, int64(10*consumers), "not each for every message")
		cancel()
		for range consumers {
			<-ended
		}
	}
}

// One that takes much takes no more than the others while they have room.
func TestConsumersShareEvenly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	got := make(chan int)
	for _, prefetch := range []int{1000, 100, 100, 30} {
		c := b.consume(commands.ConsumeRequest{Queue: "q", Prefetch: prefetch})
		go func() {
			deliveries, err := c.Next(ctx, patience)
			assert.NoError(t, err)
			got <- len(deliveries)
		}()
	}
	b.waitWaitingFor(4)
	b.publishTexts("q", "", numbered(100)...)
	for range 4 {
		require.Equal(t, 25, <-got)
	}
}
