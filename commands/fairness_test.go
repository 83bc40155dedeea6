package commands_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"leat/commands"
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
			// Whoever could take more has about as much as anybody, or the grain.
			if share < int(wants[i]) && grain == 1 {
				require.GreaterOrEqual(t, share, slices.Max(shares)-len(wants))
			}
		}
	})
}
