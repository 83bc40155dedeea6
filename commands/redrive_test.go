package commands_test

import (
	"testing"
	"time"

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
