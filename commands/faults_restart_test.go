package commands_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"leat/commands"
	"leat/eventstore"
	"leat/migrations/dbtest"
	"leat/migrations/pgserver"
)

// load is a number of publishers and consumers, and what they were answered.
type load struct {
	broker

	finished, stopped chan struct{} // closed: no more is published, consumed
	finish, stop      func()
	publishers        sync.WaitGroup
	consumers         sync.WaitGroup

	published atomic.Int64 // answered publishes
	settled   atomic.Int64 // answered acks

	mu     sync.Mutex
	stored map[eventstore.MessageID]string // payloads of answered publishes
	acked  map[eventstore.MessageID]bool   // by an answered ack
	failed map[string]int                  // what was refused meanwhile
}

const (
	loadKeys      = 4
	loadConsumers = 6
)

// newLoad starts it: unordered messages, with and without dedup ids, and a FIFO
// key per publisher, which publishes again until it is answered.
func newLoad(b broker) *load {
	retry := commands.PolicyPatch{
		Lease: new(3 * time.Second), MaxDeliveries: new(1000),
		Retry: commands.RetryPatch{BaseDelay: new(time.Duration(0))},
	}
	b.declare("s", commands.Standard, retry)
	b.declare("f", commands.FIFO, retry)
	l := &load{
		broker: b,
		stored: map[eventstore.MessageID]string{}, acked: map[eventstore.MessageID]bool{}, failed: map[string]int{},
	}
	l.finished, l.stopped = make(chan struct{}), make(chan struct{})
	l.finish = sync.OnceFunc(func() { close(l.finished) })
	l.stop = sync.OnceFunc(func() { close(l.stopped) })
	b.t.Cleanup(func() {
		l.finish()
		l.stop()
		l.publishers.Wait()
		l.consumers.Wait()
	})
	for i := range loadKeys {
		key := fmt.Sprint("k", i)
		l.publishers.Go(func() { l.publishAll("f", key, true) })
		l.publishers.Go(func() { l.publishAll("s", "with-"+key, true) })
		l.publishers.Go(func() { l.publishAll("s", "without-"+key, false) })
	}
	for range loadConsumers {
		l.consumers.Go(func() { l.consumeAll("s") })
		l.consumers.Go(func() { l.consumeAll("f") })
	}
	return l
}

func ended(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// publishAll publishes numbered messages of a key until the load finishes. With
// dedup ids each is published again until there is an answer.
func (l *load) publishAll(queue, key string, dedup bool) {
	for n := 0; !ended(l.finished); n++ {
		m := commands.Message{RoutingKey: key, Payload: fmt.Appendf(nil, "%s-%06d", key, n)}
		if dedup {
			m.DedupID = string(m.Payload)
		}
		for !ended(l.stopped) {
			res, err := l.Publish(context.Background(), commands.PublishRequest{Channel: queue, Messages: []commands.Message{m}})
			if err == nil {
				l.mu.Lock()
				l.stored[res.Messages[0].MessageID] = string(m.Payload)
				l.mu.Unlock()
				l.published.Add(1)
				break
			}
			if !l.note("publish", err) || !dedup {
				break
			}
		}
	}
}

// consumeAll polls and acks until the load is stopped.
func (l *load) consumeAll(queue string) {
	consuming, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-l.stopped:
			cancel()
		case <-consuming.Done():
		}
	}()
	for !ended(l.stopped) {
		got, err := l.Poll(consuming, commands.PollRequest{Queue: queue, Max: 5, Wait: 5 * time.Second})
		if err != nil {
			if !errors.Is(err, context.Canceled) {
				l.note("poll", err)
			}
			continue
		}
		if len(got) > 0 {
			l.ackAll(queue, got)
		}
	}
}

// ackAll acks until there is an answer.
func (l *load) ackAll(queue string, got []commands.Delivery) {
	for !ended(l.stopped) {
		res, err := l.Ack(context.Background(), settle(queue, got...))
		if err != nil {
			if !l.note("ack", err) {
				return
			}
			continue
		}
		lost := map[string]bool{}
		for _, f := range res.Failed {
			lost[f.Receipt] = true
			// unknown: the delivery itself was lost with the server
			assert.Contains(l.t, []eventstore.Code{eventstore.LeaseLost, eventstore.ReceiptUnknown}, f.Code)
		}
		l.mu.Lock()
		for _, d := range got {
			if !lost[d.Receipt.String()] {
				l.acked[d.MessageID] = true
			}
		}
		l.mu.Unlock()
		l.settled.Add(int64(len(got) - len(lost)))
		return
	}
}

// note counts a refusal, which must be one that may be retried, and waits a
// little, as a client does.
func (l *load) note(what string, err error) bool {
	e, ok := errors.AsType[*eventstore.Error](err)
	if !assert.True(l.t, ok, "%s: %v", what, err) || !assert.Positive(l.t, e.RetryAfter, "%s: %v", what, err) {
		return false
	}
	l.mu.Lock()
	l.failed[what+" "+string(e.Code)]++
	l.mu.Unlock()
	select {
	case <-time.After(20 * time.Millisecond):
	case <-l.stopped:
	}
	return true
}

// flows waits until publishers and consumers get on.
func (l *load) flows(after string) {
	l.t.Helper()
	published, settled := l.published.Load(), l.settled.Load()
	require.Eventually(l.t, func() bool {
		return l.published.Load() > published+100 && l.settled.Load() > settled+100
	}, forgiving, 10*time.Millisecond, "after %s", after)
}

// drain ends the publishers, lets the consumers take everything, and ends them.
func (l *load) drain() {
	l.t.Helper()
	l.finish()
	l.publishers.Wait()
	require.Eventually(l.t, func() bool { return l.states("s")+l.states("f") == "" }, forgiving, 20*time.Millisecond,
		"s: %s, f: %s", lazy(func() string { return l.states("s") }), lazy(func() string { return l.states("f") }))
	l.stop()
	l.consumers.Wait()
	l.t.Log("published", len(l.stored), "acked", len(l.acked), "refused", l.failed)
}

// logged is what these tests need of an event.
type logged struct {
	Position   eventstore.Position
	Kind       eventstore.Kind
	Payload    string
	Key        string
	MessageIDs []eventstore.MessageID
}

// events are the log of messages.
func (b broker) events() []logged {
	b.t.Helper()
	rows, err := b.pool.Query(ctx, `
		select position, kind::text, coalesce(convert_from(payload, 'UTF8'), ''), coalesce(routing_key, ''), message_ids
		from leat.events where kind::text like 'message.%' order by position`)
	require.NoError(b.t, err)
	events, err := pgx.CollectRows(rows, pgx.RowToStructByPos[logged])
	require.NoError(b.t, err)
	return events
}

// check compares what was answered with the log, and the log with itself. It
// spares itself assertions that hold, of which there would be very many.
func (l *load) check() {
	l.t.Helper()
	log := l.readLog()
	for id, payload := range l.stored {
		if m := log[id]; m == nil || m.payload != payload {
			l.t.Errorf("the answered publish %d of %s is lost: %+v", id, payload, m)
		}
	}
	for id := range l.acked {
		if log[id].acks != 1 {
			l.t.Errorf("the answered ack of %d is lost", id)
		}
	}
	times := map[string]int{}
	for id, m := range log {
		times[m.payload]++
		if m.acks != 1 || times[m.payload] > 1 {
			l.t.Errorf("message %d: acked %d times, stored %d times: %s", id, m.acks, times[m.payload], m.payload)
		}
	}
	for i := range loadKeys {
		n := 0
		for times[fmt.Sprintf("k%d-%06d", i, n)] == 1 {
			n++
		}
		require.Positive(l.t, n)
		require.Zero(l.t, times[fmt.Sprintf("k%d-%06d", i, n+1)], "a gap in key k%d", i)
	}
	l.verify()
}

// fate is what the log says of a message.
type fate struct {
	payload, key string
	acks         int
}

// readLog reads the fates of all messages: nothing happens to a message after
// its ack, and in a FIFO key nothing overtakes.
func (l *load) readLog() map[eventstore.MessageID]*fate {
	l.t.Helper()
	log := map[eventstore.MessageID]*fate{}
	waiting := map[string][]eventstore.MessageID{} // per key: what is not acked, in order
	for _, e := range l.events() {
		if e.Kind == eventstore.MessagePublished {
			id := eventstore.MessageID(e.Position)
			log[id] = &fate{payload: e.Payload, key: e.Key}
			waiting[e.Key] = append(waiting[e.Key], id)
			continue
		}
		for _, id := range e.MessageIDs {
			m := log[id]
			place := slices.Index(waiting[m.key], id)
			switch {
			case m.acks > 0:
				l.t.Errorf("message %d was acked, and then %s at %d", id, e.Kind, e.Position)
			case e.Kind == eventstore.MessageAcked:
				m.acks++
				waiting[m.key] = slices.Delete(waiting[m.key], place, place+1)
			case e.Kind == eventstore.MessageDelivered && m.key[0] == 'k':
				for _, before := range waiting[m.key][:place] {
					if !slices.Contains(e.MessageIDs, before) {
						l.t.Errorf("message %d of %s overtook %d at %d", id, m.key, before, e.Position)
					}
				}
			}
		}
	}
	return log
}

// G2, F28: whatever happens to the server, no answered publish and no answered
// ack is lost, a refusal may be retried, and everything goes on by itself.
func TestG2F28ServerFaultsUnderLoad(t *testing.T) {
	t.Parallel()
	server := dbtest.Cluster(t, map[string]string{"fsync": "off"})
	b := wired(t, server.URL())
	b.declare("idle", commands.Standard, commands.PolicyPatch{})
	idle := make(chan []commands.Delivery, 1)
	go func() {
		var got []commands.Delivery
		for len(got) == 0 && !t.Failed() { // on a slow machine all of this takes longer than a poll may wait
			var err error
			got, err = b.Poll(ctx, commands.PollRequest{Queue: "idle", Max: 1, Wait: 60 * time.Second})
			assert.NoError(t, err, "a waiting poll survives")
		}
		idle <- got
	}()
	l := newLoad(b)
	l.flows("the start")

	for _, fault := range []struct {
		name string
		do   func()
	}{
		{"connections killed", func() { killConnections(t, b.pool, 20) }},
		{"fast restart", func() { restart(t, server) }},
		{"immediate restart", func() {
			require.NoError(t, syscall.Kill(server.PID(), syscall.SIGQUIT))
			restart(t, server)
		}},
		{"kill -9", func() {
			server.Kill()
			restart(t, server)
		}},
		{"some seconds away", func() {
			server.Kill()
			<-time.After(2 * time.Second)
			restart(t, server)
		}},
		{"standby, then promoted", func() {
			standBy(t, b.pool)
			restart(t, server)
			<-time.After(time.Second)
			insist(t, b.pool, `select pg_promote()`)
		}},
		{"read-only for a while", func() {
			insist(t, b.pool, `alter database leat set default_transaction_read_only = on`)
			killConnections(t, b.pool, 2)
			<-time.After(time.Second)
			insist(t, b.pool, `set default_transaction_read_only = off`, `alter database leat reset default_transaction_read_only`)
		}},
	} {
		fault.do()
		l.flows(fault.name)
	}
	l.drain()
	l.check()
	b.publishTexts("idle", "", "x")
	select {
	case got := <-idle:
		require.Len(t, got, 1)
	case <-time.After(forgiving):
		t.Fatal("the waiting poll was forgotten")
	}
}

func restart(t *testing.T, server *pgserver.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), forgiving)
	defer cancel()
	require.NoError(t, server.Restart(ctx))
}

// standBy makes the server come up as a standby when it is started next.
func standBy(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	var data string
	require.NoError(t, pool.QueryRow(ctx, `show data_directory`).Scan(&data))
	require.NoError(t, os.WriteFile(filepath.Join(data, "standby.signal"), nil, 0o666))
}

// insist runs statements in one session until they succeed.
func insist(t *testing.T, pool *pgxpool.Pool, statements ...string) {
	t.Helper()
	require.Eventually(t, func() bool {
		return pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
			for _, sql := range statements {
				if _, err := conn.Exec(ctx, sql); err != nil {
					return err
				}
			}
			return nil
		}) == nil
	}, forgiving, 20*time.Millisecond, statements)
}

// killConnections terminates backends of the database at random, time and again.
func killConnections(t *testing.T, pool *pgxpool.Pool, times int) {
	t.Helper()
	conn, err := pool.Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	for range times {
		_, err := conn.Exec(ctx, `
			select pg_terminate_backend(a.pid)
			from (select pid from pg_stat_activity
				where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'
				order by random() limit 3) a`)
		require.NoError(t, err)
		<-time.After(20 * time.Millisecond)
	}
}
