package projections_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"leat/migrations/dbtest"
	"leat/projections"
)

const maxAttempts = 3

// modelMessage is what a person would expect of one message.
type modelMessage struct {
	id       int64
	origin   int64
	queue    string
	key      string
	state    string // waiting, in_flight, dead
	attempts int
	receipt  string
	admitted bool // by its key's open circuit
}

// model is the small broker in memory that the real one is held against: a
// standard queue s, whose dead go to d as well, a FIFO queue f with circuits, and an
// exchange x in front of both; and a stream behind x and f (modelStream).
type model struct {
	pool     *pgxpool.Pool
	views    *projections.Views
	messages map[int64]*modelMessage
	open     map[string]bool // keys of f
	stream   modelStream
	past     []remembered
	through  []modelMessage // what was published to x
}

var modelQueues = []string{"s", "f", "d"}

func (m *model) declare(t *rapid.T, queue string) {
	mode, policy := "standard", `{"max_deliveries": 3, "base_delay": "0 s", "max_delay": "0 s"}`
	if queue == "f" {
		mode = "fifo"
	}
	m.exec(t, `select leat.declare_channel($1, 'queue', $2, $3::jsonb, 'test')`, queue, mode, policy)
	if queue != "d" {
		m.exec(t, `select leat.declare_link('x', $1)`, queue)
	}
	if queue == "f" {
		m.exec(t, `select leat.declare_link('f', 't')`)
	}
	m.exec(t, `update leat.channels set dead_letter_to = (select id from leat.channels where name = 'd' and deleted_at is null)
		where name = 's' and deleted_at is null`)
}

func (m *model) exec(t *rapid.T, sql string, args ...any) {
	_, err := m.pool.Exec(context.Background(), sql, args...)
	require.NoError(t, err, sql)
}

func (m *model) publish(t *rapid.T, commit bool) {
	queue := rapid.SampledFrom([]string{"s", "f", "x", "t"}).Draw(t, "queue")
	keys := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c"}), 1, 12).Draw(t, "keys")
	payloads := make([][]byte, len(keys))
	for i := range payloads {
		payloads[i] = []byte{}
	}
	ctx := context.Background()
	tx, err := m.pool.Begin(ctx)
	require.NoError(t, err)
	var ids []int64
	err = tx.QueryRow(ctx, `select leat.publish_batch($1, $2, $3)`, queue, payloads, keys).Scan(&ids)
	require.NoError(t, err)
	if !commit {
		require.NoError(t, tx.Rollback(ctx))
		return
	}
	require.NoError(t, tx.Commit(ctx))
	for i, id := range ids {
		if queue != "s" {
			m.stream.enter(id, keys[i])
		}
		if queue == "t" {
			continue
		}
		if queue != "x" {
			m.enter(queue, keys[i], id, id)
			continue
		}
		m.through = append(m.through, modelMessage{id: id, key: keys[i]})
		for _, target := range []string{"s", "f"} {
			copies := m.found(t, `select message_id from leat.queue_messages where channel = $1 and origin_message_id = $2`, target, id)
			require.Len(t, copies, 1, "one copy of %d in %s", id, target)
			m.enter(target, keys[i], copies[0], id)
		}
	}
}

// enter is a new message.
func (m *model) enter(queue, key string, id, origin int64) {
	one := &modelMessage{id: id, origin: origin, queue: queue, key: key, state: "waiting"}
	if queue == "f" && m.open[key] {
		one.state = "dead"
	}
	m.messages[id] = one
}

func (m *model) found(t *rapid.T, sql string, args ...any) []int64 {
	rows, err := m.pool.Query(context.Background(), sql, args...)
	require.NoError(t, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	require.NoError(t, err)
	return ids
}

// die is a death for a reason of the message's own.
func (m *model) die(t *rapid.T, dead *modelMessage) {
	dead.state, dead.admitted = "dead", false
	switch dead.queue {
	case "f":
		m.open[dead.key] = true
		for _, other := range m.messages {
			if other.queue == "f" && other.key == dead.key && other.state == "waiting" && !other.admitted {
				other.state = "dead"
			}
		}
	case "s":
		copies := m.found(t, `select message_id from leat.queue_messages where channel = 'd' and origin_message_id = $1
			order by message_id desc limit 1`, dead.origin)
		require.Len(t, copies, 1)
		require.Nil(t, m.messages[copies[0]], "the death of %d is new in d", dead.id)
		m.enter("d", dead.key, copies[0], dead.origin)
	}
}

// wait is a message that is given back, into a circuit that may bar it.
func (m *model) wait(message *modelMessage) {
	message.state = "waiting"
	if message.queue == "f" && m.open[message.key] && !message.admitted {
		message.state = "dead"
	}
}

func (m *model) dead(t *rapid.T, queue string) (chosen []*modelMessage, ids []int64) {
	for _, message := range m.messages {
		if message.queue == queue && message.state == "dead" {
			chosen = append(chosen, message)
		}
	}
	slices.SortFunc(chosen, func(a, b *modelMessage) int { return int(a.id - b.id) })
	chosen = slices.DeleteFunc(chosen, func(message *modelMessage) bool {
		return !rapid.Bool().Draw(t, fmt.Sprint("recover ", message.id))
	})
	ids = []int64{}
	for _, message := range chosen {
		ids = append(ids, message.id)
	}
	return chosen, ids
}

func (m *model) recover(t *rapid.T) {
	queue := rapid.SampledFrom(modelQueues).Draw(t, "queue")
	chosen, ids := m.dead(t, queue)
	if len(ids) == 0 {
		return
	}
	m.exec(t, `select leat.recover($1, $2)`, queue, ids)
	for _, message := range chosen {
		message.state, message.attempts, message.admitted = "waiting", 0, queue == "f" && m.open[message.key]
	}
}

func (m *model) recoverAll(t *rapid.T) {
	queue := rapid.SampledFrom(modelQueues).Draw(t, "queue")
	m.exec(t, `select leat.recover_all($1)`, queue)
	for _, message := range m.messages {
		if message.queue == queue && message.state == "dead" && (queue != "f" || !m.open[message.key]) {
			message.state, message.attempts = "waiting", 0
		}
	}
}

func (m *model) circuit(t *rapid.T, what string) {
	key := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key")
	if what == "open" {
		m.exec(t, `select leat.open_circuit('f', $1)`, key)
		if !m.open[key] {
			m.open[key] = true
			for _, message := range m.messages {
				if message.queue == "f" && message.key == key && message.state == "waiting" {
					message.state = "dead"
				}
			}
		}
		return
	}
	recovers := what == "close and recover"
	m.exec(t, `select leat.close_circuit('f', $1, $2)`, key, recovers)
	for _, message := range m.messages {
		if message.queue == "f" && message.key == key && m.open[key] {
			message.admitted = false
			if recovers && message.state == "dead" {
				message.state, message.attempts = "waiting", 0
			}
		}
	}
	delete(m.open, key)
}

func (m *model) deleteQueue(t *rapid.T) {
	queue := rapid.SampledFrom(modelQueues).Draw(t, "queue")
	m.exec(t, `select leat.delete_channel($1, true, 'test')`, queue)
	for id, message := range m.messages {
		if message.queue == queue {
			delete(m.messages, id)
		}
	}
	if queue == "f" {
		clear(m.open)
	}
	m.declare(t, queue)
}

// live lists the undead messages of a FIFO key in order.
func (m *model) live(queue, key string) []*modelMessage {
	var found []*modelMessage
	for _, message := range m.messages {
		if message.queue == queue && message.key == key && message.state != "dead" {
			found = append(found, message)
		}
	}
	slices.SortFunc(found, func(a, b *modelMessage) int { return int(a.id - b.id) })
	return found
}

type polled struct {
	Receipt   string
	MessageID int64
	Attempt   int
}

func (m *model) poll(t *rapid.T) {
	queue := rapid.SampledFrom(modelQueues).Draw(t, "queue")
	limit := rapid.IntRange(1, 8).Draw(t, "max")
	waiting := 0
	blocked := map[string]bool{}
	for _, message := range m.messages {
		if message.queue == queue && message.state == "in_flight" && queue == "f" {
			blocked[message.key] = true
		}
	}
	for _, message := range m.messages {
		if message.queue == queue && message.state == "waiting" && !blocked[message.key] {
			waiting++
		}
	}
	rows, err := m.pool.Query(context.Background(), `select receipt, message_id, attempt from leat.poll($1, $2, '1 hour')`, queue, limit)
	require.NoError(t, err)
	got, err := pgx.CollectRows(rows, pgx.RowToStructByPos[polled])
	require.NoError(t, err)
	require.Len(t, got, min(limit, waiting), "every free message up to max")
	handed := map[string]int{}
	for _, delivery := range got {
		message := m.messages[delivery.MessageID]
		require.NotNil(t, message)
		require.Equal(t, "waiting", message.state)
		require.Equal(t, message.attempts+1, delivery.Attempt)
		if queue == "f" { // G4: in order, from the head on
			require.False(t, blocked[message.key], "one delivery of a key at a time")
			require.Equal(t, m.live(queue, message.key)[handed[message.key]].id, message.id)
			handed[message.key]++
		}
	}
	for _, delivery := range got {
		message := m.messages[delivery.MessageID]
		message.state, message.attempts, message.receipt = "in_flight", delivery.Attempt, delivery.Receipt
	}
}

// some draws messages of one queue that are in flight.
func (m *model) some(t *rapid.T) (queue string, chosen []*modelMessage, receipts []string) {
	queue = rapid.SampledFrom(modelQueues).Draw(t, "queue")
	var flying []*modelMessage
	for _, message := range m.messages {
		if message.queue == queue && message.state == "in_flight" {
			flying = append(flying, message)
		}
	}
	slices.SortFunc(flying, func(a, b *modelMessage) int { return int(a.id - b.id) })
	for _, message := range flying {
		if rapid.Bool().Draw(t, fmt.Sprint(message.id)) {
			chosen = append(chosen, message)
			receipts = append(receipts, message.receipt)
		}
	}
	if receipts == nil {
		receipts = []string{}
	}
	return queue, chosen, receipts
}

func (m *model) settle(t *rapid.T, what string) {
	queue, chosen, receipts := m.some(t)
	if len(chosen) == 0 {
		return
	}
	switch what {
	case "ack":
		m.exec(t, `select leat.ack($1, $2)`, queue, receipts)
	case "release":
		m.exec(t, `select leat.release($1, $2)`, queue, receipts)
	case "extend":
		m.exec(t, `select leat.extend($1, $2, '2 hours')`, queue, receipts)
	case "expire":
		m.exec(t, `select leat.extend($1, $2, '1 microsecond')`, queue, receipts)
		m.exec(t, `select leat.sweep(null)`)
	default:
		m.exec(t, `select leat.nack($1, $2, $3, '0 s')`, queue, receipts, what)
	}
	// Those that live on come first, and a circuit that another one opens gets them too.
	var died []*modelMessage
	for _, message := range chosen {
		switch {
		case what == "ack" || what == "discard":
			delete(m.messages, message.id)
		case what == "release":
			message.attempts--
			m.wait(message)
		case what == "deadLetter" || (what != "extend" && message.attempts >= maxAttempts):
			died = append(died, message)
		case what != "extend":
			m.wait(message)
		}
	}
	for _, message := range died {
		m.die(t, message)
	}
	// Back-off after an expiry is next to nothing here, and over by now.
	m.exec(t, `select leat.sweep(null)`)
	stale := ""
	if what != "extend" {
		require.NoError(t, m.pool.QueryRow(context.Background(),
			`select result from leat.ack($1, $2) limit 1`, queue, receipts).Scan(&stale))
		require.NotEqual(t, "settled", stale)
	}
}

func (m *model) purge(t *rapid.T) {
	queue := rapid.SampledFrom(modelQueues).Draw(t, "queue")
	m.exec(t, `select leat.purge_queue(leat.queue_id($1), 'test')`, queue)
	for id, message := range m.messages {
		if message.queue == queue && message.state == "waiting" {
			delete(m.messages, id)
		}
	}
}

// check holds the live views, the log and the model against each other.
func (m *model) check(t *rapid.T) {
	differences, err := m.views.Verify(context.Background(), true, 5)
	require.NoError(t, err)
	require.Empty(t, differences, "the log and the views")
	rows, err := m.pool.Query(context.Background(),
		`select channel, message_id, origin_message_id, case when state in ('ready', 'delayed') then 'waiting' else state end, attempts from leat.queue_messages`)
	require.NoError(t, err)
	count := 0
	var queue, state string
	var id, origin int64
	var attempts int
	_, err = pgx.ForEachRow(rows, []any{&queue, &id, &origin, &state, &attempts}, func() error {
		count++
		want := m.messages[id]
		require.NotNil(t, want, "message %d of %s should be gone", id, queue)
		require.Equal(t, want.state, state, "message %d", id)
		require.Equal(t, want.queue, queue, "message %d", id)
		require.Equal(t, want.origin, origin, "message %d", id)
		require.Equal(t, want.attempts, attempts, "attempts of message %d", id)
		return nil
	})
	require.NoError(t, err)
	require.Len(t, m.messages, count, "messages in the views")
	open := m.found(t, `select count(*) from leat.circuits c join leat.channels q on q.id = c.channel_id and q.deleted_at is null
		where c.state = 'open'`)
	require.EqualValues(t, len(m.open), open[0], "open circuits")
	m.checkStream(t)
	m.remember(t)
}

// G1, G4, G5 and G7: random commands, then the log, the views and a small model agree
// message by message, before and after a rebuild.
func TestG1G4G5G7Model(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	rapid.Check(t, func(rt *rapid.T) {
		_, err := pool.Exec(context.Background(), `select leat.delete_channel(name, true, 'test') from leat.channels where deleted_at is null`)
		require.NoError(rt, err)
		m := &model{
			pool: pool, views: projections.New(pool, slog.New(slog.DiscardHandler)),
			messages: map[int64]*modelMessage{}, open: map[string]bool{},
		}
		m.exec(rt, `select leat.declare_channel('x', 'exchange', 'fanout', '{}', 'test')`)
		m.declareStream(rt)
		for _, queue := range []string{"d", "s", "f"} {
			m.declare(rt, queue)
		}
		actions := []string{
			"publish", "publish", "publish", "poll", "poll", "poll", "ack", "ack", "retry", "deadLetter", "discard",
			"release", "extend", "expire", "roll back", "purge", "rebuild", "checkpoint",
			"recover", "recover all", "open", "close", "close and recover", "delete",
			"trim", "redrive", "republish", "point", "point", "delete stream", "drop",
		}
		for step := range rapid.IntRange(10, 60).Draw(rt, "steps") {
			switch action := rapid.SampledFrom(actions).Draw(rt, "action"); action {
			case "publish", "roll back":
				m.publish(rt, action == "publish")
			case "poll":
				m.poll(rt)
			case "purge":
				m.purge(rt)
			case "recover":
				m.recover(rt)
			case "recover all":
				m.recoverAll(rt)
			case "open", "close", "close and recover":
				m.circuit(rt, action)
			case "delete":
				m.deleteQueue(rt)
			case "trim":
				m.trim(rt)
			case "redrive":
				m.redrive(rt)
			case "drop":
				m.drop(rt)
			case "republish":
				m.republish(rt)
			case "point":
				m.point(rt)
			case "delete stream":
				m.exec(rt, `select leat.delete_channel('t', true, 'test')`)
				m.declareStream(rt)
				m.exec(rt, `select leat.declare_link('f', 't')`)
			case "rebuild":
				m.spoil(rt)
				_, err := m.views.Rebuild(context.Background())
				require.NoError(rt, err)
			case "checkpoint":
				m.exec(rt, `select leat.checkpoint(0)`)
			default:
				m.settle(rt, action)
			}
			if step%5 == 0 {
				m.check(rt)
			}
		}
		m.check(rt)
		m.checkPast(rt)
	})
}
