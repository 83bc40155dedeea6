package commands_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"leat/commands"
	"leat/eventstore"
)

// F2: leases that are over are found behind any number that are not.
func TestF02ShortLeasesBehindLongOnes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, q := range []string{"long", "short"} {
		b.declare(q, commands.Standard, commands.PolicyPatch{Retry: commands.RetryPatch{BaseDelay: new(time.Duration(0))}})
	}
	const many = 2000
	messages := make([]commands.Message, many)
	for i := range messages {
		messages[i].RoutingKey = fmt.Sprint(i) // a run each
	}
	b.publish("long", messages...)
	held := 0
	for held < many {
		held += len(b.poll(commands.PollRequest{Queue: "long", Max: 1000, Lease: 24 * time.Hour}))
	}
	b.publishTexts("short", "", numbered(10)...)
	require.Len(t, b.poll(commands.PollRequest{Queue: "short", Lease: time.Second}), 10)
	for _, d := range b.receive("short", 10) {
		require.Equal(t, 2, d.Attempt)
	}
	require.Equal(t, fmt.Sprint("in_flight:", many), b.states("long"))
}

// F3, G5: the connection of a nack at the last attempt is lost: the lease ends, the
// message is dead, and its circuit opens or, where it is off, the key goes on.
func TestF03G5ConnectionLostAtNack(t *testing.T) {
	t.Parallel()
	for _, circuit := range []bool{true, false} {
		t.Run(fmt.Sprint(circuit), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.declare("f", commands.FIFO, commands.PolicyPatch{MaxDeliveries: new(1), Circuit: commands.CircuitPatch{Enabled: &circuit}})
			loseConnectionAtNack(t, b)
			if circuit {
				b.waitStates("f", "dead:3")
				require.Equal(t, []string{"1 retries_exhausted", "2 circuit_open", "3 circuit_open"}, b.causes())
				require.Equal(t, []string{"k open"}, b.circuit())
				require.EqualValues(t, 3, b.shut("k", true).Messages)
				require.Equal(t, []string{"1", "2", "3"}, b.drain("f", "k", 3))
			} else {
				require.Equal(t, []string{"2", "3"}, payloads(b.receive("f", 2)))
				require.Equal(t, "dead:1 in_flight:2", b.states("f"))
				require.Equal(t, []string{"1 retries_exhausted"}, b.causes())
			}
			b.verify()
		})
	}
}

func loseConnectionAtNack(t *testing.T, b broker) {
	t.Helper()
	b.publishTexts("f", "k", "1", "2", "3")
	first := b.poll(commands.PollRequest{Queue: "f", Max: 1, Lease: 2 * time.Second})

	nacking, err := b.pool.Begin(ctx)
	require.NoError(t, err)
	res, err := b.NackTx(ctx, nacking, commands.NackRequest{SettleRequest: settle("f", first...)})
	require.NoError(t, err)
	require.Equal(t, 1, res.Settled)
	exec(t, b.pool, `select pg_terminate_backend($1)`, nacking.Conn().PgConn().PID())
	require.Error(t, nacking.Commit(ctx))
}

// F5: no key, number of keys or payload makes a publish fail because of NOTIFY,
// through the broker or through SQL.
func TestF05PublishAndNotify(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, mode := range []string{commands.Standard, commands.FIFO} {
		b.declare(mode, mode, commands.PolicyPatch{})
		messages := make([]commands.Message, 1000)
		for i := range messages {
			messages[i].RoutingKey = fmt.Sprintf("%03d", i) + strings.Repeat("🔑", 63) // 255 bytes
		}
		messages[0].Payload = make([]byte, 1<<20)
		b.publish(mode, messages...)
		exec(t, b.pool, `
			select leat.publish_batch($1, array_agg('x'::bytea), array_agg(lpad(n::text, 3, '0') || repeat('🔑', 63)))
			from generate_series(0, 999) n`, mode)
		exec(t, b.pool, `select leat.publish($1, convert_to(repeat('x', 1048576), 'UTF8'))`, mode)
		for _, n := range []int{1000, 1000, 1} {
			require.Len(t, b.receive(mode, n), n)
		}
	}
}

// F11: messages that are nacked at once come back ever later, die after their
// attempts, and leave one event per settlement in the log.
func TestF11NackStorm(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const messages, attempts = 1000, 3
	b.declare("q", commands.Standard, commands.PolicyPatch{
		MaxDeliveries: new(attempts),
		Retry:         commands.RetryPatch{BaseDelay: new(20 * time.Millisecond), MaxDelay: new(50 * time.Millisecond)},
	})
	b.declare("calm", commands.Standard, commands.PolicyPatch{})
	b.publishTexts("q", "", numbered(messages)...)
	var (
		wg     sync.WaitGroup
		nacks  atomic.Int64
		nacked atomic.Int64
	)
	for range 4 {
		wg.Go(func() {
			deadline := time.Now().Add(forgiving)
			for nacked.Load() < messages*attempts && assert.True(t, time.Now().Before(deadline)) {
				got, err := b.Poll(ctx, commands.PollRequest{Queue: "q", Max: 50, Wait: 100 * time.Millisecond})
				if !assert.NoError(t, err) || len(got) == 0 {
					continue
				}
				res, err := b.Nack(ctx, commands.NackRequest{SettleRequest: settle("q", got...), Reason: "no"})
				assert.NoError(t, err)
				nacks.Add(1)
				nacked.Add(int64(res.Settled))
			}
		})
	}
	for range 20 { // others are served meanwhile
		b.publishTexts("calm", "", "x")
		b.ack("calm", b.receive("calm", 1)...)
	}
	wg.Wait()
	require.Equal(t, fmt.Sprint("dead:", messages), b.states("q"))
	require.Equal(t, []string{"3 3"}, texts(t, b.pool, `select min(attempts) || ' ' || max(attempts) from leat.dead_letters where queue = 'q'`))
	var settlements int64
	require.NoError(t, b.pool.QueryRow(ctx, `
		select count(*) from leat.events e join leat.channels c on c.id = e.channel_id
		where c.name = 'q' and e.kind in ('message.retried', 'message.dead_lettered')`).Scan(&settlements))
	// One per nack and attempt count among its messages.
	require.LessOrEqual(t, settlements, attempts*nacks.Load())
	b.verify()
}

// F14: each message is due, and expires, at its own time, whatever is before it;
// in a FIFO queue a head that expires sets the key free. An expired message is
// not delivered even if nobody sweeps.
func TestF14OwnTimes(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{commands.Standard, commands.FIFO} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.declare("q", mode, commands.PolicyPatch{})
			b.publish("q", commands.Message{RoutingKey: "a", Payload: []byte("late"), Delay: time.Hour})
			b.publish("q", commands.Message{RoutingKey: "b", Payload: []byte("soon"), Delay: 500 * time.Millisecond})
			require.Equal(t, []string{"soon"}, payloads(b.receive("q", 1)))

			b.publish("q", commands.Message{RoutingKey: "c", Payload: []byte("stays"), TTL: time.Hour})
			b.publish("q", commands.Message{RoutingKey: "d", Payload: []byte("goes"), TTL: time.Second})
			b.publish("q", commands.Message{RoutingKey: "d", Payload: []byte("behind it")})
			b.waitStates("q", "delayed:1 in_flight:1 ready:2")
			require.Equal(t, []string{"stays", "behind it"}, payloads(b.receive("q", 2)))
			require.Equal(t, []string{"goes"}, texts(t, b.pool, `
				select convert_from(p.payload, 'UTF8') from leat.events e join leat.events p on p.position = any (e.message_ids)
				where e.kind = 'message.expired'`))
			b.verify()

			b.stop()
			b.Broker = commands.New(commands.Config{Pool: b.pool}) // nothing sweeps
			b.publish("q", commands.Message{RoutingKey: "e", Payload: []byte("gone"), TTL: 50 * time.Millisecond},
				commands.Message{RoutingKey: "e", Payload: []byte("next")})
			require.Eventually(t, func() bool {
				return texts(t, b.pool, `select bool_or(expires_at < clock_timestamp())::text from leat.queue_messages`)[0] == "true"
			}, patience, 10*time.Millisecond)
			require.Equal(t, []string{"next"}, payloads(b.receive("q", 1)))
		})
	}
}

// F17: within a FIFO key there is no priority, and none out of range anywhere.
func TestF17PriorityIsBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	b.declare("f", commands.FIFO, commands.PolicyPatch{})
	for queue, priorities := range map[string][]int{"q": {-1, 10, 1 << 31}, "f": {-1, 1, 9, 10}} {
		for _, p := range priorities {
			_, err := b.Publish(ctx, commands.PublishRequest{Channel: queue, Messages: []commands.Message{{Priority: p}}})
			e := refusal(t, err)
			require.Equal(t, eventstore.InvalidField, e.Code)
			require.Equal(t, "priority", e.Field)
		}
	}
	// A retry keeps its priority, and holds nobody up.
	b.publish("q", commands.Message{Payload: []byte("low")}, commands.Message{Payload: []byte("high"), Priority: 9})
	high := b.poll(commands.PollRequest{Queue: "q", Max: 1})
	_, err := b.Nack(ctx, commands.NackRequest{SettleRequest: settle("q", high...), Delay: new(time.Duration(0))})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		return texts(t, b.pool, `select count(*)::text from leat.queue_runs where state = 0`)[0] == "2"
	}, patience, 10*time.Millisecond)
	require.Equal(t, []string{"high", "low"}, payloads(b.receive("q", 2)))
}

// F24: rows that cannot be go to the dead letters at their next failure, and
// hold nobody up meanwhile.
func TestF24AttemptsBeyondTheLimit(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{commands.Standard, commands.FIFO} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			policy := commands.PolicyPatch{MaxDeliveries: new(5), Retry: commands.RetryPatch{BaseDelay: new(time.Duration(0))}}
			if mode == commands.FIFO {
				policy.Circuit = noCircuit
			}
			b.declare("q", mode, policy)
			for _, key := range []string{"bad", "worse", "good"} {
				b.publishTexts("q", key, key)
			}
			exec(t, b.pool, `update leat.queue_runs set deliveries = 5 where routing_key = 'bad'`)
			exec(t, b.pool, `update leat.queue_runs set deliveries = 2147483646 where routing_key = 'worse'`)
			got := b.receive("q", 3)
			_, err := b.Nack(ctx, commands.NackRequest{SettleRequest: settle("q", got...)})
			require.NoError(t, err)
			again := b.receive("q", 1)
			require.Equal(t, []string{"good"}, payloads(again))
			require.Equal(t, "dead:2 in_flight:1", b.states("q"))

			// The limit falls below what was used up.
			_, err = b.AlterChannel(ctx, "test", "q", commands.PolicyPatch{MaxDeliveries: new(1)})
			require.NoError(t, err)
			b.publishTexts("q", "good", "new")
			_, err = b.Nack(ctx, commands.NackRequest{SettleRequest: settle("q", again...)})
			require.NoError(t, err)
			require.Equal(t, []string{"new"}, payloads(b.receive("q", 1)))
			require.Equal(t, "dead:3 in_flight:1", b.states("q"))
		})
	}
}

// FS5: of a FIFO key one delivery is in flight at a time, however many ask.
func TestFS05OneAtATime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("f", commands.FIFO, commands.PolicyPatch{})
	const messages = 50
	b.publishTexts("f", "k", numbered(messages)...)
	var (
		wg             sync.WaitGroup
		handling, done atomic.Int32
	)
	for range 8 {
		wg.Go(func() {
			for deadline := time.Now().Add(forgiving); done.Load() < messages; {
				got, err := b.Poll(ctx, commands.PollRequest{Queue: "f", Max: 1, Wait: 100 * time.Millisecond})
				if !assert.NoError(t, err) || !assert.True(t, time.Now().Before(deadline)) {
					return
				}
				if len(got) == 0 {
					continue
				}
				assert.EqualValues(t, 1, handling.Add(1))
				assert.Equal(t, fmt.Sprint(done.Load()), string(got[0].Payload))
				done.Add(1)
				handling.Add(-1)
				_, err = b.Ack(ctx, settle("f", got...))
				assert.NoError(t, err)
			}
		})
	}
	wg.Wait()
	b.verify()
}
