package commands_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"leat/commands"
	"leat/eventstore"
)

// settlers are all the commands that take receipts.
func (b broker) settlers() map[string]func(commands.SettleRequest) (commands.SettleResult, error) {
	nack := func(action string) func(commands.SettleRequest) (commands.SettleResult, error) {
		return func(req commands.SettleRequest) (commands.SettleResult, error) {
			return b.Nack(ctx, commands.NackRequest{SettleRequest: req, Action: action})
		}
	}
	return map[string]func(commands.SettleRequest) (commands.SettleResult, error){
		"ack":        func(req commands.SettleRequest) (commands.SettleResult, error) { return b.Ack(ctx, req) },
		"retry":      nack(commands.RetryAction),
		"deadLetter": nack(commands.DeadLetterAction),
		"discard":    nack(commands.DiscardAction),
		"release":    func(req commands.SettleRequest) (commands.SettleResult, error) { return b.Release(ctx, req) },
		"extend": func(req commands.SettleRequest) (commands.SettleResult, error) {
			res, _, err := b.Extend(ctx, commands.ExtendRequest{SettleRequest: req})
			return res, err
		},
	}
}

func TestG8BadReceipts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	b.publishTexts("q", "", "x")
	good := b.poll(commands.PollRequest{Queue: "q"})[0]
	cases := map[string]struct {
		req   commands.SettleRequest
		code  eventstore.Code
		index int
	}{
		"none":          {commands.SettleRequest{Queue: "q"}, eventstore.BatchEmpty, -1},
		"10,001":        {commands.SettleRequest{Queue: "q", Receipts: make([]string, 10_001)}, eventstore.BatchTooLarge, -1},
		"no such queue": {settle("nope", good), eventstore.ChannelNotFound, -1},
		"bad actor":     {commands.SettleRequest{Queue: "q", Actor: "\x00", Receipts: []string{good.Receipt.String()}}, eventstore.InvalidField, -1},
	}
	for _, text := range []string{
		"", ":", "1", "1:", ":1", "a:b", "0:1", "1:0", "-1:1", "+1:1", "01:1", " 1:1", "1:1 ", "1:2:3",
		"9223372036854775808:1", "1:99999999999999999999999999", "1:1\x00", "１:1",
	} {
		req := commands.SettleRequest{Queue: "q", Receipts: []string{good.Receipt.String(), text}}
		cases["receipt "+text] = struct {
			req   commands.SettleRequest
			code  eventstore.Code
			index int
		}{req, eventstore.ReceiptMalformed, 1}
	}
	for name, c := range cases {
		for command, settle := range b.settlers() {
			_, err := settle(c.req)
			e := refusal(t, err)
			require.Equal(t, c.code, e.Code, "%s: %s", command, name)
			require.Equal(t, c.index, e.Index, "%s: %s", command, name)
		}
	}
	require.Equal(t, "in_flight:1", b.states("q"), "nothing was settled")

	huge := commands.SettleRequest{Queue: "q", Receipts: []string{"9223372036854775807:9223372036854775807"}}
	for command, settle := range b.settlers() {
		res, err := settle(huge)
		require.NoError(t, err, command)
		require.Equal(t, eventstore.ReceiptUnknown, res.Failed[0].Code, command)
	}
}

func TestG8BadNacks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	b.publishTexts("q", "", "x")
	req := settle("q", b.poll(commands.PollRequest{Queue: "q"})...)
	for field, nack := range map[string]commands.NackRequest{
		"action":     {SettleRequest: req, Action: "requeue"},
		"delay":      {SettleRequest: req, Delay: new(-time.Second)},
		"reason":     {SettleRequest: req, Reason: string(make([]byte, 10))},
		"errorClass": {SettleRequest: req, ErrorClass: string(slices.Repeat([]byte("x"), 256))},
	} {
		_, err := b.Nack(ctx, nack)
		require.Equal(t, field, refusal(t, err).Field)
	}
	_, err := b.Nack(ctx, commands.NackRequest{SettleRequest: req, Action: commands.DiscardAction, Delay: new(time.Second)})
	require.Equal(t, "delay", refusal(t, err).Field)
	_, _, err = b.Extend(ctx, commands.ExtendRequest{SettleRequest: req, Lease: 25 * time.Hour})
	require.Equal(t, "lease", refusal(t, err).Field)
	require.Equal(t, "in_flight:1", b.states("q"))
}

// G3: a settlement holds once; the same again is idempotent, another is refused.
func TestG3SettlementsOnce(t *testing.T) {
	t.Parallel()
	same := map[string][]string{ // what may be repeated after what
		"ack": {"ack"}, "retry": {"retry"}, "deadLetter": {"deadLetter", "retry", "discard"}, "discard": {"discard"}, "release": {"release"},
	}
	for _, mode := range []string{commands.Standard, commands.FIFO} {
		for first := range same {
			t.Run(mode+"/"+first, func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				b.declare("q", mode, commands.PolicyPatch{Retry: commands.RetryPatch{BaseDelay: new(time.Hour), MaxDelay: new(time.Hour)}})
				b.publishTexts("q", "k", "1", "2")
				got := b.poll(commands.PollRequest{Queue: "q", Max: 1})
				req := settle("q", got[0], got[0])
				res, err := b.settlers()[first](req)
				require.NoError(t, err)
				require.Equal(t, 1, res.Settled)
				require.Equal(t, 1, res.AlreadySettled, "twice in one request counts once")
				require.Positive(t, res.Position)
				before := b.states("q")
				for second, settle := range b.settlers() {
					res, err := settle(settleSome(got))
					require.NoError(t, err)
					require.Zero(t, res.Settled)
					if slices.Contains(same[first], second) {
						require.Equal(t, 1, res.AlreadySettled, second)
						require.Empty(t, res.Failed)
					} else {
						require.Len(t, res.Failed, 1, second)
						require.Equal(t, eventstore.AlreadySettled, res.Failed[0].Code, second)
						require.Equal(t, got[0].Receipt.String(), res.Failed[0].Receipt)
						require.NotEmpty(t, res.Failed[0].Message)
					}
				}
				require.Equal(t, before, b.states("q"))
				b.verify()
			})
		}
	}
}

// F8: the stale receipt of a previous holder changes nothing.
func TestF08StaleReceipt(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{commands.Standard, commands.FIFO} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.declare("q", mode, commands.PolicyPatch{Retry: commands.RetryPatch{BaseDelay: new(time.Duration(0))}})
			b.declare("other", mode, commands.PolicyPatch{})
			b.publishTexts("q", "k", "x")
			stale := b.poll(commands.PollRequest{Queue: "q", Lease: 100 * time.Millisecond, Consumer: "a"})
			fresh := b.receive("q", 1)
			require.Equal(t, 2, fresh[0].Attempt)
			for command, settle := range b.settlers() {
				res, err := settle(settleSome(stale))
				require.NoError(t, err, command)
				require.Zero(t, res.Settled, command)
				require.Equal(t, eventstore.LeaseLost, res.Failed[0].Code, command)

				res, err = settle(commands.SettleRequest{Queue: "other", Receipts: receipts(fresh)})
				require.NoError(t, err, command)
				require.Equal(t, eventstore.ReceiptUnknown, res.Failed[0].Code, command)

				forged := eventstore.Receipt{Delivery: fresh[0].Receipt.Delivery, Message: 1}
				res, err = settle(commands.SettleRequest{Queue: "q", Receipts: []string{forged.String()}})
				require.NoError(t, err, command)
				require.Equal(t, eventstore.ReceiptUnknown, res.Failed[0].Code, command)
				require.Equal(t, "in_flight:1", b.states("q"), command)
			}
			require.Equal(t, 1, b.ack("q", fresh...).Settled)
			require.Equal(t, 1, b.ack("q", fresh...).AlreadySettled)
		})
	}
}

// A lease that is over but not swept yet is over.
func TestF08ExpiredBeforeTheSweep(t *testing.T) {
	t.Parallel()
	running := setup(t)
	running.stop() // nothing sweeps
	b := running
	b.Broker = commands.New(commands.Config{Pool: running.pool})
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	b.publishTexts("q", "", "x")
	got := b.poll(commands.PollRequest{Queue: "q", Lease: 100 * time.Millisecond})
	var until time.Duration
	require.Eventually(t, func() bool {
		require.NoError(t, b.pool.QueryRow(ctx, `select $1 - clock_timestamp()`, got[0].LeaseUntil).Scan(&until))
		return until < 0
	}, patience, 5*time.Millisecond)
	for command, settle := range b.settlers() {
		res, err := settle(settleSome(got))
		require.NoError(t, err, command)
		require.Equal(t, eventstore.LeaseLost, res.Failed[0].Code, command)
	}
	require.Equal(t, "in_flight:1", b.states("q"))
}

// Concurrent acks share transactions; each gets its own answer.
func TestAcksShareTransactions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, q := range []string{"q0", "q1"} {
		b.declare(q, commands.Standard, commands.PolicyPatch{})
		b.publishTexts(q, "", numbered(300)...)
	}
	var wg sync.WaitGroup
	for i, d := range append(b.receive("q0", 300), b.receive("q1", 300)...) {
		wg.Go(func() {
			q := fmt.Sprint("q", i/300)
			req := settle(q, d)
			if i%3 == 0 {
				req.Receipts = append(req.Receipts, "77777777:1")
			}
			res, err := b.Ack(ctx, req)
			assert.NoError(t, err)
			assert.Equal(t, 1, res.Settled)
			assert.Len(t, res.Failed, len(req.Receipts)-1)
		})
	}
	wg.Wait()
	require.Empty(t, b.states("q0")+b.states("q1"))
	b.verify()
}

// An ack that somebody's open transaction holds up waits by itself: the others,
// and the polls that share transactions with them, go on.
func TestAHeldAckHoldsUpNobody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	b.publishTexts("q", "", "1", "2", "3")
	first, second := b.receive("q", 1), b.receive("q", 1)
	open := begin(t, b.pool, `select leat.ack('q', array['`+first[0].Receipt.String()+`'])`)
	held := make(chan commands.SettleResult, 1)
	go func() {
		res, err := b.Ack(ctx, settle("q", first...))
		assert.NoError(t, err)
		held <- res
	}()
	require.Eventually(t, func() bool {
		return texts(t, b.pool, `select count(*)::text from pg_stat_activity
			where datname = current_database() and wait_event_type = 'Lock' and query ~ 'commands.ack'`)[0] == "1"
	}, patience, 5*time.Millisecond)

	require.Equal(t, 1, b.ack("q", second...).Settled)
	require.Equal(t, 1, b.ack("q", b.receive("q", 1)...).Settled)
	require.Empty(t, held)
	require.NoError(t, open.Rollback(ctx))
	require.Equal(t, 1, (<-held).Settled)
	b.verify()
}

func TestNackRetryPolicy(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{
		MaxDeliveries: new(3),
		NonRetryable:  new([]string{"Fatal"}),
		Retry:         commands.RetryPatch{Strategy: new(commands.Fixed), BaseDelay: new(30 * time.Millisecond), Jitter: new(0.0)},
	})
	b.publishTexts("q", "", "x")
	for attempt := 1; attempt <= 3; attempt++ {
		got := b.receive("q", 1)
		require.Equal(t, attempt, got[0].Attempt)
		_, err := b.Nack(ctx, commands.NackRequest{SettleRequest: settle("q", got...), Reason: "boom"})
		require.NoError(t, err)
	}
	require.Equal(t, "dead:1", b.states("q"))
	require.Equal(t, []string{"retries_exhausted"}, texts(t, b.pool, `select reason from leat.dead_letters`))

	b.publishTexts("q", "", "y")
	_, err := b.Nack(ctx, commands.NackRequest{SettleRequest: settle("q", b.receive("q", 1)...), ErrorClass: "Fatal"})
	require.NoError(t, err)
	require.Equal(t, "dead:2", b.states("q"))

	b.publishTexts("q", "", "z")
	_, err = b.Nack(ctx, commands.NackRequest{SettleRequest: settle("q", b.receive("q", 1)...), Action: commands.DiscardAction})
	require.NoError(t, err)
	require.Equal(t, "dead:2", b.states("q"))
	b.verify()
}

// FS9: a retry with a delay, at the last attempt, is dead at once.
func TestFS9LastAttemptWithDelay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{MaxDeliveries: new(1)})
	b.publishTexts("q", "", "x")
	got := b.receive("q", 1)
	res, err := b.Nack(ctx, commands.NackRequest{SettleRequest: settle("q", got...), Delay: new(time.Hour)})
	require.NoError(t, err)
	require.Equal(t, 1, res.Settled)
	require.Equal(t, "dead:1", b.states("q"))
}

func TestReleaseCountsNoAttempt(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{commands.Standard, commands.FIFO} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.declare("q", mode, commands.PolicyPatch{MaxDeliveries: new(2)})
			b.publishTexts("q", "k", "1", "2", "3")
			for range 5 {
				got := b.receive("q", 3)
				require.Equal(t, []string{"1", "2", "3"}, payloads(got))
				require.Equal(t, 1, got[0].Attempt)
				res, err := b.Release(ctx, settle("q", got...))
				require.NoError(t, err)
				require.Equal(t, 3, res.Settled)
			}
			require.Equal(t, "ready:3", b.states("q"))
		})
	}
}

func TestExtend(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{Lease: new(time.Hour)})
	b.publishTexts("q", "", "x")
	got := b.poll(commands.PollRequest{Queue: "q", Lease: 500 * time.Millisecond})
	res, until, err := b.Extend(ctx, commands.ExtendRequest{SettleRequest: settle("q", got...)})
	require.NoError(t, err)
	require.Equal(t, 1, res.Settled)
	require.WithinRange(t, until, time.Now().Add(59*time.Minute), time.Now().Add(61*time.Minute))
	require.Empty(t, b.poll(commands.PollRequest{Queue: "q", Wait: time.Second}))

	_, _, err = b.Extend(ctx, commands.ExtendRequest{SettleRequest: settle("q", got...), Lease: 100 * time.Millisecond})
	require.NoError(t, err)
	again := b.receive("q", 1)
	require.Equal(t, 2, again[0].Attempt)
}

func TestPurge(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{commands.Standard, commands.FIFO} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.declare("q", mode, commands.PolicyPatch{})
			b.publishTexts("q", "k", "1", "2", "3")
			b.publish("q", commands.Message{RoutingKey: "later", Delay: time.Hour})
			held := b.poll(commands.PollRequest{Queue: "q", Max: 1})
			n, err := b.Purge(ctx, "q", "me")
			require.NoError(t, err)
			require.EqualValues(t, 3, n)
			require.Equal(t, "in_flight:1", b.states("q"))
			require.Equal(t, 1, b.ack("q", held...).Settled)
			b.publishTexts("q", "k", "4")
			require.Equal(t, []string{"4"}, payloads(b.poll(commands.PollRequest{Queue: "q"})))
			b.verify()
			_, err = b.Purge(ctx, "nope", "me")
			require.Equal(t, eventstore.ChannelNotFound, refusal(t, err).Code)
		})
	}
}
