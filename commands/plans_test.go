package commands_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"leat/commands"
)

// What became of a receipt is read from the batch events of its queue, however
// much other queues have written since.
func TestReceiptFateReadsItsQueue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("quiet", commands.Standard, commands.PolicyPatch{})
	b.declare("busy", commands.Standard, commands.PolicyPatch{})
	write := func(queues ...string) {
		_, err := b.pool.Exec(ctx, `
			insert into leat.events (kind, channel_id, message_ids)
			select 'message.acked', leat.queue_id(q), array[n] from generate_series(1, 20000) n, unnest($1::text[]) q`, queues)
		require.NoError(t, err)
	}
	write("quiet", "busy") // as the planner remembers them
	_, err := b.pool.Exec(ctx, `vacuum analyze leat.events`)
	b.publish("quiet", commands.Message{})
	held := b.receive("quiet", 1)[0]
	write("busy")
	require.NoError(t, err)

	conn, err := b.pool.Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	read := func() (pages int) {
		var text []byte
		require.NoError(t, conn.QueryRow(ctx, `
			explain (analyze, buffers, format json)
			select leat.receipt_fate(leat.queue_id('quiet'), `+held.Receipt.Delivery.String()+`, `+held.MessageID.String()+`)`).Scan(&text))
		var plans []struct {
			Plan struct {
				Hit  int `json:"Shared Hit Blocks"`
				Read int `json:"Shared Read Blocks"`
			}
		}
		require.NoError(t, json.Unmarshal(text, &plans))
		return plans[0].Plan.Hit + plans[0].Plan.Read
	}
	// The first one reads the catalog too. The others have a plan for the numbers, then
	// one for any.
	read()
	for range 8 {
		require.Less(t, read(), 50)
	}
}
