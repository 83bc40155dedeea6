package commands_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"leat/commands"
	"leat/eventstore"
)

func TestPurgeDeadLetters(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, b broker) {
		a := b.bury("q", "a", numbered(5)...)
		b.bury("q", "b", "x", "y")
		ready := b.publish("q", commands.Message{RoutingKey: "c", Payload: []byte("1")})[0]
		purge := func(d commands.DeadLetters) commands.DeadLettersResult {
			d.Queue = "q"
			res, err := b.PurgeDeadLetters(ctx, d)
			require.NoError(t, err)
			return res
		}
		res := purge(commands.DeadLetters{IDs: []eventstore.MessageID{a[1], a[3], ready, a[1]}})
		require.EqualValues(t, 2, res.Done)
		require.Equal(t, map[eventstore.MessageID]eventstore.Code{ready: eventstore.MessageNotDead}, failures(res))
		key := "a"
		require.EqualValues(t, 3, purge(commands.DeadLetters{Filter: &commands.DeadLettersFilter{RoutingKey: &key}}).Done)
		require.EqualValues(t, 2, purge(commands.DeadLetters{All: true}).Done)
		require.Zero(t, purge(commands.DeadLetters{All: true}).Done)
		require.Equal(t, "ready:1", b.states("q"))
		b.verify()
	})
}

func TestDeadLetterRetention(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	b.declare("kept", commands.Standard, commands.PolicyPatch{})
	b.bury("q", "k", "1", "2")
	b.bury("kept", "k", "3")
	sweep := `select leat.sweep_dead(clock_timestamp(), '-infinity', 100)::text`
	require.Equal(t, []string{"0"}, texts(t, b.pool, sweep))
	_, err := b.pool.Exec(ctx, `update leat.channels set dead_letter_retention = '1 hour' where name = 'q'`)
	require.NoError(t, err)
	require.Equal(t, []string{"0"}, texts(t, b.pool, sweep))
	require.Equal(t, []string{"1"}, texts(t, b.pool, `select leat.sweep_dead(clock_timestamp() + interval '2 hours', '-infinity', 100)::text`))
	require.Empty(t, b.states("q"))
	require.Equal(t, "dead:1", b.states("kept"))

	// The sweeper does it.
	_, err = b.pool.Exec(ctx, `update leat.channels set dead_letter_retention = '1 s' where name = 'kept'`)
	require.NoError(t, err)
	b.waitStates("kept", "")
	require.Equal(t, []string{`{"reason": "retention"}`, `{"reason": "retention"}`},
		texts(t, b.pool, `select data::text from leat.events where kind = 'message.purged'`))
	b.verify()
}

func TestRecoverRefuses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	long := make([]eventstore.MessageID, 1001)
	for i := range long {
		long[i] = 7
	}
	for name, c := range map[string]struct {
		choice commands.DeadLetters
		code   eventstore.Code
	}{
		"no choice":      {commands.DeadLetters{}, eventstore.InvalidRequest},
		"two choices":    {commands.DeadLetters{All: true, IDs: []eventstore.MessageID{1}}, eventstore.InvalidRequest},
		"no ids":         {commands.DeadLetters{IDs: []eventstore.MessageID{}}, eventstore.BatchEmpty},
		"too many ids":   {commands.DeadLetters{IDs: long}, eventstore.BatchTooLarge},
		"a bad id":       {commands.DeadLetters{IDs: []eventstore.MessageID{-1}}, eventstore.InvalidField},
		"unknown reason": {commands.DeadLetters{Filter: &commands.DeadLettersFilter{Reason: "boredom"}}, eventstore.InvalidField},
		"empty filter":   {commands.DeadLetters{Filter: &commands.DeadLettersFilter{}}, eventstore.InvalidField},
	} {
		c.choice.Queue = "q"
		_, err := b.Recover(ctx, commands.RecoverRequest{DeadLetters: c.choice})
		require.Equal(t, c.code, refusal(t, err).Code, name)
		_, err = b.PurgeDeadLetters(ctx, c.choice)
		require.Equal(t, c.code, refusal(t, err).Code, name)
	}
	req := everything()
	req.Queue = "nowhere"
	_, err := b.Recover(ctx, req)
	require.Equal(t, eventstore.ChannelNotFound, refusal(t, err).Code)
	req = everything()
	req.TTL = -time.Second
	_, err = b.Recover(ctx, req)
	require.Equal(t, "ttl", refusal(t, err).Field)
}
