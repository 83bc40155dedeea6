package commands_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"leat/commands"
	"leat/eventstore"
	"leat/migrations/dbtest"
)

// stream makes a stream.
func (b broker) stream(name string, policy commands.PolicyPatch) commands.Channel {
	b.t.Helper()
	c, created, err := b.DeclareChannel(ctx, "test", commands.ChannelSpec{Name: name, Kind: commands.Stream, Policy: policy})
	require.NoError(b.t, err)
	require.True(b.t, created)
	return c
}

// streamed is what the log has of a stream, in the order of the offsets: "offset payload key".
func (b broker) streamed(name string) []string {
	b.t.Helper()
	return texts(b.t.(*testing.T), b.pool, `
		select format('%s %s %s', m.stream_offset, convert_from(o.payload, 'UTF8'), m.key)
		from leat.channels c
		join leat.events e on e.channel_id = c.id and e.stream_offset is not null
		cross join lateral (
			select e.position as id, e.position as origin, e.stream_offset, e.routing_key as key where e.kind = 'message.published'
			union all
			select i.id, i.origin, e.stream_offset + i.n - 1, coalesce(e.routing_key, i.key)
			from rows from (unnest(e.message_ids), unnest(e.origin_ids), jsonb_array_elements_text(e.data -> 'keys'))
				with ordinality i (id, origin, key, n)
			where e.kind = 'message.copied'
		) m
		join leat.events o on o.position = m.origin
		where c.name = $1 and c.deleted_at is null
		order by m.stream_offset`, name)
}

// head is where a stream ends, and how many bytes it got.
func (b broker) head(name string) (next eventstore.Offset, bytes int64) {
	b.t.Helper()
	require.NoError(b.t, b.pool.QueryRow(ctx, `
		select h.next_offset, h.bytes from leat.stream_heads h
		join leat.channels c on c.id = h.channel_id
		where c.name = $1 and c.deleted_at is null`, name).Scan(&next, &bytes))
	return next, bytes
}

func message(key, payload string) commands.Message {
	return commands.Message{RoutingKey: key, Payload: []byte(payload)}
}

func offsets(result commands.PublishResult) []eventstore.Offset {
	out := make([]eventstore.Offset, len(result.Messages))
	for i, m := range result.Messages {
		out[i] = -1
		if m.Offset != nil {
			out[i] = *m.Offset
		}
	}
	return out
}

func TestStreamPublish(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.stream("s", commands.PolicyPatch{})
	require.Equal(t, commands.Stream, s.Kind)
	require.Empty(t, s.Mode)
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	for i, m := range []commands.Message{message("a", "one"), message("b", "two"), message("a", "")} {
		res, err := b.Publish(ctx, commands.PublishRequest{Channel: "s", Messages: []commands.Message{m}})
		require.NoError(t, err)
		require.Equal(t, []eventstore.Offset{eventstore.Offset(i)}, offsets(res))
	}
	res, err := b.Publish(ctx, commands.PublishRequest{Channel: "s", Messages: []commands.Message{message("", "four"), message("k", "five")}})
	require.NoError(t, err)
	require.Equal(t, []eventstore.Offset{3, 4}, offsets(res))
	require.Equal(t, []string{"0 one a", "1 two b", "2  a", "3 four ", "4 five k"}, b.streamed("s"))
	next, bytes := b.head("s")
	require.Equal(t, eventstore.Offset(5), next)
	require.EqualValues(t, 3+3+4+4, bytes)

	res, err = b.Publish(ctx, commands.PublishRequest{Channel: "q", Messages: []commands.Message{message("", "x")}})
	require.NoError(t, err)
	require.Nil(t, res.Messages[0].Offset)
	require.Empty(t, texts(t, b.pool, `select message_id::text from leat.queue_messages where channel = 's'`))
	require.Empty(t, texts(t, b.pool, `select routing_key from leat.lanes`))
}

// A rolled back publish gives its offsets back, and who comes after waits for it.
func TestStreamPublishTx(t *testing.T) {
	t.Parallel()
	b := serve(t, dbtest.New(t), commands.Config{Limits: commands.Limits{PublishWait: 300 * time.Millisecond}})
	b.stream("s", commands.PolicyPatch{})
	b.stream("other", commands.PolicyPatch{})
	publish := func(tx pgx.Tx, payload string) []eventstore.Offset {
		res, err := b.PublishTx(ctx, tx, commands.PublishRequest{Channel: "s", Messages: []commands.Message{message("", payload)}})
		require.NoError(t, err)
		return offsets(res)
	}
	tx, err := b.pool.Begin(ctx)
	require.NoError(t, err)
	require.Equal(t, []eventstore.Offset{0}, publish(tx, "lost"))

	_, err = b.Publish(ctx, commands.PublishRequest{Channel: "s", Messages: []commands.Message{message("", "busy")}})
	require.Equal(t, eventstore.Busy, refusal(t, err).Code)
	b.publishTexts("other", "", "not in the way")
	require.NoError(t, tx.Rollback(ctx))

	tx, err = b.pool.Begin(ctx)
	require.NoError(t, err)
	require.Equal(t, []eventstore.Offset{0}, publish(tx, "kept"))
	require.Equal(t, []eventstore.Offset{1}, publish(tx, "too"))
	require.NoError(t, tx.Commit(ctx))
	b.publishTexts("s", "", "after")
	require.Equal(t, []string{"0 kept ", "1 too ", "2 after "}, b.streamed("s"))
}

func TestStreamBadInput(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.stream("s", commands.PolicyPatch{})
	for field, m := range map[string]commands.Message{
		"priority":  {Priority: 1},
		"delay":     {Delay: time.Second},
		"deliverAt": {DeliverAt: time.Now()},
		"ttl":       {TTL: time.Hour},
		"expiresAt": {ExpiresAt: time.Now().Add(time.Hour)},
	} {
		_, err := b.Publish(ctx, commands.PublishRequest{Channel: "s", Messages: []commands.Message{message("", "fine"), m}})
		e := refusal(t, err)
		require.Equal(t, eventstore.InvalidField, e.Code)
		require.Equal(t, 1, e.Index)
		require.Equal(t, field, e.Field)
	}
	res, err := b.Publish(ctx, commands.PublishRequest{Channel: "s", Partial: true, Messages: []commands.Message{{TTL: time.Hour}, message("", "fine")}})
	require.NoError(t, err)
	require.Equal(t, eventstore.InvalidField, res.Messages[0].Err.Code)
	require.Equal(t, []eventstore.Offset{-1, 0}, offsets(res))

	for field, options := range map[string]string{
		"priority":  `priority => 1::smallint`,
		"deliverAt": `deliver_at => now()`,
		"expiresAt": `expires_at => clock_timestamp() + interval '1 hour'`,
	} {
		_, err := b.pool.Exec(ctx, `select leat.publish('s', 'x', `+options+`)`)
		e := refusal(t, eventstore.FromPg(err))
		require.Equal(t, eventstore.InvalidField, e.Code)
		require.Equal(t, field, e.Field)
		require.Equal(t, 0, e.Index)
	}
	require.Equal(t, []string{"0 fine "}, b.streamed("s"))

	_, err = b.Poll(ctx, commands.PollRequest{Queue: "s", Max: 1})
	require.Equal(t, eventstore.ChannelNotFound, refusal(t, err).Code)
	require.ErrorContains(t, err, "it is a stream")
	_, err = b.pool.Exec(ctx, `select * from leat.poll('s')`)
	require.ErrorContains(t, err, "it is a stream")
	require.Equal(t, eventstore.ChannelNotFound, refusal(t, eventstore.FromPg(err)).Code)
}

func TestStreamDeclare(t *testing.T) {
	t.Parallel()
	b := setup(t)
	age := time.Hour
	s := b.stream("s", commands.PolicyPatch{Retention: commands.RetentionPatch{Age: &age, Messages: new(int64(10))}})
	require.Equal(t, commands.Retention{Age: age, Messages: 10}, s.Policy.Retention)
	again, created, err := b.DeclareChannel(ctx, "", commands.ChannelSpec{
		Name: "s", Kind: commands.Stream, Policy: commands.PolicyPatch{Retention: commands.RetentionPatch{Age: &age}},
	})
	require.NoError(t, err)
	require.False(t, created)
	require.Equal(t, s, again)
	_, _, err = b.DeclareChannel(ctx, "", commands.ChannelSpec{
		Name: "s", Kind: commands.Stream, Policy: commands.PolicyPatch{Retention: commands.RetentionPatch{Bytes: new(int64(1))}},
	})
	require.Equal(t, "retention.bytes", refusal(t, err).Field)
	require.Equal(t, eventstore.ChannelConflict, refusal(t, err).Code)
	_, _, err = b.DeclareChannel(ctx, "", commands.ChannelSpec{Name: "s"})
	require.Equal(t, eventstore.ChannelConflict, refusal(t, err).Code)

	altered, err := b.AlterChannel(ctx, "", "s", commands.PolicyPatch{Retention: commands.RetentionPatch{Bytes: new(int64(5))}})
	require.NoError(t, err)
	require.Equal(t, commands.Retention{Age: age, Bytes: 5, Messages: 10}, altered.Policy.Retention)
	require.Equal(t, []string{`{"kind": "stream", "mode": "stream", "name": "s", "dedup_window": "00:10:00", "retention_age": "01:00:00", "retention_bytes": 5, "retention_messages": 10}`},
		texts(t, b.pool, `select data::text from leat.events where kind = 'channel.altered'`))

	lease := time.Second
	for field, spec := range map[string]commands.ChannelSpec{
		"mode":               {Kind: commands.Stream, Mode: commands.FIFO},
		"type":               {Kind: commands.Stream, Type: commands.Topic},
		"lease":              {Kind: commands.Stream, Policy: commands.PolicyPatch{Lease: &lease}},
		"circuit":            {Kind: commands.Stream, Policy: commands.PolicyPatch{Circuit: commands.CircuitPatch{Threshold: new(2)}}},
		"retry":              {Kind: commands.Stream, Policy: commands.PolicyPatch{Retry: commands.RetryPatch{MaxDelay: &lease}}},
		"deadLetterTo":       {Kind: commands.Stream, Policy: commands.PolicyPatch{DeadLetterTo: new("q")}},
		"retention.age":      {Kind: commands.Stream, Policy: commands.PolicyPatch{Retention: commands.RetentionPatch{Age: new(-time.Second)}}},
		"retention.messages": {Kind: commands.Stream, Policy: commands.PolicyPatch{Retention: commands.RetentionPatch{Messages: new(int64(-1))}}},
		"retention":          {Policy: commands.PolicyPatch{Retention: commands.RetentionPatch{Messages: new(int64(1))}}},
		"policy":             {Kind: commands.Exchange, Type: commands.Topic, Policy: commands.PolicyPatch{Retention: commands.RetentionPatch{Messages: new(int64(1))}}},
	} {
		spec.Name = "bad"
		_, _, err := b.DeclareChannel(ctx, "", spec)
		require.Equal(t, eventstore.InvalidField, refusal(t, err).Code, field)
		require.Equal(t, field, refusal(t, err).Field)
	}
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	for name, patch := range map[string]commands.PolicyPatch{
		"s": {MaxDeliveries: new(1)},
		"q": {Retention: commands.RetentionPatch{Age: &age}},
	} {
		_, err := b.AlterChannel(ctx, "", name, patch)
		require.Equal(t, eventstore.InvalidField, refusal(t, err).Code)
		require.Contains(t, []string{"maxDeliveries", "retention.age"}, refusal(t, err).Field)
	}
}

// Another stream of the same name has another epoch, and begins again.
func TestStreamDelete(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.stream("s", commands.PolicyPatch{})
	b.publishTexts("s", "", "one", "two")
	_, err := b.pool.Exec(ctx, `with p as (insert into leat.points values ($1, 'p', 1, now(), 1) returning channel_id, name)
		insert into leat.point_positions select channel_id, name, 0, 0, now() from p`, first.ID)
	require.NoError(t, err)
	require.Equal(t, eventstore.ChannelNotEmpty, refusal(t, b.DeleteChannel(ctx, "", "s", false)).Code)
	require.NoError(t, b.DeleteChannel(ctx, "", "s", true))
	require.Equal(t, []string{"0"}, texts(t, b.pool, `select (select count(*) from leat.streams) + (select count(*) from leat.stream_heads)
		+ (select count(*) from leat.points) + (select count(*) from leat.point_positions)`))
	_, err = b.Publish(ctx, commands.PublishRequest{Channel: "s", Messages: []commands.Message{{}}})
	require.Equal(t, eventstore.ChannelNotFound, refusal(t, err).Code)

	second := b.stream("s", commands.PolicyPatch{})
	require.Greater(t, second.Epoch, first.Epoch)
	b.publishTexts("s", "", "three")
	require.Equal(t, []string{"0 three "}, b.streamed("s"))
	require.NoError(t, b.DeleteChannel(ctx, "", "s", true))
	b.stream("s", commands.PolicyPatch{})
	require.NoError(t, b.DeleteChannel(ctx, "", "s", false)) // nothing in it
}

func TestStreamDedup(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.stream("s", commands.PolicyPatch{})
	one := commands.Message{Payload: []byte("1"), DedupID: "1"}
	two := commands.Message{Payload: []byte("2"), DedupID: "2"}
	res, err := b.Publish(ctx, commands.PublishRequest{Channel: "s", Messages: []commands.Message{message("", "0"), one}})
	require.NoError(t, err)
	require.Equal(t, []eventstore.Offset{0, 1}, offsets(res))
	res, err = b.Publish(ctx, commands.PublishRequest{Channel: "s", Messages: []commands.Message{two, one, two, message("", "3")}})
	require.NoError(t, err)
	require.Equal(t, []eventstore.Offset{2, 1, 2, 3}, offsets(res))
	require.True(t, res.Messages[1].Duplicate)
	require.True(t, res.Messages[2].Duplicate)
	two.Payload = []byte("other")
	_, err = b.Publish(ctx, commands.PublishRequest{Channel: "s", Messages: []commands.Message{message("", "4"), two}})
	require.Equal(t, eventstore.DedupConflict, refusal(t, err).Code)
	require.Equal(t, []string{"0 0 ", "1 1 ", "2 2 ", "3 3 "}, b.streamed("s"))
}

// Copies come to a stream in the order of the publishes, without their times.
func TestStreamLinks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exchange("x", commands.Topic)
	b.declare("f", commands.FIFO, commands.PolicyPatch{})
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	b.stream("s", commands.PolicyPatch{})
	b.stream("t", commands.PolicyPatch{})
	b.link("x", "s", topic("#"))
	b.link("x", "q", topic("b"))
	b.link("f", "s", commands.Match{})
	b.link("s", "t", commands.Match{})
	b.link("t", "q", commands.Match{})

	b.publishTexts("x", "a", "1", "2", "3") // all alike
	for _, m := range []commands.Message{message("b", "4"), {RoutingKey: "a", Payload: []byte("5"), Priority: 3, Delay: time.Hour, TTL: 2 * time.Hour}} {
		b.publish("x", m)
	}
	b.publish("f", message("k", "6"), message("l", "7"))
	res, err := b.Publish(ctx, commands.PublishRequest{Channel: "s", Messages: []commands.Message{message("", "8"), message("", "9")}})
	require.NoError(t, err)
	require.Equal(t, []eventstore.Offset{7, 8}, offsets(res))
	require.Equal(t, []string{"t"}, res.Messages[0].RoutedTo[1:])
	want := []string{"0 1 a", "1 2 a", "2 3 a", "3 4 b", "4 5 a", "5 6 k", "6 7 l", "7 8 ", "8 9 "}
	require.Equal(t, want, b.streamed("s"))
	require.Equal(t, want, b.streamed("t"))
	next, bytes := b.head("t")
	require.EqualValues(t, 9, next)
	require.EqualValues(t, 9, bytes)
	require.Equal(t, "delayed:1 ready:8", b.states("q"))
	require.Empty(t, texts(t, b.pool, `select position::text from leat.events
		where stream_offset is not null and num_nonnulls(priority, due_at, expires_at) > 0`))
	b.verify()
}

// Copies of different publishers in one batch stay in the order of the batch.
func TestStreamCopiesInOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exchange("x", commands.Fanout)
	b.stream("s", commands.PolicyPatch{})
	b.stream("t", commands.PolicyPatch{})
	b.link("x", "s", commands.Match{})
	b.link("x", "t", commands.Match{})
	for range 3 {
		_, err := b.pool.Exec(ctx, `
			select leat.publish_many(array[1, 1, 2, 3, 4, 5], array_fill(c.id, '{6}'), '{k,k,k,k,l,k}',
				array(select convert_to(n::text, 'UTF8') from generate_series(1, 6) n), null, null, null, null, null, null, null, null,
				'{a,a,b,a,a,null}', true)
			from leat.channels c where c.name = 'x'`)
		require.NoError(t, err)
	}
	var want []string
	for i := range 18 {
		want = append(want, fmt.Sprintf("%d %d %s", i, i%6+1, map[bool]string{true: "l", false: "k"}[i%6 == 4]))
	}
	require.Equal(t, want, b.streamed("s"))
	require.Equal(t, want, b.streamed("t"))
}

func TestStreamOrderLost(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	b.declare("f", commands.FIFO, commands.PolicyPatch{})
	b.exchange("x", commands.Fanout)
	b.stream("s", commands.PolicyPatch{})
	b.link("x", "s", commands.Match{})
	b.link("s", "f", commands.Match{})
	for _, target := range []string{"s", "x"} {
		_, _, err := b.DeclareLink(ctx, "", commands.LinkSpec{Source: "q", Target: target})
		require.Equal(t, eventstore.OrderLost, refusal(t, err).Code)
		require.ErrorContains(t, err, "q -> ")
		_, err = b.AlterChannel(ctx, "", "q", commands.PolicyPatch{DeadLetterTo: &target})
		require.Equal(t, eventstore.OrderLost, refusal(t, err).Code)
		require.Equal(t, "deadLetterTo", refusal(t, err).Field)
	}
	_, _, err := b.DeclareLink(ctx, "", commands.LinkSpec{Source: "f", Target: "s"})
	require.Equal(t, eventstore.LinkCycle, refusal(t, err).Code)
}

// Dead letters may be sent into a stream.
func TestStreamRedrive(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{MaxDeliveries: new(1)})
	b.stream("s", commands.PolicyPatch{})
	b.publishTexts("q", "k", "one", "two", "three")
	_, err := b.pool.Exec(ctx, `select leat.nack('q', array(select receipt from leat.poll('q')), 'deadLetter')`)
	require.NoError(t, err)
	res, err := b.Recover(ctx, commands.RecoverRequest{DeadLetters: commands.DeadLetters{Queue: "q", All: true}, To: "s", TTL: time.Hour})
	require.NoError(t, err)
	require.EqualValues(t, 3, res.Done)
	require.Equal(t, []string{"0 one k", "1 two k", "2 three k"}, b.streamed("s"))
	b.verify()

	b.publishTexts("q", "k", "four")
	_, err = b.pool.Exec(ctx, `select leat.nack('q', array(select receipt from leat.poll('q')), 'deadLetter')`)
	require.NoError(t, err)
	tx, err := b.pool.Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, `select leat.publish('s', 'five')`)
	require.NoError(t, err)
	res, err = b.Recover(ctx, commands.RecoverRequest{DeadLetters: commands.DeadLetters{Queue: "q", All: true}, To: "s"})
	require.NoError(t, err)
	require.EqualValues(t, 1, res.Remaining)
	require.NoError(t, tx.Commit(ctx))
}

func TestStreamHeaders(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.stream("s", commands.PolicyPatch{})
	b.publish("s", commands.Message{Headers: json.RawMessage(`{"a":1}`), ContentType: "text/plain"})
	require.Equal(t, []string{`{"a": 1} text/plain`},
		texts(t, b.pool, `select headers::text || ' ' || content_type from leat.events where stream_offset = 0`))
}
