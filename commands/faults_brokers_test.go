package commands_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"leat/commands"
	"leat/eventstore"
	"leat/migrations/dbtest"
)

// What one broker publishes, another hands out at once, told by its listener.
func TestTwoBrokersTellEachOther(t *testing.T) {
	t.Parallel()
	_, url := dbtest.NewURL(t)
	one, two := wired(t, url), wired(t, url)
	one.declare("q", commands.Standard, commands.PolicyPatch{})
	var quickest time.Duration
	for i := range 5 {
		got := make(chan []commands.Delivery, 1)
		go func() { got <- two.receive("q", 1) }()
		two.waitWaiting()
		start := time.Now()
		one.publishTexts("q", "", "x")
		two.ack("q", <-got...)
		if took := time.Since(start); i == 0 || took < quickest {
			quickest = took
		}
	}
	// The fallback would have taken half a second on average.
	require.Less(t, quickest, time.Second)
}

// Two brokers on one database, with publishers, consumers and sweepers at both:
// no message is handed out twice within its lease, FIFO keys keep their order,
// nothing is lost, and the views are what the log says.
func TestTwoBrokersShareQueues(t *testing.T) {
	t.Parallel()
	_, url := dbtest.NewURL(t)
	both := []broker{wired(t, url), wired(t, url)}
	const (
		publishers = 4 // of each queue; one FIFO key each
		each       = 150
		total      = publishers * each
	)
	for _, mode := range []string{commands.Standard, commands.FIFO} {
		both[0].declare(mode, mode, commands.PolicyPatch{
			Lease: new(time.Minute), Retry: commands.RetryPatch{BaseDelay: new(5 * time.Millisecond)}, MaxDeliveries: new(1000),
		})
	}
	running, cancel := context.WithTimeout(ctx, forgiving)
	defer cancel()
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		acked  = map[eventstore.MessageID]int{}
		flying = map[eventstore.MessageID]bool{}
		next   = map[string]int{} // per queue and key
	)
	// take notes that messages are handed out, and give that they are settled.
	take := func(queue string, got []commands.Delivery) {
		mu.Lock()
		defer mu.Unlock()
		expect := map[string]int{}
		for _, d := range got {
			assert.False(t, flying[d.MessageID], "message %d is in flight twice", d.MessageID)
			flying[d.MessageID] = true
			if queue == commands.FIFO {
				if _, ok := expect[d.RoutingKey]; !ok {
					expect[d.RoutingKey] = next[queue+d.RoutingKey]
				}
				assert.Equal(t, fmt.Sprint(expect[d.RoutingKey]), string(d.Payload), "of key %s", d.RoutingKey)
				expect[d.RoutingKey]++
			}
		}
	}
	consume := func(b broker, queue string, turn int) {
		for running.Err() == nil {
			got, err := b.Poll(running, commands.PollRequest{Queue: queue, Max: 5, Wait: 10 * time.Second})
			if err != nil {
				assert.ErrorIs(t, err, context.Canceled)
				return
			}
			take(queue, got)
			for i, d := range got {
				turn++
				nack := turn%7 == 0
				mu.Lock()
				delete(flying, d.MessageID)
				if !nack {
					acked[d.MessageID]++
					next[queue+d.RoutingKey]++
				}
				mu.Unlock()
				if nack { // gives back all that is left, in order
					for _, rest := range got[i+1:] {
						mu.Lock()
						delete(flying, rest.MessageID)
						mu.Unlock()
					}
					res, err := b.Nack(ctx, commands.NackRequest{SettleRequest: settle(queue, got[i:]...)})
					assert.NoError(t, err)
					assert.Equal(t, len(got)-i, res.Settled)
					break
				}
				res, err := b.Ack(ctx, settle(queue, d))
				assert.NoError(t, err)
				assert.Equal(t, 1, res.Settled)
			}
			mu.Lock()
			if len(acked) == 2*total {
				cancel()
			}
			mu.Unlock()
		}
	}
	for i, b := range both {
		for _, queue := range []string{commands.Standard, commands.FIFO} {
			for c := range 3 {
				wg.Go(func() { consume(b, queue, c) })
			}
			for p := range publishers / 2 {
				wg.Go(func() {
					key := fmt.Sprint("k", p*2+i)
					for n := range each {
						b.publishTexts(queue, key, fmt.Sprint(n))
					}
				})
			}
		}
	}
	finished(t, &wg)
	require.Len(t, acked, 2*total)
	for id, n := range acked {
		require.Equal(t, 1, n, "message %d", id)
	}
	require.Empty(t, both[0].states(commands.Standard)+both[0].states(commands.FIFO))
	both[1].verify()
}

// FS1: five sweepers at once do not wait for each other for ever, and count
// each lease that is over, and each expiry, once.
func TestFS01ManySweepers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 4 {
		serve(t, b.pool, commands.Config{})
	}
	const messages = 600
	for _, mode := range []string{commands.Standard, commands.FIFO} {
		b.declare(mode, mode, commands.PolicyPatch{MaxDeliveries: new(3), Retry: commands.RetryPatch{BaseDelay: new(10 * time.Millisecond)}})
		batch := make([]commands.Message, messages)
		for i := range batch {
			batch[i].RoutingKey = fmt.Sprint("k", i%100)
		}
		b.publish(mode, batch...)
		for i := range batch {
			batch[i] = commands.Message{RoutingKey: fmt.Sprint("gone", i), TTL: 50 * time.Millisecond, Delay: time.Hour}
		}
		b.publish(mode, batch...)
	}
	for _, queue := range []string{commands.Standard, commands.FIFO} {
		deadline := time.Now().Add(forgiving)
		for b.states(queue) != fmt.Sprint("dead:", messages) {
			require.True(t, time.Now().Before(deadline), b.states(queue))
			b.poll(commands.PollRequest{Queue: queue, Max: 1000, Lease: 100 * time.Millisecond, Wait: 100 * time.Millisecond})
		}
	}
	for kind, want := range map[eventstore.Kind]int{
		"message.lease_expired": 3, eventstore.MessageDelivered: 3, "message.dead_lettered": 1, "message.expired": 1,
	} {
		require.Equal(t, []string{fmt.Sprint(2 * messages * want)}, texts(t, b.pool, `
			select sum(cardinality(message_ids))::text from leat.events where kind::text = $1`, kind), kind)
	}
	b.verify()
}
