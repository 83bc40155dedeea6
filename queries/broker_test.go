package queries_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"leat/commands"
	"leat/eventstore"
	"leat/queries"
)

// What the broker itself writes reads as a family: a message through an exchange
// and a link behind it, of which a copy dies into another channel, is recovered
// and acked.
func TestG6FamilyByTheBroker(t *testing.T) {
	t.Parallel()
	b := running(t)
	b.declare("graves", commands.ChannelSpec{})
	b.declare("in", commands.ChannelSpec{Kind: "exchange", Type: "topic"})
	b.declare("a", commands.ChannelSpec{Policy: commands.PolicyPatch{DeadLetterTo: new("graves")}})
	b.declare("b", commands.ChannelSpec{})
	b.declare("c", commands.ChannelSpec{})
	for _, l := range []commands.LinkSpec{
		{Source: "in", Target: "a", Match: commands.Match{Pattern: new("order.*")}},
		{Source: "in", Target: "b", Match: commands.Match{Pattern: new("#")}, RewriteKey: new("all")},
		{Source: "b", Target: "c"},
	} {
		_, _, err := b.broker.DeclareLink(t.Context(), "test", l)
		require.NoError(t, err)
	}
	id := b.publish("in", commands.Message{Payload: []byte("1"), RoutingKey: "order.new"})[0]
	lost := b.publish("a", numbered(1)...)[0]
	b.nack("a", b.poll("a", 2), "deadLetter", "no")
	family := b.lineage(id)
	require.Equal(t, ` in/order.new routed: published routed
  link a/order.new dead: copied delivered dead_lettered routed
    dead_letter graves/order.new ready: copied
  link b/all ready: copied
  link c/all ready: copied
`, drawn(family))
	require.Equal(t, ` a/ dead: published delivered dead_lettered routed
  dead_letter graves/ ready: copied
`, drawn(b.lineage(lost)), "died in the same batch")

	dead := family.Members[1].ID
	_, err := b.broker.Recover(t.Context(), commands.RecoverRequest{DeadLetters: commands.DeadLetters{Queue: "a", IDs: []eventstore.MessageID{dead}}})
	require.NoError(t, err)
	b.ack("a", b.poll("a", 1))
	family = b.lineage(family.Members[2].ID)
	require.Equal(t, "copied delivered dead_lettered routed recovered delivered acked", kindsOf(family.Members[1].Events))
	require.Equal(t, queries.Acked, family.Members[1].State)
	for _, m := range family.Members {
		stored, err := b.Message(t.Context(), m.ID)
		require.NoError(t, err)
		require.Equal(t, []any{id, m.Channel, m.RoutingKey, m.State}, []any{stored.OriginID, stored.Channel, stored.RoutingKey, stored.State})
		require.Equal(t, kindsOf(m.Events), kindsOf(b.history(m.ID)))
	}
}

// G5: what a message does to the circuit of its key is part of its history, as
// the one whose death opens it and as the one that is tried.
func TestG6Circuit(t *testing.T) {
	t.Parallel()
	b := running(t)
	b.declare("q", commands.ChannelSpec{Mode: commands.FIFO, Policy: commands.PolicyPatch{
		Circuit: commands.CircuitPatch{CoolDown: new(100 * time.Millisecond)},
	}})
	list := b.publish("q", numbered(3)...)
	b.nack("q", b.poll("q", 1), "deadLetter", "no")
	b.ack("q", b.poll("q", 1))
	for i, want := range []string{
		"published delivered dead_lettered circuit.opened recovered circuit.half_opened delivered acked circuit.closed",
		"published dead_lettered recovered",
		"published dead_lettered recovered",
	} {
		require.Eventually(t, func() bool { return kindsOf(b.history(list[i])) == want }, patience, 10*time.Millisecond)
		require.Equal(t, want, kindsOf(b.lineage(list[i]).Members[0].Events))
	}
	for i, state := range []queries.State{queries.Acked, queries.Ready, queries.Ready} {
		m, err := b.Message(t.Context(), list[i])
		require.NoError(t, err)
		require.Equal(t, state, m.State)
		require.Equal(t, state, b.lineage(list[i]).Members[0].State)
	}
}
