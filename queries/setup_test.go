package queries_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"leat/commands"
	"leat/eventstore"
	"leat/migrations/dbtest"
	"leat/projections"
	"leat/queries"
	"leat/replication"
)

func TestMain(m *testing.M) {
	os.Exit(dbtest.Main(m, eventstore.SQL, projections.SQL, commands.SQL, replication.SQL))
}

// patience is how long a test waits for what must happen.
const patience = 20 * time.Second

// bench is queries on a database, with a broker to fill it. The broker does not
// run, so leases and delays end only when a query looks.
type bench struct {
	t      testing.TB
	pool   *pgxpool.Pool
	broker *commands.Broker
	*queries.Queries
}

func setup(t testing.TB) bench {
	t.Helper()
	pool := dbtest.New(t)
	broker := commands.New(commands.Config{Pool: pool, Logger: slog.New(slog.DiscardHandler)})
	return bench{t, pool, broker, queries.New(pool)}
}

// running is setup with a broker that also does what only time does.
func running(t testing.TB) bench {
	t.Helper()
	b := setup(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.broker.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	return b
}

func (b bench) declare(name string, spec commands.ChannelSpec) {
	b.t.Helper()
	spec.Name = name
	_, _, err := b.broker.DeclareChannel(b.t.Context(), "test", spec)
	require.NoError(b.t, err)
}

func (b bench) publish(queue string, messages ...commands.Message) []eventstore.MessageID {
	b.t.Helper()
	result, err := b.broker.Publish(b.t.Context(), commands.PublishRequest{Channel: queue, Actor: "producer", Messages: messages})
	require.NoError(b.t, err)
	ids := make([]eventstore.MessageID, len(result.Messages))
	for i, m := range result.Messages {
		ids[i] = m.MessageID
	}
	return ids
}

// numbered are n messages with the payloads 0, 1, ...
func numbered(n int) []commands.Message {
	list := make([]commands.Message, n)
	for i := range list {
		list[i].Payload = []byte(strconv.Itoa(i))
	}
	return list
}

func (b bench) poll(queue string, n int) []string {
	b.t.Helper()
	deliveries, err := b.broker.Poll(b.t.Context(), commands.PollRequest{Queue: queue, Consumer: "worker", Max: n, Wait: 5 * time.Second})
	require.NoError(b.t, err)
	receipts := make([]string, len(deliveries))
	for i, d := range deliveries {
		receipts[i] = d.Receipt.String()
	}
	return receipts
}

func (b bench) nack(queue string, receipts []string, action, reason string) {
	b.t.Helper()
	result, err := b.broker.Nack(b.t.Context(), commands.NackRequest{
		SettleRequest: commands.SettleRequest{Queue: queue, Receipts: receipts}, Action: action, Reason: reason,
	})
	require.NoError(b.t, err)
	require.Equal(b.t, len(receipts), result.Settled)
}

func (b bench) ack(queue string, receipts []string) {
	b.t.Helper()
	result, err := b.broker.Ack(b.t.Context(), commands.SettleRequest{Queue: queue, Receipts: receipts})
	require.NoError(b.t, err)
	require.Equal(b.t, len(receipts), result.Settled)
}

// code is that of a refusal, "" of anything else.
func code(err error) eventstore.Code {
	if e, ok := errors.AsType[*eventstore.Error](err); ok {
		return e.Code
	}
	return ""
}

func ids(messages []queries.Message) []eventstore.MessageID {
	list := make([]eventstore.MessageID, len(messages))
	for i, m := range messages {
		list[i] = m.ID
	}
	return list
}
