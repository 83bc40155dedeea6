package replication_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"leat/eventstore"
	"leat/migrations/dbtest"
	"leat/replication"
)

// stream is a stream whose messages a test writes by itself: message n has the
// payload "n", and keys go round.
type stream struct {
	t       testing.TB
	pool    *pgxpool.Pool
	name    string
	channel eventstore.ChannelID
	epoch   eventstore.Position
	next    eventstore.Offset
}

// keys are the routing keys of the messages, in turn.
var keys = []string{"a", "a.b", "b", "a.c"}

func payload(n eventstore.Offset) string { return "message " + n.String() }

func key(n eventstore.Offset) string { return keys[int(n)%len(keys)] }

// newStream declares a stream.
func newStream(t testing.TB, pool *pgxpool.Pool, name string) *stream {
	t.Helper()
	s := &stream{t: t, pool: pool, name: name}
	require.NoError(t, pool.QueryRow(ctx, `
		with declared as (
			insert into leat.channels (name, kind, mode, lease, max_deliveries, retry_strategy, base_delay, max_delay, jitter,
				non_retryable, dead_letter_expired, dedup_window, priority_ageing, declared_at, epoch)
			values ($1, 'stream', 'stream', '30 s', 5, 'fixed', '1 s', '1 s', 0, '{}', false, '0', '0', now(),
				nextval('leat.position_seq'))
			returning id, epoch
		), began as (
			insert into leat.streams (channel_id) select id from declared
		), ended as (
			insert into leat.stream_heads (channel_id, next_offset, bytes) select id, 0, 0 from declared
		)
		select id, epoch from declared`, name).Scan(&s.channel, &s.epoch))
	return s
}

// write is a transaction that appends messages, one row each.
const write = `
	with head as (
		update leat.stream_heads set next_offset = next_offset + $2
		where channel_id = $1
		returning next_offset - $2 as first
	)
	insert into leat.events (kind, channel_id, stream_offset, routing_key, payload, content_type, headers)
	select 'message.published', $1, first + i, ($3::text[])[1 + (first + i) % cardinality($3::text[])],
		convert_to('message ' || (first + i) || repeat(' ', $4), 'UTF8'),
		case when (first + i) % 5 = 0 then 'text/plain' end, case when (first + i) % 3 = 0 then '{"own": 1, "both": 1}'::jsonb end
	from head, generate_series(0, $2 - 1) i`

// copyIn is a transaction that appends copies of messages that it publishes to
// another channel, as one row.
const copyIn = `
	with head as (
		update leat.stream_heads set next_offset = next_offset + $2
		where channel_id = $1
		returning next_offset - $2 as first
	), origins as (
		insert into leat.events (kind, channel_id, routing_key, payload, content_type, headers)
		select 'message.published', -1, 'k', convert_to('message ' || (first + i) || repeat(' ', $4), 'UTF8'),
			case when (first + i) % 5 = 0 then 'text/plain' end, case when (first + i) % 3 = 0 then '{"own": 1, "both": 1}'::jsonb end
		from head, generate_series(0, $2 - 1) i
		returning position
	)
	insert into leat.events (kind, channel_id, stream_offset, headers, message_ids, origin_ids, data)
	select 'message.copied', $1, first, case when first % 2 = 0 then '{"both": 2}'::jsonb end,
		array(select nextval('leat.position_seq') from generate_series(1, $2)), array(select position from origins order by position),
		jsonb_build_object('keys', array(select ($3::text[])[1 + (first + i) % cardinality($3::text[])] from generate_series(0, $2 - 1) i))
	from head`

// append commits n messages.
func (s *stream) append(n int) { s.commit(write, n) }

// copies commits a row of n copies.
func (s *stream) copies(n int) { s.commit(copyIn, n) }

func (s *stream) commit(sql string, n int) {
	s.t.Helper()
	_, err := s.pool.Exec(ctx, sql, s.channel, n, keys, 0)
	require.NoError(s.t, err)
	s.next += eventstore.Offset(n)
}

// rollBack appends n messages that never were.
func (s *stream) rollBack(n int) {
	s.t.Helper()
	tx, err := s.pool.Begin(ctx)
	require.NoError(s.t, err)
	_, err = tx.Exec(ctx, write, s.channel, n, keys, 0)
	require.NoError(s.t, err)
	require.NoError(s.t, tx.Rollback(ctx))
}

// trim lets the stream begin at an offset.
func (s *stream) trim(first eventstore.Offset) {
	s.t.Helper()
	_, err := s.pool.Exec(ctx, `update leat.streams set first_offset = $2 where channel_id = $1`, s.channel, first)
	require.NoError(s.t, err)
}

// delete deletes the stream.
func (s *stream) delete() {
	s.t.Helper()
	require.NoError(s.t, pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		for _, sql := range []string{
			`update leat.channels set deleted_at = now() where id = $1`,
			`delete from leat.streams where channel_id = $1`,
			`delete from leat.stream_heads where channel_id = $1`,
		} {
			if _, err := tx.Exec(ctx, sql, s.channel); err != nil {
				return err
			}
		}
		return nil
	}))
}

// messages are what a tail makes of rows that were written.
func (s *stream) messages(first eventstore.Offset, n int) []*eventstore.StreamMessage {
	messages := make([]*eventstore.StreamMessage, n)
	for i := range messages {
		o := first + eventstore.Offset(i)
		messages[i] = &eventstore.StreamMessage{
			Offset: o, MessageID: 1, OriginMessageID: 1, RoutingKey: key(o), Payload: []byte(payload(o)), ContentType: "application/json",
		}
	}
	return messages
}

// tell has a hub hear of messages, as from a tail.
func (s *stream) tell(hub *replication.Hub, first eventstore.Offset, n int) {
	for _, m := range s.messages(first, n) {
		if hub.Wants(s.channel, m.Offset+1) {
			hub.Message(s.channel, m)
		}
	}
	hub.Flush()
}

// startHub runs a hub on a database until the end of the test.
func startHub(t testing.TB, config replication.HubConfig) *replication.Hub {
	t.Helper()
	config.Logger = quiet
	hub := replication.NewHub(config)
	run(t, hub.Run)
	return hub
}

// hubOn is a hub on a database of its own, with a stream.
func hubOn(t testing.TB) (*replication.Hub, *stream) {
	t.Helper()
	pool := dbtest.New(t)
	hub := startHub(t, replication.HubConfig{Pool: pool})
	return hub, newStream(t, pool, "s")
}

// subscribe begins a subscription that ends with the test.
func (s *stream) subscribe(hub *replication.Hub, request eventstore.SubscribeRequest) *replication.Subscription {
	s.t.Helper()
	request.Stream = s.name
	sub, err := hub.Subscribe(ctx, request)
	require.NoError(s.t, err)
	s.t.Cleanup(sub.Close)
	return sub
}

// from starts at an offset.
func from(n eventstore.Offset) eventstore.Start {
	return eventstore.Start{Kind: eventstore.StartOffset, Offset: n}
}

// reader checks what a subscription hands over.
type reader struct {
	t    testing.TB
	sub  *replication.Subscription
	next eventstore.Offset
}

// next is the next batch.
func next(ctx context.Context, sub *replication.Subscription) (eventstore.StreamBatch, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return sub.Next(ctx, 0)
}

// until reads every message up to an offset, in order.
func (r *reader) until(end eventstore.Offset) {
	r.t.Helper()
	for r.next < end {
		batch, err := next(ctx, r.sub)
		require.NoError(r.t, err)
		require.NoError(r.t, r.check(batch))
	}
	require.Equal(r.t, end, r.next)
}

// check checks a batch without a pattern.
func (r *reader) check(batch eventstore.StreamBatch) error {
	for _, m := range batch.Messages {
		if m.Offset != r.next || string(m.Payload) != payload(m.Offset) || m.RoutingKey != key(m.Offset) {
			return fmt.Errorf("got message %d, %q, %q for %d", m.Offset, m.RoutingKey, m.Payload, r.next)
		}
		r.next++
	}
	if batch.Next.Offset != r.next || batch.End < r.next {
		return fmt.Errorf("next %v and end %v after message %d", batch.Next, batch.End, r.next-1)
	}
	return nil
}

// read reads from where a subscription begins.
func read(t testing.TB, sub *replication.Subscription) *reader {
	t.Helper()
	return &reader{t: t, sub: sub, next: sub.Subscribed().Next.Offset}
}

// requireCode checks a refusal.
func requireCode(t testing.TB, err error, code eventstore.Code, resume *eventstore.StreamPosition) {
	t.Helper()
	var e *eventstore.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, code, e.Code, "%v", err)
	require.Equal(t, resume, e.Resume)
}

// soon is an idle time for tests that wait for nothing.
const soon = 10 * time.Millisecond
