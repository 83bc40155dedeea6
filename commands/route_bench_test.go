package commands_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"leat/commands"
)

// BenchmarkRoutes finds the ways of messages through topic exchanges, in the
// settings of a publish. How many links there are matters little: a key walks
// down those patterns only that begin as it does.
func BenchmarkRoutes(b *testing.B) {
	x := newBench(b)
	for i := range 10 {
		x.declare(fmt.Sprint("q", i), commands.Standard, commands.PolicyPatch{})
	}
	x.declare("all", commands.Standard, commands.PolicyPatch{})
	for _, links := range []int{10, 1000, 10_000} {
		e := x.topicExchange(b, links)
		for _, batch := range []int{1, 100} {
			b.Run(fmt.Sprintf("links=%d/batch=%d", links, batch), func(b *testing.B) {
				tx, err := x.pool.Begin(ctx)
				require.NoError(b, err)
				defer func() { require.NoError(b, tx.Rollback(ctx)) }()
				_, err = tx.Exec(ctx, `set local enable_seqscan = off; set local enable_bitmapscan = off; set local jit = off;
					set local plan_cache_mode = force_generic_plan; set local search_path = ''`)
				require.NoError(b, err)
				n := 0
				x.begin(b)
				for b.Loop() {
					var copies int
					require.NoError(b, tx.QueryRow(ctx, `
						select count(*)
						from leat.routes_of(array_fill($1::integer, array[$2::integer]),
							array(select format('tenant-%s.order.%s', mod($3::bigint * 7919 + i, $4), i) from generate_series(1, $2) i), null)`,
						e.ID, batch, n, links).Scan(&copies))
					require.Equal(b, 2*batch, copies)
					n += batch
				}
				x.report(b, n)
			})
		}
	}
}

// topicExchange makes an exchange with so many links to ten queues, each with a
// pattern of its own, and one that all messages go along.
func (x *bench) topicExchange(b *testing.B, links int) commands.Channel {
	b.Helper()
	e := x.exchange(fmt.Sprint("e", links), commands.Topic)
	_, err := x.pool.Exec(ctx, `
		select leat.declare_link($1, 'q' || mod(i, 10), pattern => format('tenant-%s.*.#', i - 1)) from generate_series(1, $2::integer) i`,
		e.Name, links)
	require.NoError(b, err)
	_, err = x.pool.Exec(ctx, `select leat.declare_link($1, 'all', pattern => '#')`, e.Name)
	require.NoError(b, err)
	return e
}
