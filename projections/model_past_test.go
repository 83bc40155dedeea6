package projections_test

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// remembered is what the views held at a position.
type remembered struct {
	position int64
	queues   []int32
	runs     []string
	circuits []string
}

const viewNowSQL = `
	select format('%s %s %s %s %s %s %s %s %s', r.channel_id, i.id, coalesce(i.origin, i.id), greatest(r.state, 1::smallint), r.deliveries,
		r.delivery, r.owner, r.reason, r.died_at)
	from leat.queue_runs r
	cross join lateral unnest(r.ids, r.origins) i (id, origin)
	order by r.channel_id, i.id`

const viewThenSQL = `
	select format('%s %s %s %s %s %s %s %s %s', f.channel_id, f.id, coalesce(f.origin, f.id), greatest(f.state, 1::smallint), f.deliveries,
		f.delivery, f.owner, f.reason, f.died_at)
	from leat.fold(true, false, $1, $2) f
	order by f.channel_id, f.id`

const circuitsNowSQL = `
	select format('%s %s %s %s', c.channel_id, c.routing_key, c.state, c.message_id)
	from leat.circuits c
	where c.state in ('open', 'half_open')
	order by c.channel_id, c.routing_key`

const circuitsThenSQL = `
	select format('%s %s %s %s', f.channel_id, f.routing_key, f.state, f.message_id)
	from leat.fold_circuits($1, $2) f
	order by f.channel_id, f.routing_key`

func (m *model) texts(t *rapid.T, sql string, args ...any) []string {
	rows, err := m.pool.Query(context.Background(), sql, args...)
	require.NoError(t, err)
	texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return texts
}

// remember keeps what the views hold now.
func (m *model) remember(t *rapid.T) {
	var r remembered
	require.NoError(t, m.pool.QueryRow(context.Background(), `
		select leat.settled_position(), array(select id from leat.channels where kind = 'queue' and deleted_at is null)`).Scan(&r.position, &r.queues))
	r.runs, r.circuits = m.texts(t, viewNowSQL), m.texts(t, circuitsNowSQL)
	m.past = append(m.past, r)
}

// checkPast holds the log up to some of those positions against what the views held
// there.
func (m *model) checkPast(t *rapid.T) {
	for range min(3, len(m.past)) {
		r := rapid.SampledFrom(m.past).Draw(t, "position")
		if known := m.texts(t, `select leat.can_fold($1, $2)::text`, r.position, r.queues); known[0] != "true" {
			continue
		}
		require.Equal(t, r.runs, m.texts(t, viewThenSQL, r.position, r.queues), "messages as of %d", r.position)
		require.Equal(t, r.circuits, m.texts(t, circuitsThenSQL, r.position, r.queues), "circuits as of %d", r.position)
	}
}
