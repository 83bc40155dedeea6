package queries_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"leat/commands"
	"leat/eventstore"
	"leat/queries"
)

// family is what a message becomes that is routed by an exchange into three
// queues, from one of them on into two more, where it dies, is copied for that,
// dies there, and is redriven.
func family(b bench) (story string, members []eventstore.MessageID) {
	b.t.Helper()
	for _, name := range []string{"in", "a", "b", "c", "d", "e", "graves", "again"} {
		b.declare(name, commands.ChannelSpec{})
	}
	published := b.publish("in", commands.Message{Payload: []byte(`{"order":4711}`), RoutingKey: "k", Headers: []byte(`{"h":1}`)})[0]
	b.exchange("in")
	first := b.copies("link", "in", "", []original{{id: published, key: "k"}}, "a", "b", "c")
	second := b.copies("link", "b", "", first[1], "d", "e")
	d := second[0][0]
	b.is(eventstore.MessageDelivered, "d", nil, d.id)
	b.is(eventstore.MessageDeadLettered, "d", map[string]any{"reason": "rejected", "detail": "no"}, d.id)
	grave := b.copies("dead_letter", "d", `{"leat-death-queue":"d"}`, []original{d}, "graves")[0][0]
	b.is(eventstore.MessageDeadLettered, "graves", map[string]any{"reason": "retries_exhausted"}, grave.id)
	b.is(eventstore.MessageRecovered, "graves", map[string]any{"to": "again"}, grave.id)
	again := b.copies("redrive", "graves", "", []original{grave}, "again")[0][0]
	b.is(eventstore.MessageAcked, "again", nil, again.id)
	story = strings.Join([]string{
		" in/k routed: published routed",
		"  link a/k ready: copied",
		"  link b/k ready: copied routed",
		"    link d/k dead: copied delivered dead_lettered routed",
		"      dead_letter graves/k redriven: copied dead_lettered recovered routed",
		"        redrive again/k acked: copied acked",
		"    link e/k ready: copied",
		"  link c/k ready: copied",
		"",
	}, "\n")
	members = []eventstore.MessageID{
		published, first[0][0].id, first[1][0].id, d.id, grave.id, again.id, second[1][0].id, first[2][0].id,
	}
	return story, members
}

func TestG6FamilyFromAnyMember(t *testing.T) {
	t.Parallel()
	b := setup(t)
	story, members := family(b)
	want := b.lineage(members[0])
	require.Equal(t, story, drawn(want))
	require.False(t, want.Truncated)
	for i, id := range members {
		l := b.lineage(id)
		require.Equal(t, id, want.Members[i].ID)
		require.Equal(t, want.Members, l.Members)
		require.Equal(t, members[0], l.OriginID)
	}
	death := want.Members[3].Events[2]
	require.Equal(t, "somebody", death.Actor)
	require.Equal(t, "d", death.Channel)
	require.JSONEq(t, `{"reason":"rejected","detail":"no"}`, string(death.Data))
	require.WithinDuration(t, time.Now(), death.At, time.Minute)
}

// A copy has the content of its origin and its own headers, place and state.
func TestG6CopiesAreMessages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, members := family(b)
	for i, want := range []struct {
		channel string
		state   queries.State
		reason  string
		headers string
		kinds   string
	}{
		{"in", queries.Routed, "", `{"h":1}`, "published routed"},
		{"a", queries.Ready, "", `{"h":1}`, "copied"},
		{"b", queries.Ready, "", `{"h":1}`, "copied routed"},
		{"d", queries.Dead, "rejected", `{"h":1}`, "copied delivered dead_lettered routed"},
		{"graves", queries.Redriven, "", `{"h":1,"leat-death-queue":"d"}`, "copied dead_lettered recovered routed"},
		{"again", queries.Acked, "", `{"h":1}`, "copied acked"},
	} {
		m, err := b.Message(t.Context(), members[i])
		require.NoError(t, err)
		require.Equal(t, []any{members[i], members[0], want.channel, "k", want.state, want.reason, `{"order":4711}`},
			[]any{m.ID, m.OriginID, m.Channel, m.RoutingKey, m.State, m.Reason, string(m.Payload)})
		require.JSONEq(t, want.headers, string(m.Headers))
		events := b.history(members[i])
		require.Equal(t, want.kinds, kindsOf(events))
		found, _, err := b.Events(t.Context(), queries.EventsFilter{MessageID: members[i]})
		require.NoError(t, err)
		require.Equal(t, events, found)
	}
}

// One message into ten queues; and a batch, whose messages keep apart, with keys
// of their own up to the greatest length.
func TestG6FanOut(t *testing.T) {
	t.Parallel()
	b := setup(t)
	targets := make([]string, 10)
	for i := range targets {
		targets[i] = fmt.Sprintf("target-%d", i)
		b.declare(targets[i], commands.ChannelSpec{})
	}
	b.declare("source", commands.ChannelSpec{})
	b.declare("deep", commands.ChannelSpec{})
	var batch []original
	for i := range 5 {
		key := strings.Repeat("é", 127) + fmt.Sprint(i)
		batch = append(batch, original{id: b.publish("source", commands.Message{Payload: []byte("1"), RoutingKey: key})[0], key: key})
	}
	made := b.copies("link", "source", "", batch, targets...)
	deep := b.copies("link", targets[3], "", made[3], "deep")[0]
	for i, o := range batch {
		l := b.lineage(deep[i].id)
		require.Len(t, l.Members, 12)
		require.Equal(t, b.lineage(o.id).Members, l.Members)
		for _, m := range l.Members {
			require.Equal(t, o.key, m.RoutingKey)
			stored, err := b.Message(t.Context(), m.ID)
			require.NoError(t, err)
			require.Equal(t, []any{o.id, o.key, m.Channel}, []any{stored.OriginID, stored.RoutingKey, stored.Channel})
		}
	}
}

// F13: a recovered message goes on under its id, and may die again; what is done
// to very many at once names it by a range.
func TestG6RecoveredTwice(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.ChannelSpec{Mode: commands.FIFO})
	id := b.publish("q", numbered(1)...)[0]
	all := fmt.Sprintf("{[1,%d]}", id)
	for range 2 {
		b.is(eventstore.MessageDelivered, "q", nil, id)
		b.is(eventstore.MessageDeadLettered, "q", map[string]any{"reason": "rejected"}, id)
		b.is(eventstore.CircuitOpened, "q", nil, id)
		m, err := b.Message(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, queries.Dead, m.State)
		expires := time.Now().Add(time.Hour).Truncate(time.Millisecond)
		b.log(logged{kind: eventstore.MessageRecovered, channel: "q", ranges: all, expires: &expires})
		m, err = b.Message(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, queries.Ready, m.State)
		require.Equal(t, 0, m.Attempts)
		require.Empty(t, m.Reason)
		require.Nil(t, m.DiedAt)
		require.WithinDuration(t, expires, *m.ExpiresAt, 0)
	}
	b.log(logged{kind: eventstore.MessagePurged, channel: "q", ranges: all})
	const round = " delivered dead_lettered circuit.opened recovered"
	events := b.history(id)
	require.Equal(t, "published"+round+round+" purged", kindsOf(events))
	require.Equal(t, []eventstore.MessageRange{{First: 1, Last: id}}, events[4].MessageRanges)
	require.Equal(t, events, b.eventsOf(id))
	require.Equal(t, " q/ purged: published"+round+round+" purged\n", drawn(b.lineage(id)))
}

func (b bench) history(id eventstore.MessageID) []queries.Event {
	b.t.Helper()
	h, next, err := b.History(b.t.Context(), id, queries.HistoryFilter{})
	require.NoError(b.t, err)
	require.Empty(b.t, next)
	return h.Events
}

func (b bench) eventsOf(id eventstore.MessageID) []queries.Event {
	b.t.Helper()
	events, _, err := b.Events(b.t.Context(), queries.EventsFilter{MessageID: id})
	require.NoError(b.t, err)
	return events
}

// What an exchange had no link for is nowhere, however much passes there later.
func TestG6Unroutable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("in", commands.ChannelSpec{})
	b.declare("out", commands.ChannelSpec{})
	lost, routed := b.publish("in", numbered(1)...)[0], b.publish("in", numbered(1)...)[0]
	b.exchange("in")
	b.copies("link", "in", "", []original{{id: routed}}, "out")
	for id, state := range map[eventstore.MessageID]queries.State{lost: queries.Unroutable, routed: queries.Routed} {
		m, err := b.Message(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, state, m.State)
	}
	require.Equal(t, " in/ unroutable: published\n", drawn(b.lineage(lost)))
}

func TestG6UnknownMessages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, members := family(b)
	var unknown []eventstore.MessageID
	rows, err := b.pool.Query(t.Context(), `select e.position from leat.events e where e.kind <> 'message.published'`)
	require.NoError(t, err)
	for rows.Next() {
		var id eventstore.MessageID
		require.NoError(t, rows.Scan(&id))
		unknown = append(unknown, id)
	}
	require.NoError(t, rows.Err())
	require.Greater(t, len(unknown), len(members))
	for _, id := range append(unknown, eventstore.MessageID(b.draw(1)[0]), 1<<40, 1<<63-1) {
		_, err := b.Message(t.Context(), id)
		require.Equal(t, eventstore.MessageNotFound, code(err), "message %d", id)
		_, _, err = b.History(t.Context(), id, queries.HistoryFilter{})
		require.Equal(t, eventstore.MessageNotFound, code(err), "history of %d", id)
		_, err = b.Lineage(t.Context(), id, queries.LineageFilter{})
		require.Equal(t, eventstore.MessageNotFound, code(err), "lineage of %d", id)
		require.Empty(t, b.eventsOf(id))
	}
	for _, f := range []queries.LineageFilter{{Limit: -1}, {Limit: queries.MaxLimit + 1}, {Cursor: "x"}} {
		_, err := b.Lineage(t.Context(), members[0], f)
		require.Equal(t, eventstore.InvalidField, code(err), "%+v", f)
	}
}

// An answer is bounded, says so, and says how to go on; the way to the message
// that was asked for is never left out.
func TestG6FamilyInParts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("source", commands.ChannelSpec{})
	b.declare("deep", commands.ChannelSpec{})
	targets := make([]string, 30)
	for i := range targets {
		targets[i] = fmt.Sprintf("target-%d", i)
		b.declare(targets[i], commands.ChannelSpec{})
	}
	origin := b.publish("source", numbered(1)...)[0]
	made := b.copies("link", "source", "", []original{{id: origin}}, targets...)
	last := made[29][0]
	for _, list := range made {
		b.copies("link", targets[0], "", list[:1], "deep") // nobody's, but of target-0
	}
	deep := b.copies("link", targets[29], "", []original{last}, "deep")[0][0]
	for range 150 {
		b.is(eventstore.MessageExtended, "deep", nil, deep.id)
	}

	l, err := b.Lineage(t.Context(), deep.id, queries.LineageFilter{Limit: 10})
	require.NoError(t, err)
	require.True(t, l.Truncated)
	require.Len(t, l.Members, 3+10)
	seen := map[eventstore.MessageID]bool{}
	for _, m := range l.Members {
		seen[m.ID] = true
	}
	require.True(t, seen[origin] && seen[last.id] && seen[deep.id])
	tail := l.Members[len(l.Members)-1]
	require.Equal(t, deep.id, tail.ID)
	require.Len(t, tail.Events, 100)
	rest, _, err := b.History(t.Context(), deep.id, queries.HistoryFilter{Cursor: tail.NextEvents})
	require.NoError(t, err)
	require.Len(t, rest.Events, 51)

	// Everything is found by the cursors.
	next := []queries.Lineage{l}
	for len(next) > 0 {
		l, next = next[0], next[1:]
		for _, m := range l.Members {
			seen[m.ID] = true
			if m.NextCopies != "" {
				more, err := b.Lineage(t.Context(), m.ID, queries.LineageFilter{Cursor: m.NextCopies, Limit: 10})
				require.NoError(t, err)
				require.Equal(t, m.ID, more.Members[0].ID)
				require.Equal(t, m.Depth, more.Members[0].Depth)
				next = append(next, more)
			}
		}
	}
	require.Len(t, seen, len(b.lineage(origin).Members))
	require.Len(t, seen, 1+30+1+1)
}

// What a family costs that has come to rest does not grow with the log.
func TestG6CostOfAFamily(t *testing.T) {
	t.Parallel()
	b := setup(t)
	story, members := family(b)
	statements := func() (buffers []int) {
		origin, dead, redriven := members[0], members[3], members[5]
		path := b.channels("again", "graves", "d", "b", "in")
		for _, s := range []struct {
			sql  string
			args []any
		}{
			{queries.BeginningsSQL, []any{redriven, 1000, 10_000_000, 100_000}},
			{queries.FamilyEventsSQL, []any{
				[]eventstore.MessageID{redriven, members[4], origin},
				[]int{path[0], path[1], path[4]},
				[]bool{false, false, true},
				[]int64{1 << 62, 1 << 62, 1 << 62},
				30_000, 101,
			}},
			{queries.CopiesSQL, []any{[]eventstore.MessageID{dead}, b.routings(dead), []int64{}, 0, 101}},
			{queries.HistorySQL, []any{redriven, 1 << 62, 0, path[0], false, 101}},
		} {
			buffers = append(buffers, b.buffers(s.sql, s.args...))
		}
		return buffers
	}
	gap := eventstore.MessageID(b.draw(1)[0])
	before := statements() // of a log of one partition
	b.noise()
	for i, n := range statements() {
		require.Less(t, n, 4*before[i]+40, "statement %d had %d", i, before[i])
	}
	// Before 20,000 copies of others.
	event := b.routings(members[3])[0]
	require.Less(t, b.buffers(queries.BeginningsSQL, event, 0, 10_000_000, 100_000), 20, "no copy has the position of an event")
	begin := time.Now()
	_, err := b.Message(t.Context(), gap)
	require.Equal(t, eventstore.MessageNotFound, code(err))
	t.Logf("an unknown id: %s", time.Since(begin).Round(time.Millisecond))
	start := time.Now()
	l := b.lineage(members[5])
	t.Logf("a family of %d in a log of 300,000 events: %s", len(l.Members), time.Since(start).Round(time.Millisecond))
	require.Equal(t, story, drawn(l))
}

// noise is 300,000 later events, also of the channels of the family.
func (b bench) noise() {
	b.t.Helper()
	for _, sql := range []string{
		`select leat.make_partitions()`,
		`insert into leat.events (kind, channel_id, routing_key, payload)
		 select 'message.published', c.id, 'k', '\x31' from leat.channels c, generate_series(1, 20000)`,
		`insert into leat.events (kind, channel_id, message_ids, at)
		 select 'message.acked', c.id, array[1000000000 + n], clock_timestamp() + interval '1 min'
		 from leat.channels c, generate_series(1, 15000) n`,
		`insert into leat.events (kind, channel_id, message_ids, origin_ids, data, at)
		 select 'message.copied', c.id, array[1000000000 + n], array[1], '{"from":1}', clock_timestamp() + interval '1 min'
		 from leat.channels c, generate_series(1, 2500) n`,
		`vacuum analyze leat.events`,
	} {
		_, err := b.pool.Exec(b.t.Context(), sql)
		require.NoError(b.t, err)
	}
}

// channels are their numbers.
func (b bench) channels(names ...string) (numbers []int) {
	b.t.Helper()
	require.NoError(b.t, b.pool.QueryRow(b.t.Context(), `
		select array_agg(c.id order by array_position($1::text[], c.name))
		from leat.channels c
		where c.name = any ($1)`, names).Scan(&numbers))
	return numbers
}

// routings are the events that made copies of a message.
func (b bench) routings(id eventstore.MessageID) (positions []int64) {
	b.t.Helper()
	require.NoError(b.t, b.pool.QueryRow(b.t.Context(), `
		select array_agg(e.position) from leat.events e where e.kind = 'message.routed' and $1 = any (e.message_ids)`, id).Scan(&positions))
	return positions
}

var hits = regexp.MustCompile(`shared hit=(\d+)(?: read=(\d+))?`)

// buffers is how many pages a statement looks at, as the queries run it.
func (b bench) buffers(sql string, args ...any) (n int) {
	b.t.Helper()
	require.NoError(b.t, pgx.BeginFunc(b.t.Context(), b.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(b.t.Context(), queries.PlansSQL); err != nil {
			return err
		}
		rows, err := tx.Query(b.t.Context(), "explain (analyze, buffers, timing off, summary off) "+sql, args...)
		if err != nil {
			return err
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		plan := strings.Join(lines, "\n")
		require.NotContains(b.t, plan, "Seq Scan on events")
		for _, number := range hits.FindStringSubmatch(plan)[1:] {
			if number != "" {
				pages, err := strconv.Atoi(number)
				require.NoError(b.t, err)
				n += pages
			}
		}
		return err
	}))
	return n
}
