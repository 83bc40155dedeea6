package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"leat/api"
	"leat/eventstore"
	"leat/migrations/dbtest"
)

// G6: a family reads as a tree, one event a line: when, what, where, who, why.
func TestG6Trace(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	event := func(kind eventstore.Kind, data string) api.Event {
		return api.Event{At: at, Kind: string(kind), Actor: "someone", Data: json.RawMessage(data), DueAt: &at}
	}
	family := api.Lineage{MessageID: 7, OriginMessageID: 1, Messages: []api.LineageMessage{
		{MessageID: 1, Channel: "orders", RoutingKey: "a key", Events: []api.Event{
			{At: at, Kind: string(eventstore.MessagePublished)},
			event(eventstore.MessageRouted, `{"cause":"link"}`),
		}},
		{MessageID: 3, ParentMessageID: 1, Depth: 1, Cause: "link", Channel: "jobs", RoutingKey: "k", NextCopies: "x", Events: []api.Event{
			{At: at, Kind: string(eventstore.MessageCopied), Actor: "someone", Data: json.RawMessage(`{"from":2}`)},
			event(eventstore.MessageDelivered, ""),
			event(eventstore.MessageDeadLettered, `{"reason":"rejected","detail":"no\nway","errorClass":"Bad"}`),
			event(eventstore.MessageRouted, `{"cause":"dead_letter"}`),
			event(eventstore.CircuitOpened, `{"reason":"rejected"}`),
			{At: at, Kind: string(eventstore.MessageRecovered), Data: json.RawMessage(`{"admitted":true}`)},
			{At: at, Kind: string(eventstore.MessageRecovered)},
			{At: at, Kind: string(eventstore.MessageRecovered), Data: json.RawMessage(`{"to":"else"}`)},
		}},
		{MessageID: 7, ParentMessageID: 3, Depth: 2, Cause: "redrive", Channel: "else", NextEvents: "y", Events: []api.Event{
			{At: at, Kind: string(eventstore.MessageCopied), Data: json.RawMessage(`{"from":2}`)},
		}},
	}}
	var text bytes.Buffer
	require.NoError(t, printer{out: &text}.show(family, func(t *table) { familyTable(t, family) }))
	when := cellText(at)
	var lines []string
	for line := range strings.Lines(text.String()) {
		lines = append(lines, strings.Join(strings.Fields(strings.ReplaceAll(line, when, "T")), " "))
	}
	require.Equal(t, []string{
		"MESSAGE TIME WHAT HAPPENED WHERE WHO WHY",
		"1 T published orders, key a key - -",
		"1 T routed along links orders someone -",
		"3 T copied from 1 jobs, key k someone -",
		"3 T delivered until T jobs someone -",
		`3 T dead-lettered jobs someone rejected: "no\nway" [Bad]`,
		"3 T routed to where its queue's dead letters go jobs someone -",
		"3 T opened the circuit of its key jobs someone rejected",
		"3 T recovered, while its circuit is not closed jobs - -",
		"3 T recovered jobs - -",
		"3 T redriven to else jobs - -",
		"7 T redriven from 3 else - -",
		"there are more copies: leat trace 3 --cursor x",
		"there are more events: leat replay --message 7 --cursor y",
	}, lines)
	require.Contains(t, text.String(), "\n  3 ")
	require.Contains(t, text.String(), "\n    7 ")
}

// trace tells the same of any member of a family that the broker made.
func (p *process) trace(t *testing.T) {
	p.leat("channel", "declare", "post", "--kind", "exchange", "--type", "fanout")
	p.leat("channel", "declare", "graves")
	for _, name := range []string{"letters", "copies"} {
		p.leat("channel", "declare", name, "--dead-letter-to", "graves")
		p.leat("link", "declare", "post", name)
	}
	published := value[api.PublishResult](p, "publish", "post", "x", "--key", "k").Messages[0]
	receipt := value[api.PollResult](p, "poll", "letters", "--wait", "30s").Deliveries[0].Receipt
	p.leat("nack", "letters", receipt, "--action", "deadLetter", "--reason", "torn")
	family := value[api.Lineage](p, "trace", published.MessageID.String())
	require.Len(t, family.Messages, 4)
	tree := p.leat("trace", receipt)
	for _, m := range family.Messages {
		require.Equal(t, tree, p.leat("trace", m.MessageID.String()))
		require.Equal(t, published.MessageID, m.OriginMessageID)
	}
	require.Contains(t, tree, "rejected: torn")
	require.Regexp(t, `\n    \d+ .* copied for the death of \d+ +graves, key k`, tree)
	require.Contains(t, p.leat("trace", receipt, "-n", "1"), "leat trace")
}

func TestAboutRanges(t *testing.T) {
	t.Parallel()
	e := api.Event{Channel: "q", Ranges: [][2]eventstore.MessageID{{1, 100}, {205, 300}}, Data: json.RawMessage(`{"reason":"circuit_open"}`)}
	require.Equal(t, "q 1-100 205-300 (circuit_open)", about(e))
	require.Equal(t, "q", about(api.Event{Channel: "q", Data: json.RawMessage(`{"cause":"link","to":[1,2]}`)}))
}

// G6: the end of a message that was deleted with its channel is told too.
func TestG6TraceOfADeletedChannel(t *testing.T) {
	t.Parallel()
	_, database := dbtest.NewURL(t)
	broker := serveProcess(t, "--database-url", database, "--durable-views")
	broker.leat("channel", "declare", "orders")
	id := value[api.PublishResult](broker, "publish", "orders", "1").Messages[0].MessageID.String()
	require.NotContains(t, broker.leat("trace", id), "gone")
	broker.leat("channel", "delete", "orders", "--force")
	require.Contains(t, broker.leat("trace", id), "gone with its channel")
}
