package commands_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"leat/commands"
	"leat/eventstore"
)

func TestG8BadPolls(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	cases := map[string]struct {
		req   commands.PollRequest
		code  eventstore.Code
		field string
	}{
		"no max":        {commands.PollRequest{Queue: "q"}, eventstore.InvalidField, "max"},
		"max":           {commands.PollRequest{Queue: "q", Max: 1001}, eventstore.InvalidField, "max"},
		"wait":          {commands.PollRequest{Queue: "q", Max: 1, Wait: 61 * time.Second}, eventstore.InvalidField, "wait"},
		"negative wait": {commands.PollRequest{Queue: "q", Max: 1, Wait: -1}, eventstore.InvalidField, "wait"},
		"short lease":   {commands.PollRequest{Queue: "q", Max: 1, Lease: 1}, eventstore.InvalidField, "lease"},
		"long lease":    {commands.PollRequest{Queue: "q", Max: 1, Lease: 25 * time.Hour}, eventstore.InvalidField, "lease"},
		"many keys":     {commands.PollRequest{Queue: "q", Max: 1, RoutingKeys: make([]string, 101)}, eventstore.InvalidField, "routingKeys"},
		"bad key":       {commands.PollRequest{Queue: "q", Max: 1, RoutingKeys: []string{"\x00"}}, eventstore.InvalidField, "routingKeys"},
		"consumer":      {commands.PollRequest{Queue: "q", Max: 1, Consumer: "\xff"}, eventstore.InvalidField, "consumer"},
		"no such queue": {commands.PollRequest{Queue: "nope", Max: 1}, eventstore.ChannelNotFound, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := b.Poll(ctx, c.req)
			e := refusal(t, err)
			require.Equal(t, c.code, e.Code)
			require.Equal(t, c.field, e.Field)
		})
	}
}

// FS3: the first delivery is attempt 1, with everything that was published.
func TestFS3FirstAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	before := time.Now().Add(-time.Minute)
	ids := b.publish("q", commands.Message{RoutingKey: "k", Payload: []byte("x"), Priority: 3})
	got := b.poll(commands.PollRequest{Queue: "q", Consumer: "c", Lease: time.Hour})
	require.Len(t, got, 1)
	d := got[0]
	require.WithinRange(t, d.PublishedAt, before, time.Now().Add(time.Minute))
	require.WithinRange(t, d.LeaseUntil, time.Now().Add(59*time.Minute), time.Now().Add(61*time.Minute))
	require.Equal(t, ids[0], d.Receipt.Message)
	require.Positive(t, d.Receipt.Delivery)
	d.PublishedAt, d.LeaseUntil, d.Receipt = time.Time{}, time.Time{}, eventstore.Receipt{}
	require.Equal(t, commands.Delivery{
		MessageID: ids[0], OriginMessageID: ids[0], Channel: "q", RoutingKey: "k", Payload: []byte("x"),
		ContentType: commands.JSON, Headers: []byte(`{}`), Priority: 3, Attempt: 1,
	}, d)
}

func TestPollWaitsAndIsWoken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	start := time.Now()
	require.Empty(t, b.poll(commands.PollRequest{Queue: "q", Wait: 50 * time.Millisecond}))
	require.GreaterOrEqual(t, time.Since(start), 50*time.Millisecond)

	got := make(chan []commands.Delivery)
	go func() { got <- b.receive("q", 1) }()
	b.waitWaiting()
	start = time.Now()
	b.publishTexts("q", "", "x")
	require.Len(t, <-got, 1)
	require.Less(t, time.Since(start), 900*time.Millisecond, "the fallback is no wake-up")
}

// waitWaiting waits until one poll has found nothing and waits.
func (b broker) waitWaiting() {
	b.t.Helper()
	require.Eventually(b.t, func() bool { return b.Waiting() == 1 }, patience, time.Millisecond)
}

// F4: without any wake-up a waiting poll finds the message within a second.
func TestF04FallbackPoll(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	got := make(chan []commands.Delivery)
	go func() { got <- b.receive("q", 1) }()
	b.waitWaiting()
	exec(t, b.pool, `select leat.publish('q', 'x')`) // nobody tells the broker
	start := time.Now()
	require.Len(t, <-got, 1)
	require.Less(t, time.Since(start), 3*time.Second)
}

// A wake-up that says a message is ready, and one that does not say where.
func TestWake(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.declare("q", commands.Standard, commands.PolicyPatch{})
	for name, wake := range map[string]func(){
		"channel": func() { b.Wake(c.ID, 999) },
		"all":     func() { b.Wake() },
	} {
		t.Run(name, func(t *testing.T) {
			got := make(chan time.Time)
			go func() {
				b.receive("q", 1)
				got <- time.Now()
			}()
			b.waitWaiting()
			exec(t, b.pool, `select leat.publish('q', 'x')`)
			start := time.Now()
			wake()
			require.Less(t, (<-got).Sub(start), 900*time.Millisecond)
		})
	}
}

// Announce hears of everything that may have made messages deliverable.
func TestAnnounce(t *testing.T) {
	t.Parallel()
	announced := make(chan eventstore.ChannelID, 100)
	base := setup(t)
	b := serve(t, base.pool, commands.Config{Announce: func(channels []eventstore.ChannelID, _ bool) {
		for _, c := range channels {
			announced <- c
		}
	}})
	c := b.declare("q", commands.Standard, commands.PolicyPatch{})
	heard := func() {
		t.Helper()
		select {
		case id := <-announced:
			require.Equal(t, c.ID, id)
		case <-time.After(patience):
			t.Fatal("nothing was announced")
		}
	}
	b.publishTexts("q", "", "x")
	heard()
	_, err := b.Release(ctx, settle("q", b.receive("q", 1)...))
	require.NoError(t, err)
	heard()
	_, err = b.Nack(ctx, commands.NackRequest{SettleRequest: settle("q", b.receive("q", 1)...), Delay: new(time.Duration(0))})
	require.NoError(t, err)
	heard()
}

func TestPollFilters(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{commands.Standard, commands.FIFO} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.declare("q", mode, commands.PolicyPatch{})
			for _, key := range []string{"", "a", "A", "ключ.🔑", "\u00e9", "e\u0301"} {
				b.publishTexts("q", key, "of "+key)
			}
			for _, key := range []string{"\u00e9", "A", ""} {
				require.Equal(t, []string{"of " + key}, payloads(b.poll(commands.PollRequest{Queue: "q", RoutingKeys: []string{key, key}})))
				require.Empty(t, b.poll(commands.PollRequest{Queue: "q", RoutingKeys: []string{key}}))
			}
			got := make(chan []commands.Delivery)
			go func() {
				got <- b.poll(commands.PollRequest{Queue: "q", RoutingKeys: []string{"new", "newer"}, Wait: patience})
			}()
			b.waitWaiting()
			b.publishTexts("q", "unrelated", "x")
			b.publishTexts("q", "newer", "y")
			require.Equal(t, []string{"y"}, payloads(<-got))
			require.Len(t, b.poll(commands.PollRequest{Queue: "q"}), 4)
		})
	}
}

// Polls that wait together are served in the order of their arrival, each
// message goes to one of them.
func TestPollsShareClaims(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		seen = map[eventstore.MessageID]int{}
	)
	const total = 2000
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for c := range 30 {
		wg.Go(func() {
			for ctx.Err() == nil {
				got, err := b.Poll(ctx, commands.PollRequest{Queue: "q", Max: 1 + c, Wait: patience, Consumer: fmt.Sprint(c)})
				if err != nil {
					assert.ErrorIs(t, err, context.Canceled)
					return
				}
				mu.Lock()
				for _, d := range got {
					seen[d.MessageID]++
				}
				if len(seen) == total {
					cancel()
				}
				mu.Unlock()
			}
		})
	}
	for range total / 20 {
		b.publishTexts("q", "", numbered(20)...)
	}
	wg.Wait()
	require.Len(t, seen, total)
	for id, n := range seen {
		require.Equal(t, 1, n, id)
	}
	b.verify()
}

// A caller that goes away during its claim takes nothing with it.
func TestPollAbandoned(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{commands.Standard, commands.FIFO} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.declare("q", mode, commands.PolicyPatch{})
			for i := range 40 {
				b.publishTexts("q", fmt.Sprint("k", i%4), fmt.Sprint(i))
				gone, cancel := context.WithCancel(ctx)
				time.AfterFunc(time.Duration(i)*100*time.Microsecond, cancel)
				deliveries, err := b.Poll(gone, commands.PollRequest{Queue: "q", Max: 100})
				if err != nil {
					require.ErrorIs(t, err, context.Canceled)
				}
				_, err = b.Release(ctx, settleSome(deliveries))
				require.True(t, len(deliveries) == 0 || err == nil)
				cancel()
			}
			b.waitStates("q", "ready:40")
			for _, d := range b.receive("q", 40) {
				require.Equal(t, 1, d.Attempt)
			}
			b.verify()
		})
	}
}

func settleSome(deliveries []commands.Delivery) commands.SettleRequest {
	return settle("q", deliveries...)
}

// F17: higher priorities first, and with ageing nobody starves.
func TestF17Priorities(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	for _, p := range []int{0, 5, 9, 3} {
		b.publish("q", commands.Message{Payload: fmt.Append(nil, p, "a"), Priority: p}, commands.Message{Payload: fmt.Append(nil, p, "b"), Priority: p})
	}
	require.Equal(t, []string{"9a", "9b", "5a"}, payloads(b.poll(commands.PollRequest{Queue: "q", Max: 3})))
	require.Equal(t, []string{"5b", "3a", "3b", "0a", "0b"}, payloads(b.poll(commands.PollRequest{Queue: "q"})))

	b.declare("aged", commands.Standard, commands.PolicyPatch{PriorityAgeing: new(10 * time.Millisecond)})
	low := b.publish("aged", commands.Message{Payload: []byte("low")})
	require.Eventually(t, func() bool {
		b.publish("aged", commands.Message{Payload: []byte("high"), Priority: 9})
		got := b.poll(commands.PollRequest{Queue: "aged", Max: 1})
		return got[0].MessageID == low[0]
	}, patience, 10*time.Millisecond, "the low one starves")
}

// F17: copies age as well, and are found where they are the oldest of their priority.
func TestF17CopiesAge(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("from", commands.Standard, commands.PolicyPatch{})
	b.declare("aged", commands.Standard, commands.PolicyPatch{PriorityAgeing: new(10 * time.Millisecond)})
	_, _, err := b.DeclareLink(ctx, "test", commands.LinkSpec{Source: "from", Target: "aged"})
	require.NoError(t, err)
	b.publish("from", commands.Message{Payload: []byte("low")}, commands.Message{Payload: []byte("low too")})
	require.Eventually(t, func() bool {
		b.publish("aged", commands.Message{Payload: []byte("high"), Priority: 9})
		return payloads(b.poll(commands.PollRequest{Queue: "aged", Max: 1}))[0] == "low"
	}, patience, 10*time.Millisecond, "a copy starves")
}

// While messages flow, and are given back out of order, nothing is forgotten by
// the bounds of the scans.
func TestPollBoundsForgetNothing(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{commands.Standard, commands.FIFO} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.declare("q", mode, commands.PolicyPatch{Lease: new(time.Hour)})
			const total = 600
			var wg sync.WaitGroup
			wg.Go(func() {
				for i := range total / 4 {
					b.publish("q", commands.Message{RoutingKey: fmt.Sprint(i % 7)}, commands.Message{RoutingKey: fmt.Sprint(i % 3)},
						commands.Message{RoutingKey: "late", Delay: 20 * time.Millisecond}, commands.Message{RoutingKey: "k"})
				}
			})
			acked := 0
			for deadline := time.Now().Add(patience); acked < total && time.Now().Before(deadline); {
				for i, d := range b.poll(commands.PollRequest{Queue: "q", Max: 7, Wait: time.Second}) {
					if d.Attempt == 1 && i%3 == 0 {
						_, err := b.Nack(ctx, commands.NackRequest{SettleRequest: settle("q", d), Delay: new(time.Duration(0))})
						require.NoError(t, err)
						continue
					}
					acked += b.ack("q", d).Settled
				}
			}
			wg.Wait()
			require.Equal(t, total, acked)
			require.Empty(t, b.states("q"))
		})
	}
}

func TestTxTwins(t *testing.T) {
	t.Parallel()
	b := setup(t)
	rollback := func(f func(tx pgx.Tx)) {
		t.Helper()
		tx, err := b.pool.Begin(ctx)
		require.NoError(t, err)
		f(tx)
		require.NoError(t, tx.Rollback(ctx))
	}
	rollback(func(tx pgx.Tx) {
		_, created, err := b.DeclareChannelTx(ctx, tx, "me", commands.ChannelSpec{Name: "q"})
		require.NoError(t, err)
		require.True(t, created)
		_, err = b.PublishTx(ctx, tx, commands.PublishRequest{Channel: "q", Messages: make([]commands.Message, 3)})
		require.NoError(t, err)
		got, err := b.PollTx(ctx, tx, commands.PollRequest{Queue: "q", Max: 10})
		require.NoError(t, err)
		require.Len(t, got, 3)
		var mode string
		_, err = tx.Exec(ctx, "select leat.poll('q')")
		require.NoError(t, err)
		require.NoError(t, tx.QueryRow(ctx, "show synchronous_commit").Scan(&mode))
		require.Equal(t, "on", mode)
	})
	_, err := b.Poll(ctx, commands.PollRequest{Queue: "q", Max: 1})
	require.Equal(t, eventstore.ChannelNotFound, refusal(t, err).Code, "what was rolled back is not remembered")

	b.declare("q", commands.Standard, commands.PolicyPatch{})
	b.publishTexts("q", "", "1", "2", "3", "4", "5")
	got := b.poll(commands.PollRequest{Queue: "q"})
	rollback(func(tx pgx.Tx) {
		for i, f := range []func() (commands.SettleResult, error){
			func() (commands.SettleResult, error) { return b.AckTx(ctx, tx, settle("q", got[0])) },
			func() (commands.SettleResult, error) {
				return b.NackTx(ctx, tx, commands.NackRequest{SettleRequest: settle("q", got[1])})
			},
			func() (commands.SettleResult, error) { return b.ReleaseTx(ctx, tx, settle("q", got[2])) },
			func() (commands.SettleResult, error) {
				res, _, err := b.ExtendTx(ctx, tx, commands.ExtendRequest{SettleRequest: settle("q", got[3])})
				return res, err
			},
		} {
			res, err := f()
			require.NoError(t, err, i)
			require.Equal(t, 1, res.Settled, i)
		}
		_, err := b.PurgeTx(ctx, tx, "q", "me")
		require.NoError(t, err)
		_, err = b.AlterChannelTx(ctx, tx, "me", "q", commands.PolicyPatch{MaxDeliveries: new(9)})
		require.NoError(t, err)
		require.NoError(t, b.DeleteChannelTx(ctx, tx, "me", "q", true))
	})
	require.Equal(t, "in_flight:5", b.states("q"))
	require.Equal(t, 5, b.ack("q", got...).Settled)
	_, err = b.PollTx(ctx, nil, commands.PollRequest{Queue: "q", Max: 1, Wait: 1})
	require.Equal(t, "wait", refusal(t, err).Field)
}
