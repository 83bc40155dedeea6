package commands_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"leat/commands"
	"leat/eventstore"
	"leat/migrations/dbtest"
)

// patience is how long a test waits for what must happen.
const patience = 20 * time.Second

// broker is a running broker on a database of its own.
type broker struct {
	*commands.Broker
	t    testing.TB
	pool *pgxpool.Pool
	stop func() // ends Run and waits for it; called at the end of the test
}

// setup runs a broker until the end of the test.
func setup(t testing.TB) broker {
	t.Helper()
	return serve(t, dbtest.New(t), commands.Config{})
}

// serve runs a broker on a pool.
func serve(t testing.TB, pool *pgxpool.Pool, cfg commands.Config) broker {
	t.Helper()
	cfg.Pool, cfg.Logger = pool, slog.New(slog.DiscardHandler)
	b := commands.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	stopped := false
	stop := func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-done:
			require.NoError(t, err)
		case <-time.After(patience):
			t.Error("the broker does not stop")
		}
	}
	t.Cleanup(stop)
	return broker{Broker: b, t: t, pool: pool, stop: stop}
}

// declare makes a queue.
func (b broker) declare(name, mode string, policy commands.PolicyPatch) commands.Channel {
	b.t.Helper()
	c, created, err := b.DeclareChannel(ctx, "test", commands.ChannelSpec{Name: name, Mode: mode, Policy: policy})
	require.NoError(b.t, err)
	require.True(b.t, created)
	return c
}

// ctx is for calls that a test does not mean to end.
var ctx = context.Background()

// publish stores messages that must be accepted, and answers their ids.
func (b broker) publish(queue string, messages ...commands.Message) []eventstore.MessageID {
	b.t.Helper()
	res, err := b.Publish(ctx, commands.PublishRequest{Channel: queue, Actor: "producer", Messages: messages})
	require.NoError(b.t, err)
	ids := make([]eventstore.MessageID, len(res.Messages))
	for i, m := range res.Messages {
		ids[i] = m.MessageID
	}
	return ids
}

// publishTexts publishes one message per payload under one key.
func (b broker) publishTexts(queue, key string, payloads ...string) {
	b.t.Helper()
	messages := make([]commands.Message, len(payloads))
	for i, p := range payloads {
		messages[i] = commands.Message{RoutingKey: key, Payload: []byte(p)}
	}
	b.publish(queue, messages...)
}

// poll takes what is ready, without waiting unless the request says so.
func (b broker) poll(req commands.PollRequest) []commands.Delivery {
	b.t.Helper()
	if req.Max == 0 {
		req.Max = 100
	}
	deliveries, err := b.Poll(ctx, req)
	require.NoError(b.t, err)
	return deliveries
}

// receive polls until it has n messages.
func (b broker) receive(queue string, n int) []commands.Delivery {
	b.t.Helper()
	var got []commands.Delivery
	deadline := time.Now().Add(patience)
	for len(got) < n {
		require.True(b.t, time.Now().Before(deadline), "got %d of %d messages", len(got), n)
		got = append(got, b.poll(commands.PollRequest{Queue: queue, Max: n - len(got), Wait: 5 * time.Second})...)
	}
	return got
}

func (b broker) ack(queue string, deliveries ...commands.Delivery) commands.SettleResult {
	b.t.Helper()
	res, err := b.Ack(ctx, settle(queue, deliveries...))
	require.NoError(b.t, err)
	return res
}

func settle(queue string, deliveries ...commands.Delivery) commands.SettleRequest {
	return commands.SettleRequest{Queue: queue, Actor: "consumer", Receipts: receipts(deliveries)}
}

func receipts(deliveries []commands.Delivery) []string {
	out := make([]string, len(deliveries))
	for i, d := range deliveries {
		out[i] = d.Receipt.String()
	}
	return out
}

func payloads(deliveries []commands.Delivery) []string {
	out := make([]string, len(deliveries))
	for i, d := range deliveries {
		out[i] = string(d.Payload)
	}
	return out
}

// states counts the messages of a queue by state, as "ready:2 dead:1".
func (b broker) states(queue string) string {
	b.t.Helper()
	var got string
	require.NoError(b.t, b.pool.QueryRow(ctx, `
		select coalesce(string_agg(state || ':' || n, ' ' order by state), '')
		from (select state, count(*) as n from leat.queue_messages where channel = $1 group by state) s`, queue).Scan(&got))
	return got
}

// waitStates waits until a queue's messages are in these states.
func (b broker) waitStates(queue, want string) {
	b.t.Helper()
	require.Eventually(b.t, func() bool { return b.states(queue) == want }, patience, 5*time.Millisecond,
		"want %q, have %q", want, lazy(func() string { return b.states(queue) }))
}

// lazy is text that is made when it is printed.
type lazy func() string

func (l lazy) String() string { return l() }

// verify compares the queue views with the log.
func (b broker) verify() {
	b.t.Helper()
	require.Empty(b.t, texts(b.t.(*testing.T), b.pool, `select v::text from leat.verify_views() v`))
}

// refusal is the *eventstore.Error that err must be.
func refusal(t testing.TB, err error) *eventstore.Error {
	t.Helper()
	var e *eventstore.Error
	require.ErrorAs(t, err, &e)
	return e
}

func headers(t testing.TB, raw json.RawMessage) map[string]any {
	t.Helper()
	var got map[string]any
	require.NoError(t, json.Unmarshal(raw, &got))
	return got
}

func numbered(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprint(i)
	}
	return out
}
