package commands_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"leat/commands"
	"leat/eventstore"
)

// G8: bad input gets a code, a field and an index, and nothing is stored.
func TestG8BadMessages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	b.declare("f", commands.FIFO, commands.PolicyPatch{})
	cases := map[string]struct {
		message commands.Message
		code    eventstore.Code
		field   string
	}{
		"payload":         {commands.Message{Payload: make([]byte, 1<<20+1)}, eventstore.PayloadTooLarge, "payload"},
		"long key":        {commands.Message{RoutingKey: strings.Repeat("🔑", 64)}, eventstore.KeyTooLong, "routingKey"},
		"NUL in key":      {commands.Message{RoutingKey: "a\x00b"}, eventstore.InvalidField, "routingKey"},
		"key not UTF-8":   {commands.Message{RoutingKey: "a\xff"}, eventstore.InvalidField, "routingKey"},
		"headers":         {commands.Message{Headers: []byte(`[]`)}, eventstore.InvalidField, "headers"},
		"large headers":   {commands.Message{Headers: []byte(`{"a":"` + strings.Repeat("x", 32<<10) + `"}`)}, eventstore.HeadersTooLarge, "headers"},
		"content type":    {commands.Message{ContentType: "a\x00"}, eventstore.InvalidField, "contentType"},
		"priority -1":     {commands.Message{Priority: -1}, eventstore.InvalidField, "priority"},
		"priority 10":     {commands.Message{Priority: 10}, eventstore.InvalidField, "priority"},
		"priority 2^31":   {commands.Message{Priority: 1 << 31}, eventstore.InvalidField, "priority"},
		"negative delay":  {commands.Message{Delay: -1}, eventstore.InvalidField, "delay"},
		"long delay":      {commands.Message{Delay: 100_000 * time.Hour}, eventstore.InvalidField, "delay"},
		"both delays":     {commands.Message{Delay: 1, DeliverAt: time.Now()}, eventstore.InvalidField, "deliverAt"},
		"1970":            {commands.Message{DeliverAt: time.Unix(0, 0)}, eventstore.InvalidField, "deliverAt"},
		"9999":            {commands.Message{DeliverAt: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}, eventstore.InvalidField, "deliverAt"},
		"negative ttl":    {commands.Message{TTL: -1}, eventstore.InvalidField, "ttl"},
		"expired":         {commands.Message{ExpiresAt: time.Now().Add(-time.Second)}, eventstore.InvalidField, "expiresAt"},
		"expires in 9999": {commands.Message{ExpiresAt: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}, eventstore.InvalidField, "expiresAt"},
		"both ends":       {commands.Message{TTL: 1, ExpiresAt: time.Now().Add(time.Hour)}, eventstore.InvalidField, "expiresAt"},
		"long dedup id":   {commands.Message{DedupID: strings.Repeat("x", 256)}, eventstore.InvalidField, "dedupId"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			messages := []commands.Message{{Payload: []byte("good")}, c.message, c.message}
			for _, queue := range []string{"q", "f"} {
				_, err := b.Publish(ctx, commands.PublishRequest{Channel: queue, Messages: messages})
				e := refusal(t, err)
				require.Equal(t, c.code, e.Code)
				require.Equal(t, c.field, e.Field)
				require.Equal(t, 1, e.Index)
				require.GreaterOrEqual(t, len(e.Errors), 2)
				require.Equal(t, *e, func() eventstore.Error { first := e.Errors[0]; first.Errors = e.Errors; return first }())
			}
		})
	}
	t.Cleanup(func() { require.Empty(t, b.states("q")+b.states("f")) })
}

func TestG8BadBatches(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	b.declare("f", commands.FIFO, commands.PolicyPatch{})
	cases := map[string]struct {
		req  commands.PublishRequest
		code eventstore.Code
	}{
		"empty":           {commands.PublishRequest{Channel: "q"}, eventstore.BatchEmpty},
		"10,001":          {commands.PublishRequest{Channel: "q", Messages: make([]commands.Message, 10_001)}, eventstore.BatchTooLarge},
		"over 16 MiB":     {commands.PublishRequest{Channel: "q", Messages: large(17)}, eventstore.BatchTooLarge},
		"no such queue":   {commands.PublishRequest{Channel: "nope", Messages: make([]commands.Message, 1)}, eventstore.ChannelNotFound},
		"bad name":        {commands.PublishRequest{Channel: "a\x00'\"", Messages: make([]commands.Message, 1)}, eventstore.ChannelNotFound},
		"actor":           {commands.PublishRequest{Channel: "q", Actor: "\x00", Messages: make([]commands.Message, 1)}, eventstore.InvalidField},
		"priority in f":   {commands.PublishRequest{Channel: "f", Messages: []commands.Message{{Priority: 1}}}, eventstore.InvalidField},
		"many bad":        {commands.PublishRequest{Channel: "q", Messages: bad(500)}, eventstore.InvalidField},
		"partial, 10,001": {commands.PublishRequest{Channel: "q", Partial: true, Messages: make([]commands.Message, 10_001)}, eventstore.BatchTooLarge},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := b.Publish(ctx, c.req)
			e := refusal(t, err)
			require.Equal(t, c.code, e.Code)
			require.LessOrEqual(t, len(e.Errors), 100)
		})
	}
}

func large(n int) []commands.Message {
	messages := make([]commands.Message, n)
	for i := range messages {
		messages[i].Payload = make([]byte, 1<<20)
	}
	return messages
}

func bad(n int) []commands.Message {
	messages := make([]commands.Message, n)
	for i := range messages {
		messages[i].Priority = 77
	}
	return messages
}

func TestPublishPartial(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	b.publish("q", commands.Message{Payload: []byte("first"), DedupID: "d"})
	res, err := b.Publish(ctx, commands.PublishRequest{Channel: "q", Partial: true, Messages: []commands.Message{
		{Payload: []byte("a")},
		{Priority: 10},
		{Payload: []byte("first"), DedupID: "d"},
		{Payload: []byte("other"), DedupID: "d"},
		{Payload: []byte("b")},
	}})
	require.NoError(t, err)
	require.Nil(t, res.Messages[0].Err)
	require.Equal(t, eventstore.InvalidField, res.Messages[1].Err.Code)
	require.Equal(t, 1, res.Messages[1].Err.Index)
	require.True(t, res.Messages[2].Duplicate)
	require.Equal(t, eventstore.DedupConflict, res.Messages[3].Err.Code)
	require.Equal(t, res.Messages[2].MessageID, res.Messages[3].MessageID)
	require.Nil(t, res.Messages[4].Err)
	require.Equal(t, eventstore.Position(res.Messages[4].MessageID), res.Position)
	require.Equal(t, []string{"first", "a", "b"}, payloads(b.receive("q", 3)))
	b.verify()
}

// All of a partial request may be refused; it is still an answer.
func TestPublishPartialAllBad(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	res, err := b.Publish(ctx, commands.PublishRequest{Channel: "q", Partial: true, Messages: bad(3)})
	require.NoError(t, err)
	for _, m := range res.Messages {
		require.Equal(t, eventstore.InvalidField, m.Err.Code)
	}
}

// FS8: the loser of a dedup race gets the winner's id.
func TestFS8DedupRace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		ids   = map[eventstore.MessageID]bool{}
		fresh int
	)
	for range 30 {
		wg.Go(func() {
			res, err := b.Publish(ctx, commands.PublishRequest{
				Channel:  "q",
				Messages: []commands.Message{{Payload: []byte("x"), DedupID: "d"}},
			})
			if !assert.NoError(t, err) {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			ids[res.Messages[0].MessageID] = true
			if !res.Messages[0].Duplicate {
				fresh++
			}
		})
	}
	wg.Wait()
	require.Len(t, ids, 1)
	require.Equal(t, 1, fresh)

	_, err := b.Publish(ctx, commands.PublishRequest{Channel: "q", Messages: []commands.Message{
		{Payload: []byte("new")}, {Payload: []byte("y"), DedupID: "d"},
	}})
	e := refusal(t, err)
	require.Equal(t, eventstore.DedupConflict, e.Code)
	require.Equal(t, 1, e.Index)
	for id := range ids {
		require.Contains(t, e.Message, id.String())
	}
	require.Equal(t, "ready:1", b.states("q"), "nothing of the refused request is stored")
}

// F23: payloads come out byte for byte, headers with their names.
func TestF23BytesSurvive(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	want := [][]byte{
		[]byte(`{"n":1234567890123456789,"m":0.1234567890123456789012,"e":1e400,"z":-0,"k":1,"k":2}`),
		all,
		{},
		bytes.Repeat([]byte{0xff}, 1<<20),
	}
	for _, payload := range want {
		b.publish("q", commands.Message{
			Payload: payload, RoutingKey: "ключ.🔑", ContentType: "application/x-test",
			Headers: []byte(`{"traceId":"1","TRACEID":"2","x-é":"3","n":1234567890123456789}`),
		})
	}
	for range 2 { // the second time after a retry
		got := b.receive("q", len(want))
		for i, d := range got {
			require.Equal(t, want[i], d.Payload)
			require.Equal(t, "ключ.🔑", d.RoutingKey)
			require.Equal(t, "application/x-test", d.ContentType)
			h := headers(t, d.Headers)
			require.Equal(t, "1", h["traceId"])
			require.Equal(t, "2", h["TRACEID"])
			require.Equal(t, "3", h["x-é"])
			require.Contains(t, string(d.Headers), "1234567890123456789")
		}
		_, err := b.Nack(ctx, commands.NackRequest{SettleRequest: settle("q", got...), Delay: new(time.Duration(0))})
		require.NoError(t, err)
	}
}

// A key held by an open transaction delays a FIFO publish; it holds up no other
// key of the same broker, and is let through at the end.
func TestPublishWaitsForHeldKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("f", commands.FIFO, commands.PolicyPatch{})
	tx, err := b.pool.Begin(ctx)
	require.NoError(t, err)
	_, err = b.PublishTx(ctx, tx, commands.PublishRequest{Channel: "f", Messages: []commands.Message{{RoutingKey: "k", Payload: []byte("1")}}})
	require.NoError(t, err)

	done := make(chan error, 1)
	go func() {
		_, err := b.Publish(ctx, commands.PublishRequest{Channel: "f", Messages: []commands.Message{{RoutingKey: "k", Payload: []byte("2")}}})
		done <- err
	}()
	for i := range 20 {
		b.publishTexts("f", fmt.Sprint("other-", i), "x")
	}
	select {
	case err := <-done:
		t.Fatalf("published while the key was held: %v", err)
	default:
	}
	require.NoError(t, tx.Commit(ctx))
	require.NoError(t, <-done)
	require.Equal(t, []string{"1", "2"}, payloads(b.poll(commands.PollRequest{Queue: "f", RoutingKeys: []string{"k"}})))
}

// A dedup id held by an open transaction delays its own publishes only.
func TestPublishWaitsForHeldDedup(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	held := commands.PublishRequest{Channel: "q", Messages: []commands.Message{{Payload: []byte("1"), DedupID: "d"}}}
	tx, err := b.pool.Begin(ctx)
	require.NoError(t, err)
	first, err := b.PublishTx(ctx, tx, held)
	require.NoError(t, err)

	done := make(chan commands.PublishResult, 1)
	go func() {
		res, err := b.Publish(ctx, held)
		assert.NoError(t, err)
		done <- res
	}()
	for range 20 {
		b.publishTexts("q", "", "x")
	}
	require.NoError(t, tx.Commit(ctx))
	second := <-done
	require.Equal(t, first.Messages[0].MessageID, second.Messages[0].MessageID)
	require.True(t, second.Messages[0].Duplicate)
}

// FS8: a publish that is repeated while one of its keys is held is refused as busy. It
// must not make the broker forget the messages that it repeats.
func TestFS8DedupOutlivesBusyRepeat(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("f", commands.FIFO, commands.PolicyPatch{})
	impatient := serve(t, b.pool, commands.Config{Limits: commands.Limits{PublishWait: 50 * time.Millisecond}})
	req := commands.PublishRequest{Channel: "f", Messages: []commands.Message{
		{RoutingKey: "free", Payload: []byte("1"), DedupID: "1"}, {RoutingKey: "k", Payload: []byte("2"), DedupID: "2"},
	}}
	first, err := b.Publish(ctx, req)
	require.NoError(t, err)

	tx, err := b.pool.Begin(ctx)
	require.NoError(t, err)
	_, err = b.PublishTx(ctx, tx, commands.PublishRequest{Channel: "f", Messages: []commands.Message{{RoutingKey: "k"}}})
	require.NoError(t, err)
	_, err = impatient.Publish(ctx, req)
	require.Equal(t, eventstore.Busy, refusal(t, err).Code)
	require.NoError(t, tx.Rollback(ctx))

	again, err := b.Publish(ctx, req)
	require.NoError(t, err)
	for i, m := range again.Messages {
		require.True(t, m.Duplicate)
		require.Equal(t, first.Messages[i].MessageID, m.MessageID)
	}
	require.Equal(t, "ready:2", b.states("f"))
}

// FS8: who shares a transaction with a request that is refused is no duplicate of what
// that did not store.
func TestFS8NoDuplicateOfRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("f", commands.FIFO, commands.PolicyPatch{})
	publish := func(requests []int, priorities []int16, dedup ...string) (statuses []int16) {
		n := len(requests)
		err := b.pool.QueryRow(ctx, `
			select p.statuses
			from leat.publish_many($1, array_fill((select c.id from leat.channels c where c.name = 'f'), array[$2::integer]),
				array_fill(''::text, array[$2]), array_fill('x'::bytea, array[$2]), null, null, $3, null, null, null, null, $4, null, false) p`,
			requests, n, priorities, dedup).Scan(&statuses)
		require.NoError(t, err)
		return statuses
	}
	// The first is refused for its priority, the second was a duplicate of the first,
	// and the third one of the second.
	require.Equal(t, []int16{5, 6, 3, 5, 3, 0},
		publish([]int{1, 1, 2, 2, 3, 4}, []int16{0, 1, 0, 0, 0, 0}, "a", "b", "a", "c", "c", "d"))
	require.Equal(t, "ready:1", b.states("f"))
	require.Nil(t, publish([]int{1, 1, 2}, []int16{0, 0, 0}, "a", "b", "c"), "all are stored")
	require.Equal(t, []int16{1, 1, 1, 1}, publish([]int{1, 1, 2, 3}, []int16{0, 0, 0, 0}, "a", "b", "c", "d"))
}

// G9: when the wait is over, the answer is busy.
func TestPublishGivesUpOnHeldKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("f", commands.FIFO, commands.PolicyPatch{})
	impatient := serve(t, b.pool, commands.Config{Limits: commands.Limits{PublishWait: 50 * time.Millisecond}})
	req := commands.PublishRequest{Channel: "f", Messages: []commands.Message{{RoutingKey: "free"}, {RoutingKey: "k"}}}
	tx, err := b.pool.Begin(ctx)
	require.NoError(t, err)
	_, err = b.PublishTx(ctx, tx, commands.PublishRequest{Channel: "f", Messages: req.Messages[1:]})
	require.NoError(t, err)

	_, err = impatient.Publish(ctx, req)
	e := refusal(t, err)
	require.Equal(t, eventstore.Busy, e.Code)
	require.Positive(t, e.RetryAfter)
	req.Partial = true
	res, err := impatient.Publish(ctx, req)
	require.NoError(t, err)
	require.Nil(t, res.Messages[0].Err)
	require.Equal(t, eventstore.Busy, res.Messages[1].Err.Code)

	short, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
	defer cancel()
	_, err = b.Publish(short, commands.PublishRequest{Channel: "f", Messages: req.Messages[1:]})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, tx.Rollback(ctx))
	require.Equal(t, "ready:1", b.states("f"))
}

// One caller's bad item fails alone, whatever it shared a transaction with.
func TestPublishBadItemFailsAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	b.publish("q", commands.Message{Payload: []byte("first"), DedupID: "d"})
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			m := commands.Message{Payload: []byte("x")}
			if i%10 == 0 {
				m.DedupID = "d"
			}
			_, err := b.Publish(ctx, commands.PublishRequest{Channel: "q", Messages: []commands.Message{m}})
			assert.Equal(t, i%10 == 0, err != nil)
		})
	}
	wg.Wait()
	require.Equal(t, "ready:181", b.states("q"))
	b.verify()
}

// A queue that was deleted and declared again, in another mode, is found again.
func TestPublishToRedeclaredQueue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := serve(t, b.pool, commands.Config{})
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	other.publishTexts("q", "", "x")
	require.NoError(t, b.DeleteChannel(ctx, "test", "q", true))
	_, err := other.Publish(ctx, commands.PublishRequest{Channel: "q", Messages: []commands.Message{{}}})
	require.Equal(t, eventstore.ChannelNotFound, refusal(t, err).Code)
	_, err = other.Poll(ctx, commands.PollRequest{Queue: "q", Max: 1})
	require.Equal(t, eventstore.ChannelNotFound, refusal(t, err).Code)

	b.declare("q", commands.FIFO, commands.PolicyPatch{})
	other.publishTexts("q", "k", "1", "2")
	require.NoError(t, b.DeleteChannel(ctx, "test", "q", true))
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	require.Empty(t, other.poll(commands.PollRequest{Queue: "q"}))
	other.publishTexts("q", "k", "3")
	require.Equal(t, []string{"3"}, payloads(other.poll(commands.PollRequest{Queue: "q"})))
}
