package commands_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"leat/commands"
	"leat/eventstore"
)

// consume begins to consume until the end of the test.
func (b broker) consume(req commands.ConsumeRequest) *commands.Consumer {
	b.t.Helper()
	c, err := b.Consume(ctx, req)
	require.NoError(b.t, err)
	b.t.Cleanup(c.Close)
	return c
}

// next waits for messages.
func next(t testing.TB, c *commands.Consumer) []commands.Delivery {
	t.Helper()
	got, err := c.Next(ctx, patience)
	require.NoError(t, err)
	require.NotEmpty(t, got)
	return got
}

// nothing says that no message comes, though one is there.
func nothing(t testing.TB, c *commands.Consumer) {
	t.Helper()
	got, err := c.Next(ctx, 100*time.Millisecond)
	require.NoError(t, err)
	require.Empty(t, got)
}

func TestG8BadConsumers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	_, _, err := b.DeclareChannel(ctx, "", commands.ChannelSpec{Name: "e", Kind: commands.Exchange, Type: commands.Fanout})
	require.NoError(t, err)
	for field, req := range map[string]commands.ConsumeRequest{
		"prefetch":    {Queue: "q"},
		"lease":       {Queue: "q", Prefetch: 1, Lease: 1},
		"consumer":    {Queue: "q", Prefetch: 1, Consumer: "\xff"},
		"routingKeys": {Queue: "q", Prefetch: 1, RoutingKeys: []string{"\x00"}},
	} {
		_, err := b.Consume(ctx, req)
		require.Equal(t, field, refusal(t, err).Field)
	}
	_, err = b.Consume(ctx, commands.ConsumeRequest{Queue: "q", Prefetch: 1001})
	require.Equal(t, "prefetch", refusal(t, err).Field)
	for _, name := range []string{"nope", "e", "a\x00"} {
		_, err := b.Consume(ctx, commands.ConsumeRequest{Queue: name, Prefetch: 1})
		require.Equal(t, eventstore.ChannelNotFound, refusal(t, err).Code)
	}
	c := b.consume(commands.ConsumeRequest{Queue: "q", Prefetch: 1})
	_, err = c.Ack(ctx, []string{"x"})
	require.Equal(t, eventstore.ReceiptMalformed, refusal(t, err).Code)
	_, err = c.Nack(ctx, commands.NackRequest{SettleRequest: commands.SettleRequest{Receipts: []string{"1:1"}}, Action: "x"})
	require.Equal(t, "action", refusal(t, err).Field)
	_, _, err = c.Extend(ctx, []string{"1:1"}, 1)
	require.Equal(t, "lease", refusal(t, err).Field)
	_, err = c.Release(ctx, nil)
	require.Equal(t, eventstore.BatchEmpty, refusal(t, err).Code)
}

// FS5: with a prefetch of 1 there is never more than one message in hand.
func TestFS5Prefetch(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{commands.Standard, commands.FIFO} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.declare("q", mode, commands.PolicyPatch{Lease: new(time.Hour)})
			b.publishTexts("q", "k", numbered(10)...)
			c := b.consume(commands.ConsumeRequest{Queue: "q", Prefetch: 1, Consumer: "one"})
			require.Equal(t, time.Hour, c.Lease())
			for i := range 10 {
				got := next(t, c)
				require.Equal(t, []string{fmt.Sprint(i)}, payloads(got))
				if i == 0 {
					nothing(t, c)
				}
				require.Equal(t, []string{"1"}, texts(t, b.pool, `select count(*)::text from leat.queue_messages where state = 'in_flight'`))
				result, err := c.Ack(ctx, receipts(got))
				require.NoError(t, err)
				require.Equal(t, 1, result.Settled)
			}
			require.Empty(t, b.states("q"))
		})
	}
}

// Whatever settles a message makes room for the next one.
func TestConsumerSettles(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{Lease: new(time.Hour)})
	c := b.consume(commands.ConsumeRequest{Queue: "q", Prefetch: 2})
	b.publishTexts("q", "", numbered(5)...)
	got := next(t, c)
	require.Len(t, got, 2)
	nothing(t, c)

	discard := commands.NackRequest{SettleRequest: settle("q", got[0]), Action: commands.DiscardAction}
	result, err := c.Nack(ctx, discard)
	require.NoError(t, err)
	require.Equal(t, 1, result.Settled)
	again, err := c.Nack(ctx, discard)
	require.NoError(t, err)
	require.Equal(t, 1, again.AlreadySettled)
	third := next(t, c)
	require.Equal(t, []string{"2"}, payloads(third))

	result, err = c.Release(ctx, receipts(got[1:]))
	require.NoError(t, err)
	require.Equal(t, 1, result.Settled)
	back := next(t, c)
	require.Len(t, back, 1)
	require.Equal(t, 1, back[0].Attempt)

	// What somebody else did is found out with the next settlement of it.
	b.ack("q", back...)
	result, err = c.Ack(ctx, receipts(back))
	require.NoError(t, err)
	require.Equal(t, 1, result.AlreadySettled)
	require.Len(t, next(t, c), 1)
	b.verify()
}

// F2, F3: a lease that ends makes room, whatever its consumer does; its late ack
// changes nothing.
func TestF02ConsumerDoesNotStarve(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{MaxDeliveries: new(1)})
	b.publishTexts("q", "", numbered(4)...)
	c := b.consume(commands.ConsumeRequest{Queue: "q", Prefetch: 2, Lease: 300 * time.Millisecond})
	require.Equal(t, 300*time.Millisecond, c.Lease())
	first := next(t, c)
	require.Equal(t, []string{"0", "1"}, payloads(first))
	second := next(t, c)
	require.Equal(t, []string{"2", "3"}, payloads(second))
	require.False(t, time.Now().Before(first[0].LeaseUntil), "not before the leases ended")
	result, err := c.Ack(ctx, receipts(first))
	require.NoError(t, err)
	require.Len(t, result.Failed, 2)
	for _, failed := range result.Failed {
		require.Contains(t, []eventstore.Code{eventstore.LeaseLost, eventstore.AlreadySettled}, failed.Code)
	}
	b.waitStates("q", "dead:4")
}

// Extended leases keep their room, and those that could not be extended do not.
func TestConsumerExtends(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	b.publishTexts("q", "", numbered(2)...)
	c := b.consume(commands.ConsumeRequest{Queue: "q", Prefetch: 1, Lease: 2 * time.Second})
	got := next(t, c)
	result, until, err := c.Extend(ctx, receipts(got), time.Hour)
	require.NoError(t, err)
	require.Equal(t, 1, result.Settled)
	require.WithinRange(t, until, time.Now().Add(59*time.Minute), time.Now().Add(61*time.Minute))
	quiet, err := c.Next(ctx, 2500*time.Millisecond)
	require.NoError(t, err)
	require.Empty(t, quiet)

	b.ack("q", got...)
	result, _, err = c.Extend(ctx, receipts(got), 0)
	require.NoError(t, err)
	require.Len(t, result.Failed, 1)
	second := next(t, c)
	_, until, err = c.Extend(ctx, receipts(second), 0)
	require.NoError(t, err)
	require.WithinRange(t, until, time.Now(), time.Now().Add(3*time.Second), "the consumer's lease")
}

// F8, FS3: what a consumer leaves is another's at once, and still its first attempt.
func TestFS3CloseReleases(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{commands.Standard, commands.FIFO} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.declare("q", mode, commands.PolicyPatch{Lease: new(time.Hour)})
			b.publishTexts("q", "k", numbered(10)...)
			c := b.consume(commands.ConsumeRequest{Queue: "q", Prefetch: 100, Consumer: "first"})
			got := next(t, c)
			require.Len(t, got, 10)
			_, err := c.Ack(ctx, receipts(got[:3]))
			require.NoError(t, err)
			other := b.consume(commands.ConsumeRequest{Queue: "q", Prefetch: 100, Consumer: "second"})
			c.Close()
			c.Close()
			again := next(t, other)
			require.Equal(t, payloads(got[3:]), payloads(again))
			for _, d := range again {
				require.Equal(t, 1, d.Attempt)
			}
			require.Equal(t, []string{"first"}, texts(t, b.pool, `select distinct actor from leat.events where kind = 'message.released'`))
			result, err := other.Ack(ctx, receipts(got[3:]))
			require.NoError(t, err)
			require.Len(t, result.Failed, 7, "the old receipts")
			b.verify()
		})
	}
}

// A consumer that goes while messages come leaves none behind.
func TestConsumersComeAndGo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{Lease: new(time.Hour)})
	for i := range 60 {
		c := b.consume(commands.ConsumeRequest{Queue: "q", Prefetch: 1 + i%5})
		gone, cancel := context.WithTimeout(ctx, time.Duration(i%20)*200*time.Microsecond)
		go b.publishTexts("q", "", "x")
		_, err := c.Next(gone, patience)
		if err != nil {
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		c.Close()
		cancel()
	}
	b.waitStates("q", "ready:60")
	require.Equal(t, []string{"0"}, texts(t, b.pool, `select max(attempts)::text from leat.queue_messages`))
	b.verify()
}

// A queue that is deleted ends its consumers, also when there is another one of
// the name by then.
func TestConsumerOfDeletedQueue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	c := b.consume(commands.ConsumeRequest{Queue: "q", Prefetch: 10})
	nothing(t, c)
	require.NoError(t, b.DeleteChannel(ctx, "", "q", true))
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	_, err := c.Next(ctx, patience)
	require.Equal(t, eventstore.ChannelNotFound, refusal(t, err).Code)
	c.Close()
	b.publishTexts("q", "", "x")
	require.Len(t, next(t, b.consume(commands.ConsumeRequest{Queue: "q", Prefetch: 10})), 1)
}

// While the views are lost a consumer is told once, and then goes on by itself.
func TestConsumerOutlastsLostViews(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	c := b.consume(commands.ConsumeRequest{Queue: "q", Prefetch: 10})
	nothing(t, c)
	exec(t, b.pool, `select leat.lose_views()`)
	_, err := c.Next(ctx, patience)
	require.Equal(t, eventstore.ViewsRebuilding, refusal(t, err).Code)
	b.publishTexts("q", "", "x")
	quiet, err := c.Next(ctx, 600*time.Millisecond)
	require.NoError(t, err)
	require.Empty(t, quiet)
	exec(t, b.pool, `select leat.rebuild_views()`)
	require.Len(t, next(t, c), 1)
}

// A stop ends consumers, waits until they are closed, and their messages are ready.
func TestStopReleasesConsumers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{Lease: new(time.Hour)})
	b.publishTexts("q", "", numbered(50)...)
	for range 5 {
		c := b.consume(commands.ConsumeRequest{Queue: "q", Prefetch: 10})
		require.Len(t, next(t, c), 10)
		go func() {
			defer c.Close()
			_, err := c.Next(ctx, patience)
			assert.ErrorIs(t, err, &eventstore.Error{Code: eventstore.ShuttingDown})
		}()
	}
	b.stop()
	require.Equal(t, "ready:50", b.states("q"))
	b.verify()
	_, err := b.Consume(ctx, commands.ConsumeRequest{Queue: "q", Prefetch: 10})
	require.Equal(t, eventstore.ShuttingDown, refusal(t, err).Code)
}

// Two brokers: what one's consumer leaves goes to the other's.
func TestConsumersOfTwoBrokers(t *testing.T) {
	t.Parallel()
	a := setup(t)
	b := serve(t, a.pool, commands.Config{})
	a.declare("q", commands.Standard, commands.PolicyPatch{Lease: new(time.Hour)})
	a.publishTexts("q", "", numbered(10)...)
	first := a.consume(commands.ConsumeRequest{Queue: "q", Prefetch: 10})
	require.Len(t, next(t, first), 10)
	second := b.consume(commands.ConsumeRequest{Queue: "q", Prefetch: 10})
	nothing(t, second)
	first.Close()
	require.Len(t, next(t, second), 10, "after a second, though nobody tells")
}
