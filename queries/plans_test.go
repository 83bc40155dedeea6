package queries_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"leat/commands"
	"leat/queries"
)

// fill makes a log and queues that are large enough for their indexes.
func fill(t *testing.T, b bench) {
	t.Helper()
	b.declare("standard", commands.ChannelSpec{})
	b.declare("fifo", commands.ChannelSpec{Mode: commands.FIFO})
	for _, sql := range []string{
		`select leat.make_partitions()`,
		`select leat.publish_batch(q, array_fill('\x31'::bytea, array[5000]), array(select (n % 2500)::text from generate_series(1, 5000) n))
		 from unnest(array['standard', 'fifo']) q, generate_series(1, 5)`,
		`select leat.ack('standard', array(select p.receipt from leat.poll('standard', 200) p))`,
		`select leat.nack('standard', array(select p.receipt from leat.poll('standard', 1000) p), 'deadLetter')`,
		`select leat.poll(q, 200) from unnest(array['standard', 'fifo']) q`,
	} {
		_, err := b.pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	_, err := b.pool.Exec(t.Context(), `vacuum analyze`)
	require.NoError(t, err)
}

// Every hot statement finds its rows through indexes on tables that are full,
// whether its plan is made for the parameters or for any.
func TestPlans(t *testing.T) {
	t.Parallel()
	b := setup(t)
	fill(t, b)
	var standard, fifo, last int
	require.NoError(t, b.pool.QueryRow(t.Context(), `
		select (select id from leat.channels where name = 'standard'), (select id from leat.channels where name = 'fifo'), last_value
		from leat.position_seq`).Scan(&standard, &fifo, &last))

	for name, test := range map[string]struct{ sql, args string }{
		"peek":                        {queries.MessagesSQL, fmt.Sprintf("%d, 0, 101, null, true, 8000000, null, null, null", standard)},
		"peek on":                     {queries.MessagesSQL, fmt.Sprintf("%d, %d, 101, null, true, 8000000, null, null, null", standard, last/3)},
		"peek at ready":               {queries.MessagesSQL, fmt.Sprintf("%d, 0, 101, 0, true, 8000000, null, null, null", standard)},
		"peek at dead":                {queries.MessagesSQL, fmt.Sprintf("%d, 0, 101, 3, true, 8000000, null, null, null", standard)},
		"peek at in flight":           {queries.MessagesSQL, fmt.Sprintf("%d, 0, 101, 2, true, 8000000, null, null, null", standard)},
		"peek into FIFO":              {queries.MessagesSQL, fmt.Sprintf("%d, 0, 101, null, true, 8000000, null, null, null", fifo)},
		"peek at a key":               {queries.KeyMessagesSQL, fmt.Sprintf("%d, 0, 101, null, true, 8000000, null, null, null, '7'", fifo)},
		"dead letters of":             {queries.MessagesSQL, fmt.Sprintf("%d, %d, 101, 3, true, 8000000, 'rejected', '2020-01-01', '2100-01-01'", standard, last/3)},
		"channel":                     {queries.ChannelSQL, fmt.Sprint(standard)},
		"history":                     {queries.HistorySQL, fmt.Sprintf("5000, 9000000, 0, %d, false, 101", standard)},
		"beginnings":                  {queries.BeginningsSQL, "5000, 1000, 10000000, 10000"},
		"family events":               {queries.FamilyEventsSQL, fmt.Sprintf("'{5000,6000}', '{%d,%d}', '{f,f}', '{90000,90000}', 1000, 101", standard, fifo)},
		"copies":                      {queries.CopiesSQL, "'{5000,6000}', '{70000,70000}', '{}', 0, 100"},
		"content":                     {queries.ContentSQL, "5000, 5000"},
		"deaths":                      {queries.DeathsSQL, fmt.Sprintf("'{5000,6000}', '{%d,%d}'", standard, standard)},
		"events":                      {queries.EventsSQL, fmt.Sprintf("%d, %d, null, null, null, null, null, null, 101", last/2, last)},
		"filtered events":             {queries.EventsSQL, fmt.Sprintf("%d, %d, null, null, null, null, 'x', null, 101", last/2, last/2+1000)},
		"batch events":                {queries.BatchEventsSQL, fmt.Sprintf("1, %d, null, null, '{%d}', '{message.acked}', null, null, 101", last, standard)},
		"events backwards":            {queries.EventsBackSQL, fmt.Sprintf("%d, %d, null, null, null, null, null, null, 101", last/2, last)},
		"batch events backwards":      {queries.BatchEventsBackSQL, fmt.Sprintf("1, %d, null, null, '{%d}', '{message.acked}', null, null, 101", last, standard)},
		"window backwards":            {queries.WindowBackSQL, fmt.Sprintf("1, %d, 20000", last)},
		"window of batches backwards": {queries.BatchWindowBackSQL, fmt.Sprintf("1, %d, 20, '{%d}'", last, standard)},
		"time":                        {queries.ProbeSQL, fmt.Sprintf("1, %d", last/2)},
		"window":                      {queries.WindowSQL, fmt.Sprintf("1, %d, 20000", last)},
		"window of batches":           {queries.BatchWindowSQL, fmt.Sprintf("1, %d, 20, '{%d}'", last, standard)},
	} {
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			for _, node := range scans(t, b, mode, test.sql, test.args) {
				full := strings.HasPrefix(node.Relation, "events_1") || node.Relation == "queue_runs"
				require.False(t, full && node.Type == "Seq Scan", "%s, %s: %+v", name, mode, node)
			}
		}
	}
}

// The batch events of a channel that has few are found by their own index, however
// many others have: the order of the primary key tempts, and leads through the
// whole log.
func TestPlansOfBatches(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("quiet", commands.ChannelSpec{})
	b.declare("busy", commands.ChannelSpec{})
	var quiet, middle, last int
	require.NoError(t, b.pool.QueryRow(t.Context(), `
		with written as (
			insert into leat.events (kind, channel_id, message_ids)
			select 'message.acked', case when n > 40000 or n % 2 = 0 then leat.queue_id('busy') else leat.queue_id('quiet') end, array[n]
			from generate_series(1, 60000) n
			returning position, channel_id
		)
		select leat.queue_id('quiet'), max(position) filter (where channel_id = leat.queue_id('quiet')), max(position)
		from written`).Scan(&quiet, &middle, &last))
	_, err := b.pool.Exec(t.Context(), `vacuum analyze leat.events`)
	require.NoError(t, err)

	for name, test := range map[string]struct{ sql, alias, args string }{
		"batch events":                {queries.BatchEventsSQL, "e", fmt.Sprintf("%d, %d, null, null, '{%d}', '{message.acked}', null, null, 101", middle, last, quiet)},
		"window of batches":           {queries.BatchWindowSQL, "e", fmt.Sprintf("%d, %d, 9999, '{%d}'", middle, last, quiet)},
		"batch events backwards":      {queries.BatchEventsBackSQL, "e", fmt.Sprintf("%d, %d, null, null, '{%d}', '{message.acked}', null, null, 101", middle, last, quiet)},
		"window of batches backwards": {queries.BatchWindowBackSQL, "e", fmt.Sprintf("%d, %d, 9999, '{%d}'", middle, last, quiet)},
		"history":                     {queries.HistorySQL, "b_", fmt.Sprintf("%d, 9000000, 0, %d, false, 101", middle, quiet)},
		"family events":               {queries.FamilyEventsSQL, "b_", fmt.Sprintf("'{%d}', '{%d}', '{f}', '{9000000}', 1000, 101", middle, quiet)},
	} {
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			var found bool
			for _, node := range scans(t, b, mode, test.sql, test.args) {
				if strings.HasPrefix(node.Relation, "events") && strings.HasPrefix(node.Alias, test.alias) {
					found = true
					require.Regexp(t, "channel_id_(case_message_ids_)?position", node.Index, "%s, %s: %+v", name, mode, node)
				}
			}
			require.True(t, found, name)
		}
	}
}

// planNode is a step of a plan, as EXPLAIN has it.
type planNode struct {
	Type     string     `json:"Node Type"`
	Alias    string     `json:"Alias"`
	Index    string     `json:"Index Name"`
	Relation string     `json:"Relation Name"`
	Plans    []planNode `json:"Plans"`
}

// scans are the steps of a statement's plan that read tables.
func scans(t *testing.T, b bench, mode, sql, args string) (found []planNode) {
	t.Helper()
	var text []byte
	require.NoError(t, pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		for _, sql := range []string{queries.PlansSQL, "set local plan_cache_mode = " + mode, "prepare planned as " + sql} {
			if _, err := tx.Exec(t.Context(), sql); err != nil {
				return err
			}
		}
		if err := tx.QueryRow(t.Context(), "explain (format json) execute planned("+args+")").Scan(&text); err != nil {
			return err
		}
		_, err := tx.Exec(t.Context(), "deallocate planned")
		return err
	}))
	var plans []struct{ Plan planNode }
	require.NoError(t, json.Unmarshal(text, &plans))
	queue := []planNode{plans[0].Plan}
	for len(queue) > 0 {
		node := queue[0]
		queue = append(queue[1:], node.Plans...)
		if node.Relation != "" {
			found = append(found, node)
		}
	}
	require.NotEmpty(t, found)
	return found
}

// What is asked of one message is planned once by each session: that takes far longer
// than to run it. A replay is planned for what it asks, each time.
func TestPlansThatAreKept(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("orders", commands.ChannelSpec{})
	id := b.publish("orders", commands.Message{RoutingKey: "a"})[0]
	config := b.pool.Config()
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	defer pool.Close()
	q := queries.New(pool)
	for range 2 {
		_, _, err = q.History(t.Context(), id, queries.HistoryFilter{})
		require.NoError(t, err)
		_, err = q.Lineage(t.Context(), id, queries.LineageFilter{})
		require.NoError(t, err)
		replay, err := q.Replay(t.Context(), queries.EventsFilter{})
		require.NoError(t, err)
		require.NoError(t, replay.Next(t.Context(), func(*queries.Event) {}))
	}
	var kept []string
	require.NoError(t, pool.QueryRow(t.Context(), `
		select array_agg(split_part(p.statement, chr(10), 1))
		from pg_prepared_statements p
		where p.statement ~ '^-- queries.(beginnings|History|familyEvents|Events)\s'
		  and (p.generic_plans >= 2 and p.custom_plans = 0 or p.statement ~ 'queries.Events\s')`).Scan(&kept))
	require.ElementsMatch(t, []string{"-- queries.History", "-- queries.beginnings", "-- queries.familyEvents"}, kept)
}
