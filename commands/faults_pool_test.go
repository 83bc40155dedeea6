package commands_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"leat/commands"
	"leat/eventstore"
	"leat/migrations/dbtest"
	"leat/projections"
	"leat/queries"
)

// F36: everything works through a transaction pooler: in each mode of execution
// that needs no prepared statements to stay, on sessions that forget everything
// after each use. (It is pgx that forgets here; a real pooler hands the next
// transaction to another session, which is the same to us.)
func TestF36Poolers(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
	} {
		for _, queue := range []string{commands.Standard, commands.FIFO} {
			t.Run(mode.String()+"/"+queue, func(t *testing.T) {
				t.Parallel()
				_, url := dbtest.NewURL(t)
				pool := connect(t, url, func(c *pgxpool.Config) {
					c.ConnConfig.DefaultQueryExecMode = mode
					c.AfterRelease = func(conn *pgx.Conn) bool {
						_, err := conn.Exec(ctx, "discard all", pgx.QueryExecModeSimpleProtocol)
						return err == nil
					}
				})
				useEverything(t, serve(t, pool, commands.Config{}), queue)
			})
		}
	}
}

// useEverything runs every command and every query once.
func useEverything(t *testing.T, b broker, mode string) {
	t.Helper()
	b.declare("q", mode, commands.PolicyPatch{NonRetryable: new([]string{"Fatal"})})
	full := commands.Message{
		RoutingKey: "ключ '\\ \"🔑", Payload: []byte("\x00\xff'\\x\""), ContentType: "a/b", Headers: []byte(`{"h":"'\\\\"}`),
		TTL: time.Hour, DedupID: "d'",
	}
	if mode == commands.Standard {
		full.Priority = 9
	}
	ids := b.publish("q", full, commands.Message{}, commands.Message{DeliverAt: time.Now().Add(-time.Minute), ExpiresAt: time.Now().Add(time.Hour)})
	require.Equal(t, ids[:1], b.publish("q", full))
	b.publish("q", commands.Message{RoutingKey: "later", Delay: time.Hour})

	large := bytes.Repeat([]byte("'"), 20_000)
	b.publish("q", commands.Message{RoutingKey: "large", Payload: large})
	last := b.poll(commands.PollRequest{Queue: "q", RoutingKeys: []string{"large"}})
	require.Len(t, last, 1)
	require.Equal(t, large, last[0].Payload)
	b.ack("q", last...)

	got := b.poll(commands.PollRequest{Queue: "q", Consumer: "c'", Lease: time.Minute, RoutingKeys: []string{full.RoutingKey, "none"}})
	require.Len(t, got, 1)
	require.Equal(t, full.Payload, got[0].Payload)
	require.Equal(t, `'\\`, headers(t, got[0].Headers)["h"])
	got = append(got, b.receive("q", 2)...)
	_, until, err := b.Extend(ctx, commands.ExtendRequest{SettleRequest: settle("q", got...), Lease: time.Minute})
	require.NoError(t, err)
	require.False(t, until.IsZero())
	res, err := b.Nack(ctx, commands.NackRequest{SettleRequest: settle("q", got[0]), Reason: "'", ErrorClass: "Fatal"})
	require.NoError(t, err)
	require.Equal(t, 1, res.Settled)
	res, err = b.Release(ctx, settle("q", got[1]))
	require.NoError(t, err)
	require.Equal(t, 1, res.Settled)
	require.Equal(t, 1, b.ack("q", got[2]).Settled)
	require.Len(t, b.ack("q", got[0], got[1], got[2]).Failed, 2)

	_, err = b.AlterChannel(ctx, "me", "q", commands.PolicyPatch{MaxDeliveries: new(7)})
	require.NoError(t, err)
	askEverything(t, b.pool, ids[0])
	n, err := b.Purge(ctx, "q", "me")
	require.NoError(t, err)
	require.EqualValues(t, 2, n)
	require.NoError(t, b.DeleteChannel(ctx, "me", "q", true))
}

func askEverything(t *testing.T, pool *pgxpool.Pool, id eventstore.MessageID) {
	t.Helper()
	q := queries.New(pool)
	_, err := q.Channels(ctx)
	require.NoError(t, err)
	_, _, err = q.Messages(ctx, "q", queries.MessagesFilter{})
	require.NoError(t, err)
	dead, _, err := q.DeadLetters(ctx, "q", queries.DeadLettersFilter{})
	require.NoError(t, err)
	require.Len(t, dead, 1)
	_, err = q.Message(ctx, id)
	require.NoError(t, err)
	history, _, err := q.History(ctx, id, queries.HistoryFilter{})
	require.NoError(t, err)
	require.NotEmpty(t, history)
	_, _, err = q.Events(ctx, queries.EventsFilter{})
	require.NoError(t, err)
	_, _, err = q.Events(ctx, queries.EventsFilter{Channel: "q", Kinds: []eventstore.Kind{eventstore.MessageAcked}})
	require.NoError(t, err)
	_, err = q.Lineage(ctx, id, queries.LineageFilter{})
	require.NoError(t, err)
	_, err = q.Status(ctx)
	require.NoError(t, err)
	_, err = eventstore.New(pool).SettledPosition(ctx)
	require.NoError(t, err)
	require.NoError(t, eventstore.New(pool).MakePartitions(ctx))
	views := projections.New(pool, nil)
	differences, err := views.Verify(ctx, false, 10)
	require.NoError(t, err)
	require.Empty(t, differences)
	_, err = views.Rebuild(ctx)
	require.NoError(t, err)
	_, err = views.Checkpoint(ctx)
	require.NoError(t, err)
}

// F37: of twenty declarations at once one makes the queue; other settings are a
// conflict.
func TestF37DeclaredAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := serve(t, b.pool, commands.Config{})
	var (
		wg      sync.WaitGroup
		created atomic.Int32
	)
	for i := range 20 {
		wg.Go(func() {
			_, made, err := []broker{b, other}[i%2].DeclareChannel(ctx, "me", commands.ChannelSpec{Name: "q"})
			assert.NoError(t, err)
			if made {
				created.Add(1)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, created.Load())
	_, _, err := b.DeclareChannel(ctx, "me", commands.ChannelSpec{Name: "q", Mode: commands.FIFO})
	require.Equal(t, eventstore.ChannelConflict, refusal(t, err).Code)
}

// Two hundred callers share two connections: each is answered.
func TestPoolExhausted(t *testing.T) {
	t.Parallel()
	_, url := dbtest.NewURL(t)
	b := serve(t, connect(t, url, func(c *pgxpool.Config) { c.MaxConns = 2 }), commands.Config{})
	for _, mode := range []string{commands.Standard, commands.FIFO} {
		b.declare(mode, mode, commands.PolicyPatch{})
	}
	var wg sync.WaitGroup
	for i := range 200 {
		queue := []string{commands.Standard, commands.FIFO}[i%2]
		wg.Go(func() {
			key := fmt.Sprint("k", i)
			b.publishTexts(queue, key, "x")
			for {
				got := b.poll(commands.PollRequest{Queue: queue, Max: 1, Wait: time.Second, RoutingKeys: []string{key}})
				if len(got) > 0 {
					b.ack(queue, got...)
					return
				}
			}
		})
	}
	finished(t, &wg)
	require.Empty(t, b.states(commands.Standard)+b.states(commands.FIFO))
	b.verify()
}

// Somebody holds every connection: callers get their turn when they are given
// back, or leave when their own time is over; nothing is left half done.
func TestPoolHeld(t *testing.T) {
	t.Parallel()
	_, url := dbtest.NewURL(t)
	b := serve(t, connect(t, url, func(c *pgxpool.Config) { c.MaxConns = 2 }), commands.Config{})
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	b.publishTexts("q", "", "x")
	held := []*pgxpool.Conn{acquire(t, b.pool), acquire(t, b.pool)}

	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			caller, cancel := context.WithTimeout(ctx, patience)
			if i%2 == 0 {
				caller, cancel = context.WithTimeout(ctx, 50*time.Millisecond)
			}
			defer cancel()
			_, err := b.Publish(caller, commands.PublishRequest{Channel: "q", Messages: []commands.Message{{RoutingKey: fmt.Sprint(i % 2)}}})
			if i%2 == 0 {
				assert.ErrorIs(t, err, context.DeadlineExceeded)
			} else {
				assert.NoError(t, err)
			}
		})
		wg.Go(func() {
			caller, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			_, err := b.Poll(caller, commands.PollRequest{Queue: "q", Max: 1, Wait: time.Second})
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		})
	}
	<-time.After(200 * time.Millisecond)
	for _, conn := range held {
		conn.Release()
	}
	finished(t, &wg)
	// Those who left may have been on their way already.
	require.Eventually(t, func() bool { return len(b.poll(commands.PollRequest{Queue: "q", Max: 1000})) == 0 }, patience, time.Millisecond)
	require.Equal(t, []string{"50"}, texts(t, b.pool, `select count(*)::text from leat.queue_messages where routing_key = '1'`))
	b.verify()
}

func acquire(t *testing.T, pool *pgxpool.Pool) *pgxpool.Conn {
	t.Helper()
	conn, err := pool.Acquire(ctx)
	require.NoError(t, err)
	return conn
}

// finished waits for a group, though not for ever.
func finished(t *testing.T, wg *sync.WaitGroup) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(forgiving):
		require.FailNow(t, "somebody hangs")
	}
}

// A statement timeout of the role that nothing can keep: what is refused may be
// retried, and nothing of it was stored.
func TestStatementTimeout(t *testing.T) {
	t.Parallel()
	base := setup(t)
	for _, mode := range []string{commands.Standard, commands.FIFO} {
		base.declare(mode, mode, commands.PolicyPatch{})
	}
	hurried := serve(t, connect(t, dbtest.URL(base.pool), func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["statement_timeout"] = "2ms"
	}), commands.Config{})
	retryable := func(err error) {
		t.Helper()
		e, ok := errors.AsType[*eventstore.Error](err)
		require.True(t, ok, "%v", err)
		require.Equal(t, eventstore.DatabaseUnavailable, e.Code)
		require.Positive(t, e.RetryAfter)
	}
	stored, refused := map[string]int{}, 0
	payload := make([]byte, 50_000)
	for i := range 100 {
		queue := []string{commands.Standard, commands.FIFO}[i%2]
		messages := make([]commands.Message, 1+i%20)
		for n := range messages {
			messages[n] = commands.Message{RoutingKey: fmt.Sprint(n), Payload: payload}
		}
		_, err := hurried.Publish(ctx, commands.PublishRequest{Channel: queue, Messages: messages})
		if err == nil {
			stored[queue] += len(messages)
			continue
		}
		refused++
		retryable(err)
		require.NotContains(t, err.Error(), "not known")
	}
	require.Positive(t, refused, "the timeout is of no use")
	for queue, n := range stored {
		got, err := hurried.Poll(ctx, commands.PollRequest{Queue: queue, Max: 1000})
		if err != nil {
			retryable(err)
		}
		base.verify()
		require.Equal(t, fmt.Sprint(n), texts(t, base.pool, `select count(*)::text from leat.queue_messages where channel = $1`, queue)[0])
		if len(got) > 0 {
			if _, err := hurried.Ack(ctx, settle(queue, got...)); err != nil {
				retryable(err)
			}
		}
	}
	base.verify()
}
