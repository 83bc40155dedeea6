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
	queue    string
	key      string
	state    string // waiting, in_flight, dead
	attempts int
	receipt  string
}

// model is the small broker in memory that the real one is held against.
type model struct {
	pool     *pgxpool.Pool
	views    *projections.Views
	messages map[int64]*modelMessage
}

func (m *model) exec(t *rapid.T, sql string, args ...any) {
	_, err := m.pool.Exec(context.Background(), sql, args...)
	require.NoError(t, err, sql)
}

func (m *model) publish(t *rapid.T, commit bool) {
	queue := rapid.SampledFrom([]string{"s", "f"}).Draw(t, "queue")
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
		m.messages[id] = &modelMessage{id: id, queue: queue, key: keys[i], state: "waiting"}
	}
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
	queue := rapid.SampledFrom([]string{"s", "f"}).Draw(t, "queue")
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
	queue = rapid.SampledFrom([]string{"s", "f"}).Draw(t, "queue")
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
	for _, message := range chosen {
		switch {
		case what == "ack" || what == "discard":
			delete(m.messages, message.id)
		case what == "release":
			message.state = "waiting"
			message.attempts--
		case what == "deadLetter" || (what != "extend" && message.attempts >= maxAttempts):
			message.state = "dead"
		case what != "extend":
			message.state = "waiting"
		}
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
	queue := rapid.SampledFrom([]string{"s", "f"}).Draw(t, "queue")
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
		`select channel, message_id, case when state in ('ready', 'delayed') then 'waiting' else state end, attempts from leat.queue_messages`)
	require.NoError(t, err)
	count := 0
	var queue, state string
	var id int64
	var attempts int
	_, err = pgx.ForEachRow(rows, []any{&queue, &id, &state, &attempts}, func() error {
		count++
		want := m.messages[id]
		require.NotNil(t, want, "message %d of %s should be gone", id, queue)
		require.Equal(t, want.state, state, "message %d", id)
		require.Equal(t, want.attempts, attempts, "attempts of message %d", id)
		return nil
	})
	require.NoError(t, err)
	require.Len(t, m.messages, count, "messages in the views")
}

// G1 and G4: random commands, then the log, the views and a small model agree
// message by message, before and after a rebuild.
func TestG1G4Model(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	rapid.Check(t, func(rt *rapid.T) {
		_, err := pool.Exec(context.Background(), `select leat.delete_channel(name, true, 'test') from leat.channels where deleted_at is null`)
		require.NoError(rt, err)
		m := &model{pool: pool, views: projections.New(pool, slog.New(slog.DiscardHandler)), messages: map[int64]*modelMessage{}}
		for queue, mode := range map[string]string{"s": "standard", "f": "fifo"} {
			m.exec(rt, `select leat.declare_channel($1, 'queue', $2, '{"max_deliveries": 3, "base_delay": "0 s", "max_delay": "0 s", "circuit": false}', 'test')`, queue, mode)
		}
		actions := []string{
			"publish", "publish", "poll", "poll", "poll", "ack", "ack", "retry", "deadLetter", "discard",
			"release", "extend", "expire", "roll back", "purge", "rebuild", "checkpoint",
		}
		for step := range rapid.IntRange(10, 60).Draw(rt, "steps") {
			switch action := rapid.SampledFrom(actions).Draw(rt, "action"); action {
			case "publish", "roll back":
				m.publish(rt, action == "publish")
			case "poll":
				m.poll(rt)
			case "purge":
				m.purge(rt)
			case "rebuild":
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
	})
}
