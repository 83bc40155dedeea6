package commands_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"leat/commands"
	"leat/eventstore"
)

// A service that declares its queues at each start goes on doing so after an
// operator altered one.
func TestDeclareAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	again := func(spec commands.ChannelSpec) (commands.Channel, error) {
		spec.Name = "q"
		channel, created, err := b.DeclareChannel(ctx, "", spec)
		require.False(t, created)
		return channel, err
	}
	minute := time.Minute
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	_, err := b.AlterChannel(ctx, "", "q", commands.PolicyPatch{Lease: &minute})
	require.NoError(t, err)

	channel, err := again(commands.ChannelSpec{})
	require.NoError(t, err)
	require.Equal(t, minute, channel.Policy.Lease)
	_, err = again(commands.ChannelSpec{Policy: commands.PolicyPatch{Lease: &minute}})
	require.NoError(t, err)

	hour := time.Hour
	_, err = again(commands.ChannelSpec{Policy: commands.PolicyPatch{Lease: &hour}})
	require.Equal(t, eventstore.ChannelConflict, refusal(t, err).Code)
	require.Equal(t, "lease", refusal(t, err).Field)
	_, err = again(commands.ChannelSpec{Mode: commands.FIFO})
	require.Equal(t, "mode", refusal(t, err).Field)
}

func TestExchanges(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e := b.exchange("e", commands.Topic)
	require.Equal(t, commands.Exchange, e.Kind)
	require.Equal(t, commands.Topic, e.Type)
	require.Empty(t, e.Mode)
	require.Equal(t, []string{`{"kind": "exchange", "mode": "topic", "name": "e"}`}, texts(t, b.pool, `
		select (e.data - 'declared_at')::text from leat.events e where e.kind = 'channel.declared'`))

	minute := time.Minute
	for field, spec := range map[string]commands.ChannelSpec{
		"kind":   {Kind: "topic"},
		"type":   {Kind: commands.Exchange, Type: "regex"},
		"mode":   {Kind: commands.Exchange, Type: commands.Topic, Mode: commands.FIFO},
		"policy": {Kind: commands.Exchange, Type: commands.Topic, Policy: commands.PolicyPatch{Lease: &minute}},
	} {
		spec.Name = "x"
		_, _, err := b.DeclareChannel(ctx, "", spec)
		require.Equal(t, eventstore.InvalidField, refusal(t, err).Code)
		require.Equal(t, field, refusal(t, err).Field)
	}
	_, _, err := b.DeclareChannel(ctx, "", commands.ChannelSpec{Name: "x", Type: commands.Topic})
	require.Equal(t, "type", refusal(t, err).Field, "of a queue")
	for field, spec := range map[string]commands.ChannelSpec{
		"kind": {},
		"type": {Kind: commands.Exchange, Type: commands.Direct},
	} {
		spec.Name = "e"
		_, _, err := b.DeclareChannel(ctx, "", spec)
		require.Equal(t, eventstore.ChannelConflict, refusal(t, err).Code)
		require.Equal(t, field, refusal(t, err).Field)
	}
	_, err = b.AlterChannel(ctx, "", "e", commands.PolicyPatch{Lease: &minute})
	require.Equal(t, "policy", refusal(t, err).Field)

	_, err = b.Poll(ctx, commands.PollRequest{Queue: "e", Max: 1})
	require.Equal(t, eventstore.ChannelNotFound, refusal(t, err).Code)
	require.Contains(t, refusal(t, err).Message, "exchange")
	_, err = b.Purge(ctx, "e", "")
	require.Contains(t, refusal(t, err).Message, "exchange")
	_, err = b.Ack(ctx, commands.SettleRequest{Queue: "e", Receipts: []string{"1:1"}})
	require.Contains(t, refusal(t, err).Message, "exchange")
	require.NoError(t, b.DeleteChannel(ctx, "", "e", false))
}

func TestFailurePolicy(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exchange("dead", commands.Fanout)
	hour, dead, none := time.Hour, "dead", ""
	circuit := commands.CircuitPatch{Enabled: new(false), CoolDown: &hour, Threshold: new(3)}
	q := b.declare("q", commands.FIFO, commands.PolicyPatch{DeadLetterTo: &dead, DeadLetterRetention: &hour, Circuit: circuit})
	require.Equal(t, "dead", q.Policy.DeadLetterTo)
	require.Equal(t, hour, q.Policy.DeadLetterRetention)
	require.Equal(t, commands.Circuit{CoolDown: hour, Threshold: 3}, q.Policy.Circuit)
	same, created, err := b.DeclareChannel(ctx, "", commands.ChannelSpec{Name: "q", Mode: commands.FIFO, Policy: q.Policy.Patch()})
	require.NoError(t, err)
	require.False(t, created)
	require.Equal(t, q, same)
	for field, patch := range map[string]commands.PolicyPatch{
		"deadLetterTo":        {DeadLetterTo: &none},
		"deadLetterRetention": {DeadLetterRetention: new(time.Minute)},
		"circuit.enabled":     {Circuit: commands.CircuitPatch{Enabled: new(true)}},
		"circuit.threshold":   {Circuit: commands.CircuitPatch{Threshold: new(1)}},
		"circuit.coolDown":    {Circuit: commands.CircuitPatch{CoolDown: new(time.Minute)}},
	} {
		_, _, err := b.DeclareChannel(ctx, "", commands.ChannelSpec{Name: "q", Mode: commands.FIFO, Policy: patch})
		require.Equal(t, eventstore.ChannelConflict, refusal(t, err).Code, field)
		require.Equal(t, field, refusal(t, err).Field)
	}
	q, err = b.AlterChannel(ctx, "", "q", commands.PolicyPatch{DeadLetterTo: &none, Circuit: commands.CircuitPatch{Enabled: new(true)}})
	require.NoError(t, err)
	require.Empty(t, q.Policy.DeadLetterTo)
	require.Equal(t, commands.Circuit{Enabled: true, CoolDown: hour, Threshold: 3}, q.Policy.Circuit)

	missing := commands.PolicyPatch{DeadLetterTo: new("nope")}
	_, err = b.AlterChannel(ctx, "", "q", missing)
	require.Equal(t, eventstore.ChannelNotFound, refusal(t, err).Code)
	require.Equal(t, "deadLetterTo", refusal(t, err).Field)
	_, _, err = b.DeclareChannel(ctx, "", commands.ChannelSpec{Name: "s", Policy: missing})
	require.Equal(t, eventstore.ChannelNotFound, refusal(t, err).Code)
	require.Equal(t, "deadLetterTo", refusal(t, err).Field)

	// A standard queue has no circuits.
	s := b.declare("s", commands.Standard, commands.PolicyPatch{})
	require.Zero(t, s.Policy.Circuit)
	require.Equal(t, commands.PolicyPatch{}.Circuit, s.Policy.Patch().Circuit)
	_, _, err = b.DeclareChannel(ctx, "", commands.ChannelSpec{Name: "t", Policy: commands.PolicyPatch{Circuit: circuit}})
	require.Equal(t, eventstore.InvalidField, refusal(t, err).Code)
	require.Equal(t, "circuit", refusal(t, err).Field)
	_, err = b.AlterChannel(ctx, "", "s", commands.PolicyPatch{Circuit: commands.CircuitPatch{Threshold: new(2)}})
	require.Equal(t, eventstore.InvalidField, refusal(t, err).Code)
	require.Equal(t, "circuit.threshold", refusal(t, err).Field)
	for field, patch := range map[string]commands.PolicyPatch{
		"circuit.threshold":   {Circuit: commands.CircuitPatch{Threshold: new(0)}},
		"circuit.coolDown":    {Circuit: commands.CircuitPatch{CoolDown: new(-time.Second)}},
		"deadLetterRetention": {DeadLetterRetention: new(-time.Second)},
		"deadLetterTo":        {DeadLetterTo: new("no/name")},
	} {
		_, err = b.AlterChannel(ctx, "", "q", patch)
		require.Equal(t, field, refusal(t, err).Field)
	}
}

// Links, circuits and topics go with a channel; who names it for dead letters is
// asked for first. Declared again it is another channel.
func TestDeleteChannel(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.exchange("e", commands.Topic)
	b.exchange("up", commands.Fanout)
	b.declare("t", commands.Standard, commands.PolicyPatch{})
	b.link("up", "e", commands.Match{})
	for _, q := range []string{"q", "r"} {
		b.declare(q, commands.Standard, commands.PolicyPatch{DeadLetterTo: new("e")})
		b.link("e", "t", topic("a."+q))
	}
	_, err := b.pool.Exec(ctx, `insert into leat.circuits (channel_id, routing_key, state, changed_at) values ($1, 'k', 'open', now())`, first.ID)
	require.NoError(t, err)
	err = b.DeleteChannel(ctx, "", "e", false)
	require.Equal(t, eventstore.ChannelInUse, refusal(t, err).Code)
	require.Contains(t, refusal(t, err).Message, "q, r")
	require.NoError(t, b.DeleteChannel(ctx, "me", "e", true))
	require.Equal(t, []string{
		"channel.altered q me", "channel.altered r me", "link.deleted up me", "link.deleted e me", "link.deleted e me", "channel.deleted e me",
	}, texts(t, b.pool, `
		select concat_ws(' ', e.kind, c.name, e.actor) from leat.events e join leat.channels c on c.id = e.channel_id
		where e.kind not in ('channel.declared', 'link.declared') order by e.position`))
	require.Equal(t, []string{"0 0 0 0"}, texts(t, b.pool, `
		select concat_ws(' ', (select count(*) from leat.links), (select count(*) from leat.topic_nodes), (select count(*) from leat.circuits),
			(select count(*) from leat.channels where (linked or dead_letter_to is not null) and deleted_at is null))`))

	second := b.exchange("e", commands.Topic)
	require.NotEqual(t, first.Epoch, second.Epoch)
	require.NotEqual(t, first.ID, second.ID)
	b.link("e", "t", topic("#"))
	require.NoError(t, b.DeleteChannel(ctx, "", "t", false))
	require.Nil(t, b.routes(letter{"e", "a", ""})[0])
	require.NoError(t, b.DeleteChannel(ctx, "", "e", false))
}

// A channel is not deleted under a publish that may send copies there.
func TestDeleteTargetWhilePublishing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("s", commands.Standard, commands.PolicyPatch{})
	b.exchange("e", commands.Fanout)
	b.declare("t", commands.Standard, commands.PolicyPatch{})
	b.link("s", "e", commands.Match{})
	b.link("e", "t", commands.Match{})
	tx, err := b.pool.Begin(ctx)
	require.NoError(t, err)
	_, err = b.PublishTx(ctx, tx, commands.PublishRequest{Channel: "s", Messages: []commands.Message{{Payload: []byte("1")}}})
	require.NoError(t, err)
	err = b.DeleteChannel(ctx, "", "t", true)
	require.Equal(t, eventstore.Busy, refusal(t, err).Code)
	require.NoError(t, tx.Commit(ctx))
	require.NoError(t, b.DeleteChannel(ctx, "", "t", true))
}
