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
	exec(t, b.pool, `select leat.open_circuit('f', 'k')`)
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

// What is published into an exchange becomes messages of the queues that its links
// lead to, with one payload for all of them, and what is published into a queue with
// links stays there as well.
func TestPublishAlongLinks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, sql := range []string{
		`select leat.declare_channel('all', 'exchange', 'fanout', '{}', 't')`,
		`select leat.declare_channel('some', 'exchange', 'topic', '{}', 't')`,
		`select leat.declare_channel('f', 'queue', 'fifo', '{}', 't')`,
		`select leat.declare_channel('s', 'queue', 'standard', '{}', 't')`,
		`select leat.declare_channel('deep', 'queue', 'standard', '{}', 't')`,
		`select leat.declare_link('all', 'f')`,
		`select leat.declare_link('all', 's', rewrite_key => 'rewritten')`,
		`select leat.declare_link('all', 'some')`,
		`select leat.declare_link('some', 'deep', pattern => 'a.#')`,
		`select leat.declare_link('some', 's', pattern => '#')`, // a second way
		`select leat.declare_link('s', 'deep', match => 'exact', pattern => 'never')`,
	} {
		_, err := b.pool.Exec(ctx, sql)
		require.NoError(t, err, sql)
	}
	res, err := b.Publish(ctx, commands.PublishRequest{Channel: "all", Actor: "p", Messages: []commands.Message{
		{RoutingKey: "a.b", Payload: []byte("1"), Priority: 4}, {RoutingKey: "b", Payload: []byte("2")}, {RoutingKey: "a", Payload: []byte("3"), DedupID: "x"},
	}})
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"f", "s", "deep"}, res.Messages[0].RoutedTo)
	require.ElementsMatch(t, []string{"f", "s"}, res.Messages[1].RoutedTo)
	b.verify()

	origins := map[string]string{}
	for i, m := range res.Messages {
		origins[m.MessageID.String()] = string(rune('1' + i))
	}
	check := func(queue string, want ...string) {
		t.Helper()
		got := b.receive(queue, len(want))
		require.ElementsMatch(t, want, payloads(got))
		for _, d := range got {
			require.Equal(t, string(d.Payload), origins[d.OriginMessageID.String()])
			require.Equal(t, queue == "s", d.RoutingKey == "rewritten")
		}
		b.ack(queue, got...)
	}
	check("f", "1", "2", "3")
	check("s", "1", "2", "3")
	check("deep", "1", "3")
	b.verify()

	// The same dedupId again makes no copies; nor does what nobody wants.
	res, err = b.Publish(ctx, commands.PublishRequest{Channel: "all", Messages: []commands.Message{{RoutingKey: "a", Payload: []byte("3"), DedupID: "x"}}})
	require.NoError(t, err)
	require.True(t, res.Messages[0].Duplicate)
	require.Empty(t, res.Messages[0].RoutedTo)
	res, err = b.Publish(ctx, commands.PublishRequest{Channel: "some", Messages: []commands.Message{{RoutingKey: "a"}}})
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"deep", "s"}, res.Messages[0].RoutedTo)

	// While the views are lost, copies wait in the log like everything else.
	_, err = b.pool.Exec(ctx, `select leat.lose_views()`)
	require.NoError(t, err)
	_, err = b.Publish(ctx, commands.PublishRequest{Channel: "all", Messages: []commands.Message{{RoutingKey: "z", Payload: []byte("4")}}})
	require.NoError(t, err)
	_, err = b.pool.Exec(ctx, `select leat.rebuild_views()`)
	require.NoError(t, err)
	b.verify()
	require.Equal(t, []string{"4"}, payloads(b.receive("f", 1)))
	require.Equal(t, []string{"", "4"}, payloads(b.receive("s", 2)))
	b.verify()
}

// Messages that are alike but for their payloads are copied run by run.
func TestPublishAlikeAlongLinks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, sql := range []string{
		`select leat.declare_channel('all', 'exchange', 'fanout', '{}', 't')`,
		`select leat.declare_channel('f', 'queue', 'fifo', '{}', 't')`,
		`select leat.declare_channel('s', 'queue', 'standard', '{}', 't')`,
		`select leat.declare_link('all', 'f')`,
		`select leat.declare_link('all', 's')`,
	} {
		_, err := b.pool.Exec(ctx, sql)
		require.NoError(t, err, sql)
	}
	want := numbered(450)
	b.publishTexts("all", "k", want...)
	b.publishTexts("all", "k", "last")
	b.verify()
	require.Equal(t, append(want, "last"), payloads(b.receive("f", 451)))
	got := b.receive("s", 451)
	require.Equal(t, append(want, "last"), payloads(got))
	b.verify()
	b.ack("s", got...)
	_, err := b.pool.Exec(ctx, `select leat.lose_views(); select leat.rebuild_views()`)
	require.NoError(t, err)
	require.Equal(t, "in_flight:451", b.states("f"))
	b.verify()
}

// A publish says which of its copies the circuits of their targets sent to the
// dead letters, be the messages alike or not.
func TestG5CopiesIntoAnOpenCircuit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, sql := range []string{
		`select leat.declare_channel('all', 'exchange', 'fanout', '{}', 't')`,
		`select leat.declare_channel('f', 'queue', 'fifo', '{}', 't')`,
		`select leat.declare_channel('s', 'queue', 'standard', '{}', 't')`,
		`select leat.declare_link('all', 's')`,
		`select leat.declare_link('all', 'f')`,
		`select leat.open_circuit('f', 'shut')`,
	} {
		_, err := b.pool.Exec(ctx, sql)
		require.NoError(t, err, sql)
	}
	for _, keys := range [][]string{{"shut"}, {"shut", "shut"}, {"fine", "shut", "fine"}} {
		req := commands.PublishRequest{Channel: "all"}
		for _, key := range keys {
			req.Messages = append(req.Messages, commands.Message{RoutingKey: key})
		}
		res, err := b.Publish(ctx, req)
		require.NoError(t, err)
		for i, key := range keys {
			m := res.Messages[i]
			require.False(t, m.DeadLettered)
			require.ElementsMatch(t, []string{"f", "s"}, m.RoutedTo)
			if key == "shut" {
				require.Equal(t, []string{"f"}, m.DeadLetteredIn)
			} else {
				require.Empty(t, m.DeadLetteredIn)
			}
		}
	}
	b.verify()
}

// A link is not deleted under an open publish that went along it: its target, if that
// is deleted next, would get a copy that nobody knows of.
func TestDeleteALinkBehindAPublish(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, _, err := b.DeclareChannel(ctx, "test", commands.ChannelSpec{Name: "x", Kind: commands.Exchange, Type: commands.Fanout})
	require.NoError(t, err)
	b.declare("q", commands.FIFO, commands.PolicyPatch{})
	_, _, err = b.DeclareLink(ctx, "test", commands.LinkSpec{Source: "x", Target: "q"})
	require.NoError(t, err)
	open := begin(t, b.pool, `select leat.publish('x', '1')`)
	_, err = b.pool.Exec(ctx, `select leat.delete_link(l.id) from leat.links l`)
	require.ErrorContains(t, err, "55P03")
	require.NoError(t, open.Commit(ctx))
	_, err = b.pool.Exec(ctx, `select leat.delete_link(l.id) from leat.links l`)
	require.NoError(t, err)
	require.NoError(t, b.DeleteChannel(ctx, "me", "q", true))
	b.verify()
}
