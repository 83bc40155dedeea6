package commands_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"leat/commands"
	"leat/eventstore"
)

// Dead letters that go to another channel are new messages there, with the same
// origins and contents, and are gone from where they died.
func TestRedrive(t *testing.T) {
	t.Parallel()
	for _, target := range []string{commands.Standard, commands.FIFO} {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			modes(t, func(t *testing.T, b broker) {
				b.declare("to", target, commands.PolicyPatch{})
				dead := b.bury("q", "k", numbered(10)...)
				req := byID(dead[3], dead[5])
				req.To = "to"
				require.EqualValues(t, 2, b.recover(req).Done)
				require.Equal(t, map[eventstore.MessageID]eventstore.Code{
					dead[3]: eventstore.MessageNotDead, dead[5]: eventstore.MessageNotDead,
				}, failures(b.recover(req)))
				b.verify()

				all := everything()
				all.To, all.TTL = "to", time.Hour
				res := b.recover(all)
				require.EqualValues(t, 8, res.Done)
				require.Zero(t, res.Remaining)
				require.Empty(t, b.states("q"))
				got := b.receive("to", 10)
				want := []string{"3", "5", "0", "1", "2", "4", "6", "7", "8", "9"}
				require.Equal(t, want, payloads(got))
				require.Equal(t, dead[3], got[0].OriginMessageID)
				require.Greater(t, got[0].Receipt.Message, dead[9])
				b.verify()
			})
		})
	}
}

// What has no route where it should go stays.
func TestRedriveIntoNowhere(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	_, _, err := b.DeclareChannel(ctx, "test", commands.ChannelSpec{Name: "x", Kind: commands.Exchange, Type: commands.Fanout})
	require.NoError(t, err)
	dead := b.bury("q", "k", "1")
	for to, code := range map[string]eventstore.Code{
		"nowhere": eventstore.ChannelNotFound, "q": eventstore.InvalidField, "?": eventstore.InvalidField,
	} {
		req := everything()
		req.To = to
		_, err := b.Recover(ctx, req)
		require.Equal(t, code, refusal(t, err).Code, to)
	}
	req := byID(dead...)
	req.To = "x"
	require.Equal(t, map[eventstore.MessageID]eventstore.Code{dead[0]: eventstore.Unroutable}, failures(b.recover(req)))
	all := everything()
	all.To = "x"
	res := b.recover(all)
	require.Zero(t, res.Done)
	require.EqualValues(t, 1, res.Remaining)
	b.verify()
}

// The SQL surface does the same in the caller's transaction.
func TestRedriveFromSQL(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	b.declare("to", commands.Standard, commands.PolicyPatch{})
	dead := b.bury("q", "k", "1", "2", "3")
	require.Equal(t, []string{"redriven", "not_found", "redriven"},
		texts(t, b.pool, `select result from leat.redrive('q', 'to', $1)`, []int64{int64(dead[1]), 1 << 40, int64(dead[1])}))
	require.Equal(t, []string{"(2,0,0)"}, texts(t, b.pool, `select r::text from leat.redrive_all('q', 'to', reason => 'rejected') r`))
	require.Empty(t, b.states("q"))
	require.Equal(t, []string{"2", "1", "3"}, payloads(b.receive("to", 3)))
	for sql, code := range map[string]eventstore.Code{
		`select leat.redrive('q', 'to', '{}')`:                    eventstore.InvalidField,
		`select leat.redrive('q', 'q', '{1}')`:                    eventstore.InvalidField,
		`select leat.redrive('q', null, '{1}')`:                   eventstore.ChannelNotFound,
		`select leat.redrive_all('q', 'no')`:                      eventstore.ChannelNotFound,
		`select leat.redrive_all('q', 'to', reason => 'boredom')`: eventstore.InvalidField,
	} {
		refusedSQL(t, b, code, sql)
	}
	b.verify()
}

// Who redrives into a channel that is about to be deleted is told to come again: the
// deletion may wait for the queue that he holds.
func TestRedriveIntoWhatIsAboutToBeDeleted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("to", commands.Standard, commands.PolicyPatch{})
	b.declare("f", commands.Standard, commands.PolicyPatch{})
	_, _, err := b.DeclareLink(ctx, "test", commands.LinkSpec{Source: "f", Target: "to"})
	require.NoError(t, err)
	b.publish("f", commands.Message{Payload: []byte("1")})
	b.nack(commands.DeadLetterAction, b.receive("f", 1)...)
	deleted := b.deleteBehindAPublish("to", "to")
	_, err = b.pool.Exec(ctx, `select leat.redrive_ids(c.id, array(select m.message_id from leat.dead_letters m), 'to', null, null)
		from leat.channels c where c.name = 'f'`)
	failed, ok := errors.AsType[*pgconn.PgError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, "55P03", failed.Code)
	deleted()
	require.Equal(t, "dead:1", b.states("f"))
	b.verify()
}

// What dies in a queue that is about to be deleted, as is the channel of its dead
// letters that leads back to it, is waited for by nobody who waits for it.
func TestDeadLettersOfWhatIsAboutToBeDeleted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, _, err := b.DeclareChannel(ctx, "test", commands.ChannelSpec{Name: "x", Kind: commands.Exchange, Type: commands.Fanout})
	require.NoError(t, err)
	b.declare("f", commands.Standard, commands.PolicyPatch{DeadLetterTo: new("x"), MaxDeliveries: new(1)})
	b.declare("other", commands.Standard, commands.PolicyPatch{})
	_, _, err = b.DeclareLink(ctx, "test", commands.LinkSpec{Source: "x", Target: "f"})
	require.NoError(t, err)
	b.publishTexts("f", "", "1", "2")
	b.publishTexts("other", "", "1")
	got := b.receive("f", 1)
	b.poll(commands.PollRequest{Queue: "f", Max: 1, Lease: 100 * time.Millisecond})
	b.poll(commands.PollRequest{Queue: "other", Max: 1, Lease: 200 * time.Millisecond})
	deleted := b.deleteBehindAPublish("f", "f")
	nacked := make(chan error, 1)
	go func() {
		res, err := b.Nack(ctx, commands.NackRequest{SettleRequest: settle("f", got...), Action: commands.DeadLetterAction})
		if err == nil && len(res.Failed) != 1 {
			err = fmt.Errorf("settled %d", res.Settled)
		}
		nacked <- err
	}()
	b.waitStates("other", "ready:1") // sweeps go on
	deleted()
	require.NoError(t, <-nacked)
	b.verify()
}

// deleteBehindAPublish deletes a channel, which waits for an open publish; the answer
// ends the one, and sees the other through.
func (b broker) deleteBehindAPublish(name, channel string) func() {
	b.t.Helper()
	open, err := b.pool.Begin(ctx)
	require.NoError(b.t, err)
	_, err = open.Exec(ctx, `select leat.publish($1, 'open')`, channel)
	require.NoError(b.t, err)
	deleted := make(chan error, 1)
	go func() {
		_, err := b.pool.Exec(ctx, `select leat.delete_channel($1, true, 'test')`, name)
		deleted <- err
	}()
	require.Eventually(b.t, func() bool {
		return len(texts(b.t.(*testing.T), b.pool, `
			select mode from pg_locks where locktype = 'advisory' and classid = 1279607042 and not granted and mode = 'ExclusiveLock'
			and database = (select oid from pg_database where datname = current_database())`)) == 1
	}, patience, 5*time.Millisecond)
	return func() {
		b.t.Helper()
		require.NoError(b.t, open.Commit(ctx))
		require.NoError(b.t, <-deleted)
	}
}

// What a redrive costs does not grow with the square of the runs: they are split
// once, not once for each row that the deletion looks at.
func TestRedriveSplitsOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.FIFO, commands.PolicyPatch{})
	b.withoutCircuit()
	b.declare("to", commands.Standard, commands.PolicyPatch{})
	for _, key := range numbered(5) {
		b.bury("q", key, "1", "2")
	}
	require.NoError(t, pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `set local track_functions = 'all'`); err != nil {
			return err
		}
		req := everything()
		req.To = "to"
		res, err := b.RecoverTx(ctx, tx, req)
		require.NoError(t, err)
		require.EqualValues(t, 10, res.Done)
		var calls int64
		err = tx.QueryRow(ctx, `select calls from pg_stat_xact_user_functions where schemaname = 'leat' and funcname = 'split_runs'`).Scan(&calls)
		require.LessOrEqual(t, calls, int64(2))
		return err
	}))
	b.verify()
}
