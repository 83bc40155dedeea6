package commands_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"leat/commands"
)

// A key with a million waiting messages dies in one statement over its runs, and
// comes back so.
func BenchmarkG5MillionOfAKey(b *testing.B) {
	for name, gap := range map[string]int{"neighbours": 1, "apart": 2} {
		b.Run(name, func(b *testing.B) {
			x := newBench(b)
			x.declare("f", commands.FIFO, commands.PolicyPatch{})
			for range b.N {
				x.fillKey(b, 1_000_000, gap)
				first := x.receive("f", 1)
				whole := x.costs(b)
				start := time.Now()
				_, err := x.Nack(ctx, commands.NackRequest{SettleRequest: settle("f", first...), Action: commands.DeadLetterAction})
				opened := time.Since(start)
				require.NoError(b, err)
				before := x.costs(b)
				start = time.Now()
				res, err := x.CloseCircuit(ctx, commands.CircuitRequest{Queue: "f", RoutingKey: "k"}, true)
				require.NoError(b, err)
				require.EqualValues(b, 1_000_000, res.Messages)
				b.ReportMetric((x.costs(b).cpu - whole.cpu).Seconds(), "server-s/both")
				b.ReportMetric(opened.Seconds(), "s/open")
				b.ReportMetric(time.Since(start).Seconds(), "s/close")
				b.ReportMetric(float64(x.costs(b).wal-before.wal)/10_000, "WAL-B/100-closed")
			}
		})
	}
}

// fillKey lets n messages wait under one key, whose ids are gap apart.
func (x *bench) fillKey(b *testing.B, n, gap int) {
	b.Helper()
	_, err := x.pool.Exec(ctx, `
		with ids as (
			select s.last_value + 1 + i * $2::bigint as id, i from leat.position_seq s, generate_series(0, $1 - 1) i
		), runs as (
			insert into leat.queue_runs (channel_id, fifo, first_id, state, rank, routing_key, ids)
			select leat.queue_id('f'), true, min(id), 0, 9, 'k', array_agg(id order by id) from ids group by i / 200
		), events as (
			insert into leat.events (position, kind, channel_id, routing_key, payload)
			select id, 'message.published', leat.queue_id('f'), 'k', '' from ids
		)
		insert into leat.lanes (channel_id, routing_key, head_id, state)
		select leat.queue_id('f'), 'k', min(id), 0 from ids`, n, gap)
	require.NoError(b, err)
	_, err = x.pool.Exec(ctx, `select setval('leat.position_seq', s.last_value + $1 * $2::bigint + 1) from leat.position_seq s`, n, gap)
	require.NoError(b, err)
}
