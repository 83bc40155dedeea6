package commands_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"leat/commands"
)

// Who is told of a publish, in its transaction: brokers that read the write-ahead
// log by a message there, and those that listen, if no broker publishes, by NOTIFY.
// A broker that is alone pays for neither.
func TestWakeAtCommit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	b.stream("s", commands.PolicyPatch{})
	conn, err := b.pool.Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	_, err = conn.Exec(ctx, `listen leat`)
	require.NoError(t, err)
	notified := func() bool {
		_, err := b.pool.Exec(ctx, `select pg_notify('leat', 'end')`)
		require.NoError(t, err)
		found := false
		for {
			n, err := conn.Conn().WaitForNotification(ctx)
			require.NoError(t, err)
			if n.Payload == "end" {
				return found
			}
			found = true
		}
	}
	decoder, err := b.pool.Acquire(ctx)
	require.NoError(t, err)
	defer decoder.Release()
	_, err = decoder.Exec(ctx, `create publication nothing`)
	require.NoError(t, err)
	_, err = decoder.Exec(ctx, `select pg_create_logical_replication_slot('slot_' || substr(md5(current_database()), 1, 20), 'pgoutput', true)`)
	require.NoError(t, err)
	logged := func(do func()) bool {
		do()
		var messages int
		require.NoError(t, decoder.QueryRow(ctx, `
			select count(*) from pg_logical_slot_get_binary_changes('slot_' || substr(md5(current_database()), 1, 20), null, null,
				'proto_version', '1', 'publication_names', 'nothing', 'messages', 'true') c
			where get_byte(c.data, 0) = ascii('M')`).Scan(&messages))
		return messages > 0
	}
	bySQL := func(channel string) func() {
		return func() {
			_, err := b.pool.Exec(ctx, `select leat.publish($1, 'x')`, channel)
			require.NoError(t, err)
		}
	}
	byBroker := func(channel string) func() { return func() { b.publishTexts(channel, "", "x") } }
	alive := func(tails ...string) {
		_, err := b.pool.Exec(ctx, `delete from leat.brokers`)
		require.NoError(t, err)
		_, err = b.pool.Exec(ctx, `insert into leat.brokers (id, tail, since, until)
			select n::text, u.tail, now(), now() + interval '1 hour' from unnest($1::text[]) with ordinality u (tail, n)`, tails)
		require.NoError(t, err)
	}
	for _, c := range []struct {
		name     string
		tails    []string
		do       func()
		log      bool
		notified bool
	}{
		{"nobody has entered himself: SQL", nil, bySQL("q"), false, true},
		{"nobody has entered himself: broker", nil, byBroker("q"), false, false},
		{"one reads the log: SQL", []string{"wal"}, bySQL("q"), true, false},
		{"one reads the log: broker", []string{"wal"}, byBroker("q"), false, false},
		{"two read the log: broker", []string{"wal", "wal"}, byBroker("q"), true, false},
		{"two read the log: broker, stream", []string{"wal", "wal"}, byBroker("s"), false, false},
		{"one reads the log: SQL, stream", []string{"wal"}, bySQL("s"), false, false},
		{"one listens: SQL, stream", []string{"wal", "notify"}, bySQL("s"), false, true},
		{"one listens: SQL", []string{"wal", "notify"}, bySQL("q"), true, true},
		{"one listens: broker", []string{"wal", "notify"}, byBroker("q"), false, false},
	} {
		alive(c.tails...)
		require.Equal(t, c.log, logged(c.do), c.name)
		require.Equal(t, c.notified, notified(), c.name)
	}
	_, err = b.pool.Exec(ctx, `update leat.brokers set until = now() - interval '1 s'`)
	require.NoError(t, err)
	require.False(t, logged(bySQL("q")), "who is silent is gone")
}
