package commands_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"leat/commands"
)

// What dies in a queue that names a channel for it is copied there, with headers
// that say where, why, when and how often it died.
func TestDeadLetterToAQueue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("dead", commands.Standard, commands.PolicyPatch{})
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	_, err := b.pool.Exec(ctx, `update leat.channels set dead_letter_to = (select id from leat.channels where name = 'dead') where name = 'q'`)
	require.NoError(t, err)
	b.publish("q", commands.Message{RoutingKey: "k", Payload: []byte("1"), Headers: json.RawMessage(`{"a":1}`), Priority: 3, TTL: 3600e9})
	got := b.receive("q", 1)
	_, err = b.Nack(ctx, commands.NackRequest{SettleRequest: settle("q", got...), Action: "deadLetter", Reason: "no"})
	require.NoError(t, err)
	require.Equal(t, "dead:1", b.states("q"))
	copies := b.receive("dead", 1)
	c := copies[0]
	require.Equal(t, got[0].MessageID, c.OriginMessageID)
	require.NotEqual(t, c.OriginMessageID, c.MessageID)
	require.Equal(t, "1", string(c.Payload))
	require.Equal(t, "k", c.RoutingKey)
	require.Equal(t, 3, c.Priority)
	var headers map[string]any
	require.NoError(t, json.Unmarshal(c.Headers, &headers))
	require.NotEmpty(t, headers["leat-death-at"])
	delete(headers, "leat-death-at")
	require.Equal(t, map[string]any{
		"a": 1.0, "leat-death-queue": "q", "leat-death-reason": "rejected", "leat-death-count": 1.0, "leat-death-key": "k",
	}, headers)
	b.verify()
	b.ack("dead", copies...)
	b.verify()
}

// F12: queues that name each other for their dead letters pass a message on 15
// times; then it stays, with all the dead letters that it left.
func TestF12DeadLettersInACircle(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("a", commands.Standard, commands.PolicyPatch{})
	b.declare("b", commands.Standard, commands.PolicyPatch{})
	_, err := b.pool.Exec(ctx, `update leat.channels c set dead_letter_to = (select o.id from leat.channels o where o.id <> c.id)`)
	require.NoError(t, err)
	b.publishTexts("a", "k", "1")
	deaths := 0
	for _, queue := range []string{"a", "b", "a", "b", "a", "b", "a", "b", "a", "b", "a", "b", "a", "b", "a", "b", "a", "b", "a", "b"} {
		got := b.poll(commands.PollRequest{Queue: queue})
		if len(got) == 0 {
			break
		}
		_, err = b.Nack(ctx, commands.NackRequest{SettleRequest: settle(queue, got...), Action: "deadLetter"})
		require.NoError(t, err)
		deaths++
	}
	require.Equal(t, 16, deaths)
	require.Equal(t, "dead:8", b.states("a"))
	require.Equal(t, "dead:8", b.states("b"))
	require.Equal(t, []string{"true"}, texts(t, b.pool, `select data ->> 'hopLimit' from leat.events where data ? 'hopLimit'`))
	b.verify()
}

// G5: what is published into a key whose circuit is open is dead at once, and says so.
func TestG5PublishIntoAnOpenCircuit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("f", commands.FIFO, commands.PolicyPatch{})
	_, err := b.pool.Exec(ctx, `insert into leat.circuits (channel_id, routing_key, state, changed_at)
		select id, 'k', 'open', now() from leat.channels where name = 'f'`)
	require.NoError(t, err)
	res, err := b.Publish(ctx, commands.PublishRequest{Channel: "f", Messages: []commands.Message{
		{RoutingKey: "k"}, {RoutingKey: "other"}, {RoutingKey: "k"},
	}})
	require.NoError(t, err)
	var dead []bool
	for _, m := range res.Messages {
		dead = append(dead, m.DeadLettered)
	}
	require.Equal(t, []bool{true, false, true}, dead)
	require.Equal(t, "dead:2 ready:1", b.states("f"))
	require.Equal(t, []string{"circuit_open"}, texts(t, b.pool, `select distinct reason from leat.dead_letters`))
	b.verify()
}
