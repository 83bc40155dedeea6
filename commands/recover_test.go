package commands_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"leat/commands"
	"leat/eventstore"
	"leat/migrations/dbtest"
)

// bury publishes messages under a key and makes dead letters of them.
func (b broker) bury(queue, key string, payloads ...string) []eventstore.MessageID {
	b.t.Helper()
	messages := make([]commands.Message, len(payloads))
	for i, p := range payloads {
		messages[i] = commands.Message{RoutingKey: key, Payload: []byte(p)}
	}
	ids := b.publish(queue, messages...)
	for left := len(ids); left > 0; {
		got := b.poll(commands.PollRequest{Queue: queue, RoutingKeys: []string{key}, Max: left, Wait: 5 * time.Second})
		_, err := b.Nack(ctx, commands.NackRequest{
			SettleRequest: settle(queue, got...), Action: commands.DeadLetterAction, Reason: "bad",
		})
		require.NoError(b.t, err)
		left -= len(got)
	}
	return ids
}

// withoutCircuit lets a key of q go on when a message of it dies.
func (b broker) withoutCircuit() {
	b.t.Helper()
	_, err := b.pool.Exec(ctx, `update leat.channels set circuit = false where name = 'q'`)
	require.NoError(b.t, err)
}

func byID(ids ...eventstore.MessageID) commands.RecoverRequest {
	return commands.RecoverRequest{DeadLetters: commands.DeadLetters{Queue: "q", Actor: "operator", IDs: ids}}
}

func everything() commands.RecoverRequest {
	return commands.RecoverRequest{DeadLetters: commands.DeadLetters{Queue: "q", Actor: "operator", All: true}}
}

func chosen(f commands.DeadLettersFilter) commands.RecoverRequest {
	return commands.RecoverRequest{DeadLetters: commands.DeadLetters{Queue: "q", Actor: "operator", Filter: &f}}
}

func (b broker) recover(req commands.RecoverRequest) commands.DeadLettersResult {
	b.t.Helper()
	res, err := b.Recover(ctx, req)
	require.NoError(b.t, err)
	return res
}

// failures are the codes of what failed.
func failures(r commands.DeadLettersResult) map[eventstore.MessageID]eventstore.Code {
	codes := map[eventstore.MessageID]eventstore.Code{}
	for _, f := range r.Failed {
		codes[f.ID] = f.Code
	}
	return codes
}

func modes(t *testing.T, run func(t *testing.T, b broker)) {
	t.Helper()
	for _, mode := range []string{commands.Standard, commands.FIFO} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.declare("q", mode, commands.PolicyPatch{})
			b.withoutCircuit()
			run(t, b)
		})
	}
}

// Every id is answered: recovered once, not dead, or not of this queue.
func TestRecoverByID(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, b broker) {
		b.declare("other", commands.Standard, commands.PolicyPatch{})
		dead := b.bury("q", "k", "1", "2", "3", "4", "5")
		elsewhere := b.bury("other", "k", "x")[0]
		ready := b.publish("q", commands.Message{Payload: []byte("6"), RoutingKey: "k"})[0]

		res := b.recover(byID(dead[1], dead[1], ready, elsewhere, 1<<40))
		require.EqualValues(t, 1, res.Done)
		require.Equal(t, map[eventstore.MessageID]eventstore.Code{
			ready: eventstore.MessageNotDead, elsewhere: eventstore.MessageNotFound, 1 << 40: eventstore.MessageNotFound,
		}, failures(res))
		require.Equal(t, "dead:4 ready:2", b.states("q"))
		require.Equal(t, "dead:1", b.states("other"))

		// Again it is not dead any more.
		again := b.recover(byID(dead[1], dead[3]))
		require.EqualValues(t, 1, again.Done)
		require.Equal(t, map[eventstore.MessageID]eventstore.Code{dead[1]: eventstore.MessageNotDead}, failures(again))

		got := b.receive("q", 3)
		require.Equal(t, []string{"2", "4", "6"}, payloads(got))
		require.Equal(t, []eventstore.MessageID{dead[1], dead[3], ready}, ids(got))
		require.Equal(t, 1, got[0].Attempt)
		b.ack("q", got...)
		require.EqualValues(t, 3, b.recover(everything()).Done)
		require.Equal(t, []string{"1", "3", "5"}, payloads(b.receive("q", 3)))
		b.verify()
	})
}

func ids(deliveries []commands.Delivery) []eventstore.MessageID {
	out := make([]eventstore.MessageID, len(deliveries))
	for i, d := range deliveries {
		out[i] = d.Receipt.Message
	}
	return out
}

// What was taken from the middle of a run is in order with the rest of it, when
// that is recovered later.
func TestG4RecoveredMessagesOfARunKeepTheirOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.FIFO, commands.PolicyPatch{})
	b.withoutCircuit()
	b.publishTexts("q", "k", numbered(7)...)
	b.kill("q")
	dead := b.dead()
	require.EqualValues(t, 2, b.recover(byID(dead[2], dead[4])).Done)
	require.EqualValues(t, 5, b.recover(everything()).Done)
	require.Equal(t, numbered(7), payloads(b.receive("q", 7)))
}

// kill makes dead letters of all that waits, whole runs as they are.
func (b broker) kill(queue string) {
	b.t.Helper()
	_, err := b.pool.Exec(ctx, `
		with gone as (
			update leat.queue_runs r
			set state = 3, reason = 'rejected', died_at = clock_timestamp()
			from leat.channels c
			where c.id = r.channel_id and c.name = $1 and r.state = 0
			returning r.channel_id
		)
		delete from leat.lanes l where l.channel_id in (select channel_id from gone)`, queue)
	require.NoError(b.t, err)
}

// dead lists the dead letters of q.
func (b broker) dead() []eventstore.MessageID {
	b.t.Helper()
	rows, err := b.pool.Query(ctx, `select message_id from leat.dead_letters where queue = 'q' order by 1`)
	require.NoError(b.t, err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[eventstore.MessageID])
	require.NoError(b.t, err)
	return list
}

// Recovered messages come before newer ones of their key, also those that wait
// for a retry; other keys do not notice.
func TestG4RecoveredMessagesComeFirst(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.FIFO, commands.PolicyPatch{})
	b.withoutCircuit()
	b.bury("q", "a", "1", "2")
	b.publishTexts("q", "a", "3", "4")
	b.publishTexts("q", "b", "5")

	held := b.poll(commands.PollRequest{Queue: "q", RoutingKeys: []string{"a"}})
	require.Equal(t, []string{"3", "4"}, payloads(held))
	b.recover(everything())
	require.Equal(t, []string{"5"}, payloads(b.poll(commands.PollRequest{Queue: "q"})), "a delivery of the key is in flight")
	b.releaseAll("q", held...)
	require.Equal(t, []string{"1", "2", "3", "4"}, payloads(b.poll(commands.PollRequest{Queue: "q", RoutingKeys: []string{"a"}})))
	b.verify()
}

func (b broker) releaseAll(queue string, deliveries ...commands.Delivery) {
	b.t.Helper()
	_, err := b.Release(ctx, settle(queue, deliveries...))
	require.NoError(b.t, err)
}

// A message that waits for its retry does not hold up an older one that is
// recovered, and does hold up a newer one.
func TestRecoverAroundARetry(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.FIFO, commands.PolicyPatch{})
	b.withoutCircuit()
	first := b.bury("q", "k", "1")
	b.publishTexts("q", "k", "2", "3")
	got := b.poll(commands.PollRequest{Queue: "q", Max: 1})
	delay := time.Hour
	_, err := b.Nack(ctx, commands.NackRequest{SettleRequest: settle("q", got...), Delay: &delay})
	require.NoError(t, err)

	b.recover(byID(first...))
	got = b.receive("q", 1)
	require.Equal(t, []string{"1"}, payloads(got))
	b.ack("q", got...)
	require.Empty(t, b.poll(commands.PollRequest{Queue: "q"}))
	b.verify()
}

func TestRecoverByFilter(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, b broker) {
		a := b.bury("q", "a", "1", "2", "3")
		bb := b.bury("q", "b", "4", "5")
		key := func(s string) *string { return &s }

		for _, f := range []commands.DeadLettersFilter{
			{RoutingKey: key("c")},
			{Reason: eventstore.TimeOver},
			{DiedAfter: time.Now().Add(time.Hour)},
			{DiedBefore: time.Now().Add(-time.Hour)},
			{FromID: bb[1] + 1},
			{ToID: a[0] - 1},
			{FromID: a[2] + 1, ToID: a[2]},
		} {
			res := b.recover(chosen(f))
			require.Zero(t, res.Done, "%+v", f)
			require.Zero(t, res.Remaining, "%+v", f)
		}
		require.EqualValues(t, 2, b.recover(chosen(commands.DeadLettersFilter{FromID: a[1], ToID: a[2]})).Done)
		require.Equal(t, []eventstore.MessageID{a[0], bb[0], bb[1]}, b.dead())
		require.EqualValues(t, 1, b.recover(chosen(commands.DeadLettersFilter{RoutingKey: key("a"), Reason: eventstore.Rejected})).Done)
		require.EqualValues(t, 2, b.recover(chosen(commands.DeadLettersFilter{DiedAfter: time.Now().Add(-time.Hour), DiedBefore: time.Now().Add(time.Hour)})).Done)
		require.Equal(t, "ready:5", b.states("q"))
		b.verify()
	})
}

// An empty recovery answers 0, and what comes after it works.
func TestEmptyRecoveryJamsNothing(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, b broker) {
		require.Zero(t, b.recover(everything()).Done)
		require.Zero(t, b.recover(byID(1)).Done)
		b.bury("q", "k", "1")
		require.EqualValues(t, 1, b.recover(everything()).Done)
		require.Zero(t, b.recover(everything()).Done)
		require.Len(t, b.receive("q", 1), 1)
		require.Empty(t, texts(t, b.pool, `select head_id::text from leat.lanes where in_flight = 0`))
		b.verify()
	})
}

// Of two recoveries at once each message is recovered by one.
func TestTwoRecoveriesAtOnce(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{commands.Standard, commands.FIFO} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			b := serve(t, dbtest.New(t), commands.Config{Limits: commands.Limits{DeadLetterPage: 50}})
			b.declare("q", mode, commands.PolicyPatch{})
			b.withoutCircuit()
			for k := range 10 {
				b.publishTexts("q", fmt.Sprint(k), numbered(100)...)
			}
			b.kill("q")
			all := b.dead()
			var (
				wg    sync.WaitGroup
				mu    sync.Mutex
				total int64
			)
			for i := range 4 {
				wg.Go(func() {
					req := everything()
					if i == 0 {
						req = byID(all[200:800]...)
					}
					res, err := b.Recover(ctx, req)
					mu.Lock()
					defer mu.Unlock()
					total += res.Done
					if err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			require.EqualValues(t, 1000, total)
			require.Equal(t, "ready:1000", b.states("q"))
			var logged int
			require.NoError(t, b.pool.QueryRow(ctx, `
				select count(*) from leat.events e cross join lateral leat.event_ids(e.message_ids, e.message_ranges) i
				where e.kind = 'message.recovered'`).Scan(&logged))
			require.Equal(t, 1000, logged)
			byKey := map[string][]string{}
			for _, d := range b.receive("q", 1000) {
				byKey[d.RoutingKey] = append(byKey[d.RoutingKey], string(d.Payload))
			}
			if mode == commands.FIFO {
				for _, got := range byKey {
					require.Equal(t, numbered(100), got)
				}
			}
		})
	}
}

// A message's time to live ends with its death; a recovered one has none, or a
// fresh one.
func TestF13TTLDoesNotTravelIntoTheDeadLetters(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, b broker) {
		b.publish("q",
			commands.Message{RoutingKey: "a", Payload: []byte("1"), TTL: time.Second},
			commands.Message{RoutingKey: "b", Payload: []byte("2"), TTL: time.Second})
		got := b.receive("q", 2)
		_, err := b.Nack(ctx, commands.NackRequest{SettleRequest: settle("q", got...), Action: commands.DeadLetterAction})
		require.NoError(t, err)
		require.Eventually(t, func() bool { return time.Since(got[0].PublishedAt) > 1500*time.Millisecond }, patience, 50*time.Millisecond)
		dead := b.dead()
		require.Len(t, dead, 2)

		b.recover(byID(dead[0]))
		require.Equal(t, []string{""}, texts(t, b.pool, `select coalesce(expires_at::text, '') from leat.queue_messages where state = 'ready'`))
		fresh := byID(dead[1])
		fresh.TTL = 300 * time.Millisecond
		require.EqualValues(t, 1, b.recover(fresh).Done)
		b.waitStates("q", "ready:1")
		require.Equal(t, []string{"1"}, payloads(b.receive("q", 1)))
		b.verify()
	})
}

// A copy is known by the event that lists it, which lies behind those of all the
// others that were made with it.
func TestRecoverCopyOfMany(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exchange("e", commands.Fanout)
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	b.link("e", "q", commands.Match{})
	_, err := b.pool.Exec(ctx, `select leat.publish_batch('e', array_fill('\x31'::bytea, array[110]),
		expires_ats => array(select now() + n * interval '1 h' from generate_series(1, 110) n))`) // an event each
	require.NoError(t, err)
	got := b.receive("q", 110)
	b.ack("q", got...)
	req := byID()
	for _, d := range got {
		req.IDs = append(req.IDs, d.MessageID)
	}
	failed := b.recover(req).Failed
	require.Len(t, failed, 110)
	for _, f := range failed {
		require.Equal(t, eventstore.MessageNotDead, f.Code)
	}
}

// A recovery that ends between two transactions leaves each message in one
// place, and another one does the rest.
func TestRecoveryCutShort(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{commands.Standard, commands.FIFO} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			b := serve(t, dbtest.New(t), commands.Config{Limits: commands.Limits{DeadLetterPage: 10}})
			b.declare("q", mode, commands.PolicyPatch{})
			b.withoutCircuit()
			for k := range 5 {
				b.bury("q", fmt.Sprint(k), numbered(20)...)
			}
			ending, end := context.WithCancel(ctx)
			defer end()
			req := everything()
			req.Progress = func(r commands.DeadLettersResult) {
				if r.Done >= 40 {
					end()
				}
			}
			res, err := b.Recover(ending, req)
			require.ErrorIs(t, err, context.Canceled)
			require.Less(t, res.Done, int64(100))
			require.Equal(t, fmt.Sprintf("dead:%d ready:%d", 100-res.Done, res.Done), b.states("q"))
			b.verify()
			rest := b.recover(everything())
			require.Equal(t, 100-res.Done, rest.Done)
			require.Equal(t, "ready:100", b.states("q"))
			b.verify()
		})
	}
}

// A key that somebody holds does not hold up the others, and is recovered when
// it is free.
func TestRecoverPassesOverWhatIsHeld(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.FIFO, commands.PolicyPatch{})
	b.withoutCircuit()
	held := b.bury("q", "held", "1")
	b.bury("q", "free", "2")
	tx, err := b.pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(ctx) }()
	_, err = tx.Exec(ctx, `select leat.publish('q', '3', 'held')`)
	require.NoError(t, err)

	parts := make(chan commands.DeadLettersResult, 100)
	req := everything()
	req.Progress = func(r commands.DeadLettersResult) { parts <- r }
	done := make(chan commands.DeadLettersResult, 1)
	go func() {
		res, err := b.Recover(ctx, req)
		if err != nil {
			t.Error(err)
		}
		done <- res
	}()
	require.EqualValues(t, 1, (<-parts).Done)
	require.Equal(t, held, b.dead())
	require.NoError(t, tx.Commit(ctx))
	require.EqualValues(t, 2, (<-done).Done)
	require.Equal(t, []string{"1", "3"}, payloads(b.poll(commands.PollRequest{Queue: "q", RoutingKeys: []string{"held"}})))
	b.verify()
}

// The circuit of a key keeps its dead letters from bulk recoveries, and lets
// those go that are named.
func TestG5RecoverBehindACircuit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.declare("q", commands.FIFO, commands.PolicyPatch{})
	b.withoutCircuit()
	dead := b.bury("q", "k", "1", "2", "3")
	b.bury("q", "other", "4")
	_, err := b.pool.Exec(ctx, `
		insert into leat.circuits (channel_id, routing_key, state, changed_at) values ($1, 'k', 'open', now())`, c.ID)
	require.NoError(t, err)

	res := b.recover(everything())
	require.EqualValues(t, 1, res.Done)
	require.EqualValues(t, 3, res.CircuitOpen)
	require.EqualValues(t, 3, res.Remaining)
	require.EqualValues(t, 2, b.recover(byID(dead[0], dead[2])).Done)
	require.Equal(t, []string{fmt.Sprintf("{%d,%d}", dead[0], dead[2])},
		texts(t, b.pool, `select admitted::text from leat.circuits`))
	require.Equal(t, []string{`{"admitted": true}`},
		texts(t, b.pool, `select data::text from leat.events where kind = 'message.recovered' and data is not null`))
}

// The SQL surface does the same in the caller's transaction.
func TestRecoverFromSQL(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.FIFO, commands.PolicyPatch{})
	b.withoutCircuit()
	dead := b.bury("q", "k", "1", "2", "3")
	require.NoError(t, pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `select result from leat.recover('q', $1)`, []int64{int64(dead[2]), 1 << 40, int64(dead[2])})
		require.NoError(t, err)
		got, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		require.Equal(t, []string{"recovered", "not_found", "recovered"}, got)
		return nil
	}))
	require.Equal(t, []string{"(2,0,0)"}, texts(t, b.pool, `select r::text from leat.recover_all('q', reason => 'rejected') r`))
	require.Equal(t, []string{"1", "2", "3"}, payloads(b.receive("q", 3)))
	for _, reason := range eventstore.DeathReasons() {
		require.Equal(t, []string{"(0,0,0)"}, texts(t, b.pool, `select r::text from leat.recover_all('q', reason => $1) r`, reason))
	}
	for _, wrong := range []string{
		`select leat.recover('q', '{}')`, `select leat.recover('q', '{1}', ttl => '-1 s')`,
		`select leat.recover_all('q', reason => 'boredom')`, `select leat.recover_all('q', ttl => '0')`,
	} {
		refusedSQL(t, b, eventstore.InvalidField, wrong)
	}
	b.verify()
}

func refusedSQL(t *testing.T, b broker, code eventstore.Code, sql string) {
	t.Helper()
	_, err := b.pool.Exec(ctx, sql)
	var e *eventstore.Error
	require.ErrorAs(t, eventstore.FromPg(err), &e, sql)
	require.Equal(t, code, e.Code, sql)
}
