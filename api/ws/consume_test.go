package ws_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"leat/api"
	"leat/api/ws"
	"leat/commands"
	"leat/eventstore"
	"leat/migrations/dbtest"
)

func TestConsume(t *testing.T) {
	t.Parallel()
	f := newFarm(t, dbtest.New(t), ws.Config{})
	f.declare("q", commands.FIFO, commands.PolicyPatch{Lease: new(time.Hour)})
	p := &puller{client: (&site{t: t, url: f.url}).dial("/q?prefetch=3&consumer=me")}
	first := p.expect(api.FrameConsuming)
	require.Equal(t, pulled{Type: "consuming", Queue: "q", Mode: "fifo", Prefetch: 3, Lease: "1h0m0s", Consumer: "me"}, first)

	// Bytes that are no JSON, and numbers that no float holds, come as they went.
	all := []string{`{"n":1234567890123456789, "a":"<&>"}`, "\xff\x00", "", "3", "4", "5", "6"}
	f.publish("q", all...)
	got := p.take(3)
	require.Equal(t, all[:3], payloads(got))
	require.Equal(t, 1, got[0].Attempt)
	require.Equal(t, "q", got[0].Channel)

	// All of a key must be settled before the next ones of it come.
	extended := p.settle("extend", `,"lease":"2h"`, got...)
	require.Equal(t, 3, extended.Settled)
	require.WithinRange(t, *extended.LeaseUntil, time.Now().Add(119*time.Minute), time.Now().Add(121*time.Minute))
	require.Equal(t, 1, p.settle("ack", "", got[0]).Settled)
	require.Equal(t, 1, p.settle("nack", `,"action":"discard","reason":"no"`, got[1]).Settled)
	require.Equal(t, 1, p.settle("release", "", got[2]).Settled)
	again := p.expect(api.FrameDeliveries).Deliveries // as many as there was room for at the moment
	require.Equal(t, all[2], string(again[0].Bytes()))
	require.Equal(t, 1, again[0].Attempt)
	result := p.settle("ack", "", append(again, got[0])...)
	require.Equal(t, []int{len(again), 1, 0}, []int{result.Settled, result.AlreadySettled, len(result.Failed)})
	for seen := 2 + len(again); seen < len(all); {
		last := p.expect(api.FrameDeliveries).Deliveries
		require.Equal(t, all[seen:seen+len(last)], payloads(last))
		p.settle("ack", "", last...)
		seen += len(last)
	}
	require.Empty(t, f.states())
}

// FS5: one message in hand at most, and many frames at once are answered in order.
func TestFS5PrefetchOverWebSocket(t *testing.T) {
	t.Parallel()
	f := newFarm(t, dbtest.New(t), ws.Config{Heartbeat: 100 * time.Millisecond})
	f.declare("q", commands.Standard, commands.PolicyPatch{Lease: new(time.Hour)})
	f.publish("q", numbered(10)...)
	p := f.consume("/q?prefetch=1")
	for i := range 10 {
		got := p.take(1)
		if i < 2 {
			p.expect(api.FrameHeartbeat) // and nothing else
		}
		require.Equal(t, 1, strings.Count(f.states(), "in_flight:1"))
		p.settle("ack", "", got...)
	}

	// Acks one by one, all at once, are answered in their order.
	many := f.consume("/q?prefetch=1000")
	f.publish("q", numbered(300)...)
	got := many.take(299)
	for i, d := range got {
		many.send(fmt.Sprintf(`{"type":"ack","id":%d,"receipts":[%q]}`, i, d.Receipt))
	}
	for i := range got {
		answer := many.expect(api.FrameSettled)
		require.Equal(t, []int64{int64(i), 1}, []int64{*answer.ID, int64(answer.Settled)})
	}
	p.settle("ack", "", p.take(1)...)
	require.Empty(t, f.states())
}

// G8: what is no frame ends the connection, and the broker goes on.
func TestBadConsumerFrames(t *testing.T) {
	t.Parallel()
	f := newFarm(t, dbtest.New(t), ws.Config{})
	f.declare("q", commands.Standard, commands.PolicyPatch{Lease: new(time.Hour)})
	f.publish("q", "x")
	for text, code := range map[string]eventstore.Code{
		`{`:                               eventstore.InvalidRequest,
		`[]`:                              eventstore.InvalidRequest,
		`7`:                               eventstore.InvalidRequest,
		`{}`:                              eventstore.InvalidField,
		`{"type":7}`:                      eventstore.InvalidField,
		`{"type":"commit"}`:               eventstore.InvalidField,
		`{"type":"ack","ids":1}`:          eventstore.UnknownField,
		`{"type":"ack","receipts":"1:1"}`: eventstore.InvalidField,
		`{"type":"ack","receipts":[1]}`:   eventstore.InvalidField,
		`{"type":"ack","id":"x"}`:         eventstore.InvalidField,
		`{"type":"nack","delay":5}`:       eventstore.InvalidField,
		`{"type":"ack","receipts":["` + strings.Repeat("1", 70_000) + `"]}`: eventstore.PayloadTooLarge,
	} {
		p := f.consume("/q")
		p.take(1)
		p.send(text)
		p.closed(api.CloseBadRequest, code)
		f.waitStates("ready:1")
	}
}

// A settlement that is refused is told by its id, and the connection goes on.
func TestRefusedSettlements(t *testing.T) {
	t.Parallel()
	f := newFarm(t, dbtest.New(t), ws.Config{})
	f.declare("q", commands.Standard, commands.PolicyPatch{Lease: new(time.Hour)})
	f.declare("other", commands.Standard, commands.PolicyPatch{Lease: new(time.Hour)})
	f.publish("q", "x")
	f.publish("other", "y")
	p, other := f.consume("/q"), f.consume("/other")
	got, foreign := p.take(1), other.take(1)
	for text, code := range map[string]eventstore.Code{
		`{"type":"ack","id":5,"receipts":[]}`:                            eventstore.BatchEmpty,
		`{"type":"release","id":5}`:                                      eventstore.BatchEmpty,
		`{"type":"ack","id":5,"receipts":["x"]}`:                         eventstore.ReceiptMalformed,
		`{"type":"nack","id":5,"receipts":["1:1"],"action":"eat"}`:       eventstore.InvalidField,
		`{"type":"nack","id":5,"receipts":["1:1"],"delay":"-5s"}`:        eventstore.InvalidField,
		`{"type":"extend","id":5,"receipts":["1:1"],"lease":"0s"}`:       eventstore.InvalidField,
		`{"type":"extend","id":5,"receipts":["1:1"],"lease":"1000000h"}`: eventstore.InvalidField,
	} {
		p.send(text)
		answer := p.expect(api.FrameError)
		require.Equal(t, code, answer.Problem.Code, text)
		require.Equal(t, int64(5), *answer.ID)
		require.Zero(t, answer.Close)
	}
	for _, kind := range []string{"ack", "nack", "extend", "release"} {
		result := p.settle(kind, "", foreign...)
		require.Zero(t, result.Settled)
		require.Equal(t, eventstore.ReceiptUnknown, result.Failed[0].Code)
	}
	require.Equal(t, 1, p.settle("ack", "", got...).Settled)
	require.Equal(t, eventstore.AlreadySettled, p.settle("nack", "", got...).Failed[0].Code)
	require.Equal(t, 1, other.settle("ack", "", foreign...).Settled)
}

// What cannot be consumed is told, with whether to come again.
func TestConsumeRefusals(t *testing.T) {
	t.Parallel()
	f := newFarm(t, dbtest.New(t), ws.Config{})
	f.declare("q", commands.Standard, commands.PolicyPatch{})
	f.declare("gone", commands.Standard, commands.PolicyPatch{})
	dial := func(path string) *client { return (&site{t: t, url: f.url}).dial(path) }
	dial("/nope").closed(api.CloseNotFound, eventstore.ChannelNotFound)
	dial("/q?prefetch=0").closed(api.CloseBadRequest, eventstore.InvalidField)
	dial("/q?prefetch=1001").closed(api.CloseBadRequest, eventstore.InvalidField)
	dial("/q?lease=1ns").closed(api.CloseBadRequest, eventstore.InvalidField)

	// A queue that is deleted, and one that is declared again.
	p := f.consume("/gone")
	require.NoError(t, f.broker.DeleteChannel(t.Context(), "", "gone", true))
	f.declare("gone", commands.Standard, commands.PolicyPatch{})
	p.closed(api.CloseNotFound, eventstore.ChannelNotFound)
	f.publish("gone", "x")
	f.consume("/gone").take(1)
}

// F8, F3: an ack that comes after the lease changes nothing, and the consumer
// gets the next messages meanwhile.
func TestF08LateAckOverWebSocket(t *testing.T) {
	t.Parallel()
	f := newFarm(t, dbtest.New(t), ws.Config{})
	f.declare("q", commands.Standard, commands.PolicyPatch{Retry: commands.RetryPatch{BaseDelay: new(time.Hour), MaxDelay: new(time.Hour)}})
	f.publish("q", "1", "2")
	p := f.consume("/q?prefetch=1&lease=300ms")
	first := p.take(1)
	second := p.take(1)
	require.Equal(t, []string{"1", "2"}, payloads(append(first, second...)))
	f.waitStates("delayed:2")
	require.Equal(t, eventstore.LeaseLost, p.settle("ack", "", first...).Failed[0].Code)
	f.waitStates("delayed:2")
}
