package commands_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"leat/commands"
	"leat/eventstore"
)

// circuits is a broker with a FIFO queue f, whose circuits have this policy.
func circuits(t *testing.T, coolDown time.Duration, threshold int) broker {
	t.Helper()
	b := setup(t)
	b.declare("f", commands.FIFO, commands.PolicyPatch{Circuit: commands.CircuitPatch{CoolDown: &coolDown, Threshold: &threshold}})
	return b
}

// noCircuit lets a key go on when a message of it dies.
var noCircuit = commands.CircuitPatch{Enabled: new(false)}

// reject dead-letters deliveries of f.
func (b broker) reject(deliveries ...commands.Delivery) {
	b.t.Helper()
	b.nack(commands.DeadLetterAction, deliveries...)
}

func (b broker) nack(action string, deliveries ...commands.Delivery) {
	b.t.Helper()
	res, err := b.Nack(ctx, commands.NackRequest{SettleRequest: settle("f", deliveries...), Action: action})
	require.NoError(b.t, err)
	require.Equal(b.t, len(deliveries), res.Settled)
}

// take polls one message of a key, which must be there.
func (b broker) take(queue, key string) commands.Delivery {
	b.t.Helper()
	got := b.poll(commands.PollRequest{Queue: queue, Max: 1, RoutingKeys: []string{key}, Wait: 5 * time.Second})
	require.Len(b.t, got, 1)
	return got[0]
}

// nothing polls what must give nothing.
func (b broker) nothing() {
	b.t.Helper()
	require.Empty(b.t, b.poll(commands.PollRequest{Queue: "f", Max: 10}))
}

// circuit lists the circuits as "key state".
func (b broker) circuit() []string {
	b.t.Helper()
	return texts(b.t.(*testing.T), b.pool, `select routing_key || ' ' || state from leat.circuits order by 1`)
}

func (b broker) waitCircuit(want ...string) {
	b.t.Helper()
	require.Eventually(b.t, func() bool { return fmt.Sprint(b.circuit()) == fmt.Sprint(want) }, patience, 5*time.Millisecond,
		"want %v, have %v", want, lazy(func() string { return fmt.Sprint(b.circuit()) }))
}

// causes lists the dead letters by id, as "payload reason".
func (b broker) causes() []string {
	b.t.Helper()
	return texts(b.t.(*testing.T), b.pool, `
		select convert_from(e.payload, 'UTF8') || ' ' || d.reason
		from leat.dead_letters d join leat.events e on e.position = d.origin_message_id
		where d.queue = 'f' order by d.message_id`)
}

func (b broker) shut(key string, revive bool) commands.CircuitResult {
	b.t.Helper()
	res, err := b.CloseCircuit(ctx, commands.CircuitRequest{Queue: "f", RoutingKey: key, Actor: "operator"}, revive)
	require.NoError(b.t, err)
	return res
}

// drain takes and acks a key's messages one by one.
func (b broker) drain(queue, key string, n int) (order []string) {
	b.t.Helper()
	for range n {
		d := b.take(queue, key)
		order = append(order, string(d.Payload))
		b.ack(queue, d)
	}
	return order
}

// G5: the death of a message opens the circuit of its key in the same
// transaction, and the rest of the key dies with it; other keys and queues go on.
func TestG5OpensInTheSameTransaction(t *testing.T) {
	t.Parallel()
	b := circuits(t, 0, 1)
	b.declare("other", commands.FIFO, commands.PolicyPatch{})
	b.publishTexts("f", "k", "1", "2", "3")
	b.publishTexts("f", "good", "g")
	b.publishTexts("other", "k", "o")
	first := b.take("f", "k")

	tx, err := b.pool.Begin(ctx)
	require.NoError(t, err)
	_, err = b.NackTx(ctx, tx, commands.NackRequest{SettleRequest: settle("f", first), Action: commands.DeadLetterAction})
	require.NoError(t, err)
	require.Empty(t, b.circuit())
	require.Equal(t, "in_flight:1 ready:3", b.states("f"))
	require.NoError(t, tx.Rollback(ctx))
	require.Equal(t, "in_flight:1 ready:3", b.states("f"))

	b.reject(first)
	require.Equal(t, []string{"k open"}, b.circuit())
	require.Equal(t, []string{"1 rejected", "2 circuit_open", "3 circuit_open"}, b.causes())
	require.Equal(t, []string{"g"}, b.drain("f", "good", 1))
	require.Equal(t, []string{"o"}, b.drain("other", "k", 1))
	b.nothing()
	require.Equal(t, []string{fmt.Sprintf(`k {%d} {"reason": "rejected", "messages": 2}`, first.MessageID)},
		texts(t, b.pool, `select routing_key || ' ' || message_ids::text || ' ' || data from leat.events where kind = 'circuit.opened'`))
	b.verify()
}

// G5: closed with recovery, a key goes on in the order of its publishes; without,
// what is dead stays so.
func TestG5ClosedByHand(t *testing.T) {
	t.Parallel()
	for _, revive := range []bool{true, false} {
		t.Run(fmt.Sprint(revive), func(t *testing.T) {
			t.Parallel()
			b := circuits(t, 0, 1)
			b.publishTexts("f", "k", "1", "2", "3")
			b.publishTexts("f", "k", "4")
			b.reject(b.take("f", "k"))
			require.Equal(t, "dead:4", b.states("f"))
			want := commands.CircuitResult{Changed: true}
			if revive {
				want.Messages = 4
			}
			require.Equal(t, want, b.shut("k", revive))
			require.Equal(t, commands.CircuitResult{}, b.shut("k", revive), "again")
			b.publishTexts("f", "k", "5")
			require.Empty(t, b.circuit())
			if revive {
				require.Equal(t, []string{"1", "2", "3", "4", "5"}, b.drain("f", "k", 5))
			} else {
				require.Equal(t, []string{"5"}, b.drain("f", "k", 1))
				require.Equal(t, "dead:4", b.states("f"))
			}
			b.verify()
		})
	}
}

// G5: after the cool-down the first dead message is tried: if it is acked, the
// rest is recovered in order; if it dies, the circuit opens again.
func TestG5Probe(t *testing.T) {
	t.Parallel()
	b := circuits(t, 200*time.Millisecond, 1)
	b.publishTexts("f", "k", "1", "2", "3")
	b.reject(b.take("f", "k"))

	probe := b.take("f", "k")
	require.Equal(t, "1", string(probe.Payload))
	require.Equal(t, 1, probe.Attempt)
	require.Equal(t, []string{"k half_open"}, b.circuit())
	b.nothing()
	b.reject(probe)
	require.Equal(t, []string{"k open"}, b.circuit())
	require.Equal(t, "dead:3", b.states("f"))
	b.verify()

	probe = b.take("f", "k")
	b.nack(commands.RetryAction, probe) // it may be tried as often as any
	require.Equal(t, []string{"k half_open"}, b.circuit())
	b.verify()
	probe = b.take("f", "k")
	require.Equal(t, 2, probe.Attempt)
	b.ack("f", probe)
	b.waitCircuit()
	require.Equal(t, []string{"2", "3"}, b.drain("f", "k", 2))
	require.Equal(t, []string{
		`circuit.opened {"reason": "rejected", "messages": 2}`, `circuit.half_opened {"messages": 1}`,
		`circuit.opened {"reason": "rejected", "messages": 0}`, `circuit.half_opened {"messages": 1}`,
		`circuit.closed {"by": "probe", "messages": 2}`,
	}, texts(t, b.pool, `select kind || ' ' || data from leat.events where kind::text like 'circuit.%' order by position`))
	b.verify()
}

// G5: a probe that is discarded or purged says nothing: the next is tried. With
// none left, the circuit closes.
func TestG5ProbeGone(t *testing.T) {
	t.Parallel()
	b := circuits(t, 100*time.Millisecond, 1)
	b.publishTexts("f", "k", "1", "2", "3")
	b.reject(b.take("f", "k"))
	b.nack(commands.DiscardAction, b.take("f", "k"))
	b.waitStates("f", "dead:1 ready:1")
	n, err := b.Purge(ctx, "f", "test")
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	b.nack(commands.DiscardAction, b.take("f", "k"))
	b.waitCircuit()
	require.Empty(t, b.states("f"))
	b.verify()
}

// G1, G5: dead letters that somebody is about to redrive or to purge are not his and the
// circuit's both: neither one that would be tried next, nor those that come with a
// closing. Other keys do not wait for him.
func TestG1G5DeadLettersInOtherHands(t *testing.T) {
	t.Parallel()
	b := circuits(t, 50*time.Millisecond, 1)
	b.declare("to", commands.Standard, commands.PolicyPatch{})
	var ids []eventstore.MessageID
	for _, payload := range numbered(9) {
		ids = append(ids, b.publish("f", keyed("k", payload)...)...)
	}
	b.publish("f", keyed("other", "1", "2")...)
	held, err := b.pool.Begin(ctx)
	require.NoError(t, err)
	redrive := func(tx pgx.Tx, ids ...eventstore.MessageID) {
		t.Helper()
		res, err := b.RecoverTx(ctx, tx, commands.RecoverRequest{DeadLetters: commands.DeadLetters{Queue: "f", IDs: ids}, To: "to"})
		require.NoError(t, err)
		require.EqualValues(t, len(ids), res.Done)
	}
	again := func() pgx.Tx {
		t.Helper()
		require.NoError(t, held.Commit(ctx))
		held, err = b.pool.Begin(ctx)
		require.NoError(t, err)
		return held
	}

	exec(t, b.pool, `update leat.channels set circuit_cool_down = '1 hour' where name = 'f'`)
	b.reject(b.take("f", "k"))
	redrive(held, ids[0])
	exec(t, b.pool, `update leat.circuits set probe_at = clock_timestamp()`)
	exec(t, b.pool, `update leat.channels set circuit_cool_down = '50 ms' where name = 'f'`)
	b.reject(b.take("f", "other"))
	b.ack("f", b.take("f", "other"))
	require.Equal(t, "2", string(b.take("f", "other").Payload), "another key has closed")
	redrive(again(), ids[8])

	probe := b.take("f", "k")
	require.Equal(t, ids[1], probe.MessageID)
	redrive(held, ids[4], ids[6])
	b.ack("f", probe)
	exec(t, b.pool, `select leat.sweep(null)`)
	require.Equal(t, []string{"k closing"}, b.circuit())
	again()
	b.waitCircuit()
	require.Equal(t, []string{"2", "3", "5", "7"}, b.drain("f", "k", 4))
	require.Equal(t, "in_flight:1", b.states("f"))
	require.Equal(t, "ready:4", b.states("to"))
	require.NoError(t, held.Rollback(ctx))
	b.verify()
}

// G1, G5: what was recovered alone and left without an ack was no probe: a circuit that
// was opened by hand goes on waiting for a hand, in the log too, and forgets it.
func TestG1G5RecoveredAloneIsNoProbe(t *testing.T) {
	t.Parallel()
	b := circuits(t, 50*time.Millisecond, 1)
	ids := b.publish("f", keyed("k", "1", "2", "3", "4")...)
	_, err := b.OpenCircuit(ctx, commands.CircuitRequest{Queue: "f", RoutingKey: "k"})
	require.NoError(t, err)
	exec(t, b.pool, `select leat.recover('f', $1)`, ids[:2])
	b.nack(commands.DiscardAction, b.take("f", "k"))
	n, err := b.Purge(ctx, "f", "test")
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	exec(t, b.pool, `select leat.recover('f', $1, ttl => '1 ms')`, ids[2:3])
	b.waitStates("f", "dead:1")
	b.verify()
	require.Equal(t, []string{"open {}"}, texts(t, b.pool, `select state || ' ' || admitted::text from leat.circuits where probe_at is null`))
	exec(t, b.pool, `select leat.lose_views()`)
	exec(t, b.pool, `select leat.rebuild_views()`)
	require.Equal(t, []string{"k open"}, b.circuit())
	b.verify()
}

// G1, G5: so too where the message that opened the circuit left so.
func TestG1G5CulpritDiscarded(t *testing.T) {
	t.Parallel()
	b := circuits(t, time.Hour, 1)
	ids := b.publish("f", keyed("k", "1", "2")...)
	b.reject(b.take("f", "k"))
	exec(t, b.pool, `select leat.recover('f', $1)`, ids[:1])
	b.nack(commands.DiscardAction, b.take("f", "k"))
	b.verify()
	require.Equal(t, []string{"k open"}, b.circuit())
}

// G5: a threshold counts deaths of a key that no ack comes between.
func TestG5Threshold(t *testing.T) {
	t.Parallel()
	b := circuits(t, 0, 2)
	b.publishTexts("f", "k", numbered(6)...)
	b.publishTexts("f", "other", "x")
	b.reject(b.take("f", "other"))
	b.reject(b.take("f", "k"))
	b.ack("f", b.take("f", "k"))
	b.reject(b.take("f", "k"))
	require.Equal(t, []string{"k closed", "other closed"}, b.circuit())
	b.reject(b.take("f", "k"))
	require.Equal(t, []string{"k open", "other closed"}, b.circuit())
	require.Equal(t, []string{"x rejected", "0 rejected", "2 rejected", "3 rejected", "4 circuit_open", "5 circuit_open"},
		sorted(b.causes(), "x"))
	require.Equal(t, commands.CircuitResult{}, b.shut("other", true))
	require.Equal(t, []string{"k open"}, b.circuit())
	b.verify()
}

// sorted puts the line that begins so first.
func sorted(lines []string, first string) []string {
	for i, line := range lines {
		if line[:1] == first {
			return append([]string{line}, append(append([]string{}, lines[:i]...), lines[i+1:]...)...)
		}
	}
	return lines
}

// G5: what comes back while the circuit is open, by a retry, a release or the end
// of its lease, goes to the dead letters; an ack is an ack.
func TestG5InFlightWhenItOpens(t *testing.T) {
	t.Parallel()
	b := circuits(t, 0, 1)
	b.publishTexts("f", "k", numbered(8)...)
	got := b.poll(commands.PollRequest{Queue: "f", Max: 6, Lease: 2 * time.Second})
	require.Len(t, got, 6)
	b.reject(got[0])
	require.Equal(t, "dead:3 in_flight:5", b.states("f"))
	b.ack("f", got[1])
	b.nack(commands.RetryAction, got[2])
	res, err := b.Release(ctx, settle("f", got[3]))
	require.NoError(t, err)
	require.Equal(t, 1, res.Settled)
	b.reject(got[4])
	require.Equal(t, "dead:6 in_flight:1", b.states("f"))
	b.verify()
	b.waitStates("f", "dead:7")
	require.Equal(t, []string{
		"0 rejected", "2 circuit_open", "3 circuit_open", "4 rejected", "5 circuit_open", "6 circuit_open", "7 circuit_open",
	}, b.causes())
	require.Equal(t, []string{"1", "1", "0", "1", "1", "0", "0"},
		texts(t, b.pool, `select attempts::text from leat.dead_letters order by message_id`))
	b.nothing()
	b.verify()
	require.EqualValues(t, 7, b.shut("k", true).Messages)
	require.Equal(t, []string{"0", "2", "3", "4", "5", "6", "7"}, b.drain("f", "k", 7))
	b.verify()
}

// G5: a publish that is open while the circuit opens holds nobody up, and what it
// leaves goes to the dead letters without being delivered.
func TestG5OpenPublishWhileItOpens(t *testing.T) {
	t.Parallel()
	b := circuits(t, 0, 1)
	b.publishTexts("f", "k", "1")
	for _, commit := range []bool{true, false} {
		publishing, err := b.pool.Begin(ctx)
		require.NoError(t, err)
		_, err = publishing.Exec(ctx, `select leat.publish('f', 'late', 'k')`)
		require.NoError(t, err)
		b.reject(b.take("f", "k"))
		require.Equal(t, []string{"true"}, texts(t, b.pool, `select straggling::text from leat.circuits`))
		_, err = b.CloseCircuit(ctx, commands.CircuitRequest{Queue: "f", RoutingKey: "k"}, true)
		require.Equal(t, eventstore.Busy, refusal(t, err).Code)
		if !commit {
			require.NoError(t, publishing.Rollback(ctx))
			b.waitNoStragglers()
			require.Equal(t, "dead:2", b.states("f"))
			break
		}
		require.NoError(t, publishing.Commit(ctx))
		b.nothing()
		b.waitStates("f", "dead:2")
		require.Equal(t, []string{"1 rejected", "late circuit_open"}, b.causes())
		b.waitNoStragglers()
		b.verify()
		require.EqualValues(t, 2, b.shut("k", true).Messages)
	}
	b.verify()
}

func (b broker) waitNoStragglers() {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		return len(texts(b.t.(*testing.T), b.pool, `select 'x' from leat.circuits where straggling`)) == 0
	}, patience, 5*time.Millisecond)
}

// G5: messages that a snapshot from before the opening hides come out later, and
// are not delivered either.
func TestG5OldSnapshotPublishes(t *testing.T) {
	t.Parallel()
	b := circuits(t, 0, 1)
	b.publishTexts("f", "k", "1")
	old, err := b.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	_, err = old.Exec(ctx, `select 1 from leat.events limit 1`)
	require.NoError(t, err)
	b.reject(b.take("f", "k"))
	_, err = old.Exec(ctx, `select leat.publish('f', 'late', 'k')`)
	require.NoError(t, err)
	require.NoError(t, old.Commit(ctx))
	b.nothing()
	b.waitStates("f", "dead:2")
	b.verify()
}

// G4, G5: a snapshot from before the closing shows an open circuit, and who publishes
// behind it would put his message out of its order. He is told to begin again.
func TestG5OldSnapshotPublishesAfterItClosed(t *testing.T) {
	t.Parallel()
	b := circuits(t, 0, 1)
	b.publishTexts("f", "k", "1")
	b.reject(b.take("f", "k"))
	for _, isolation := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		publish := func() error {
			old, err := b.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: isolation})
			require.NoError(t, err)
			defer func() { require.NoError(t, old.Rollback(ctx)) }()
			_, err = old.Exec(ctx, `select 1 from leat.events limit 1`)
			require.NoError(t, err)
			if b.circuit() != nil {
				b.shut("k", false)
			}
			_, err = old.Exec(ctx, `select leat.publish('f', 'late', 'k')`)
			return err
		}
		err := publish()
		failed, ok := errors.AsType[*pgconn.PgError](err)
		require.True(t, ok, "%v", err)
		require.Equal(t, "40001", failed.Code)
		require.NoError(t, publish())
		b.publishTexts("f", "k", "next")
		b.reject(b.take("f", "k"))
	}
	b.verify()
}

// G5: an old snapshot that is right about an open circuit may publish, and holds up
// nobody who settles.
func TestG5OldSnapshotOfAnOpenCircuit(t *testing.T) {
	t.Parallel()
	b := circuits(t, 0, 1)
	ids := b.publish("f", keyed("k", "1", "2")...)
	b.reject(b.take("f", "k"))
	exec(t, b.pool, `select leat.recover('f', $1)`, ids[1:])
	old, err := b.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	_, err = old.Exec(ctx, `select leat.publish('f', '3', 'k')`)
	require.NoError(t, err)
	b.ack("f", b.take("f", "k"))
	require.NoError(t, old.Commit(ctx))
	require.Equal(t, "dead:2", b.states("f"))
	b.verify()
}

// G5: by hand a circuit opens without a death, for keys of all sorts.
func TestG5OpenedByHand(t *testing.T) {
	t.Parallel()
	b := circuits(t, 50*time.Millisecond, 1)
	for _, key := range []string{"", "a/b c%2F?", "ключ"} {
		b.publishTexts("f", key, "1", "2")
		req := commands.CircuitRequest{Queue: "f", RoutingKey: key, Actor: "operator"}
		res, err := b.OpenCircuit(ctx, req)
		require.NoError(t, err)
		require.Equal(t, commands.CircuitResult{Changed: true, Messages: 2}, res)
		res, err = b.OpenCircuit(ctx, req)
		require.NoError(t, err)
		require.Equal(t, commands.CircuitResult{}, res)
		b.nothing()
		require.EqualValues(t, 2, b.shut(key, true).Messages)
		require.Equal(t, []string{"1", "2"}, b.drain("f", key, 2))
	}
	_, err := b.OpenCircuit(ctx, commands.CircuitRequest{Queue: "f", RoutingKey: "new"})
	require.NoError(t, err)
	require.Equal(t, []string{"new open"}, b.circuit())
	require.Empty(t, texts(t, b.pool, `select l::text from leat.lanes l`))
	b.verify()

	b.declare("s", commands.Standard, commands.PolicyPatch{})
	for _, bad := range []struct {
		req   commands.CircuitRequest
		code  eventstore.Code
		field string
	}{
		{commands.CircuitRequest{Queue: "s"}, eventstore.InvalidField, "name"},
		{commands.CircuitRequest{Queue: "nope"}, eventstore.ChannelNotFound, ""},
		{commands.CircuitRequest{Queue: "f", RoutingKey: "\x00"}, eventstore.InvalidField, "routingKey"},
	} {
		_, err := b.OpenCircuit(ctx, bad.req)
		require.Equal(t, bad.code, refusal(t, err).Code)
		require.Equal(t, bad.field, refusal(t, err).Field)
		_, err = b.CloseCircuit(ctx, bad.req, true)
		require.Equal(t, bad.code, refusal(t, err).Code)
	}
}

// G5: with the circuit off, a death is one message's own business.
func TestG5Off(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("f", commands.FIFO, commands.PolicyPatch{Circuit: noCircuit})
	b.publishTexts("f", "k", "1", "2")
	b.reject(b.take("f", "k"))
	require.Equal(t, []string{"2"}, b.drain("f", "k", 1))
	require.Empty(t, b.circuit())
}

// G5: what is recovered alone goes its own way while the circuit stays open, and
// when that closes the others come in their order, whatever was taken from among them.
func TestG5RecoveredAlone(t *testing.T) {
	t.Parallel()
	b := circuits(t, 0, 1)
	ids := b.publish("f", keyed("k", numbered(9)...)...)
	b.reject(b.take("f", "k"))
	exec(t, b.pool, `select leat.recover('f', $1)`, []eventstore.MessageID{ids[3], ids[5], ids[7]})
	b.ack("f", b.take("f", "k"))
	b.reject(b.take("f", "k"))
	last := b.take("f", "k")
	require.Equal(t, "7", string(last.Payload))
	b.nothing()
	require.Equal(t, []string{"k open"}, b.circuit())
	require.Equal(t, "dead:7 in_flight:1", b.states("f"))
	res, err := b.Release(ctx, settle("f", last))
	require.NoError(t, err)
	require.Equal(t, 1, res.Settled)
	require.Equal(t, "dead:7 ready:1", b.states("f"), "it is let through again")
	b.verify()
	require.EqualValues(t, 7, b.shut("k", true).Messages)
	require.Equal(t, []string{"0", "1", "2", "4", "5", "6", "7", "8"}, b.drain("f", "k", 8))
	b.verify()
}

func keyed(key string, payloads ...string) []commands.Message {
	messages := make([]commands.Message, len(payloads))
	for i, p := range payloads {
		messages[i] = commands.Message{RoutingKey: key, Payload: []byte(p)}
	}
	return messages
}

// G1, G5: the log tells which circuits are open, and a rebuild opens them again.
func TestG1G5CircuitsFromTheLog(t *testing.T) {
	t.Parallel()
	b := circuits(t, 300*time.Millisecond, 1)
	b.publishTexts("f", "probed", "1", "2")
	b.reject(b.take("f", "probed"))
	probe := b.take("f", "probed")
	exec(t, b.pool, `select leat.open_circuit('f', 'held')`)
	exec(t, b.pool, `select leat.open_circuit('f', 'closed')`)
	exec(t, b.pool, `select leat.close_circuit('f', 'closed')`)
	b.verify()
	before := texts(t, b.pool, `select row(routing_key, state, message_id, reason, opened_at, changed_at, admitted)::text from leat.circuits order by 1`)
	exec(t, b.pool, `delete from leat.circuits where routing_key in ('probed', 'held')`)
	exec(t, b.pool, `insert into leat.circuits select channel_id, 'closed', state, 0, null, null, now(), now() from leat.fold_circuits() limit 1`)
	require.Len(t, texts(t, b.pool, `select v::text from leat.verify_views() v`), 3)
	exec(t, b.pool, `select leat.lose_views()`)
	exec(t, b.pool, `select leat.rebuild_views()`)
	b.verify()
	require.Equal(t, before, texts(t, b.pool, `select row(routing_key, state, message_id, reason, opened_at, changed_at, admitted)::text from leat.circuits order by 1`))
	b.ack("f", probe)
	b.waitCircuit("held open")
	require.Equal(t, []string{"2"}, b.drain("f", "probed", 1))
	b.verify()
}
