package queries_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"leat/commands"
	"leat/eventstore"
	"leat/queries"
)

func kindsOf(events []queries.Event) string {
	names := make([]string, len(events))
	for i, e := range events {
		names[i] = strings.TrimPrefix(string(e.Kind), "message.")
	}
	return strings.Join(names, " ")
}

// G6: from any message id the whole history, and the state that it ends in.
func TestHistory(t *testing.T) {
	t.Parallel()
	b := running(t)
	b.declare("q", commands.ChannelSpec{Policy: commands.PolicyPatch{
		Retry: commands.RetryPatch{BaseDelay: new(time.Millisecond)}, Lease: new(time.Minute),
	}})
	b.declare("expiring", commands.ChannelSpec{Policy: commands.PolicyPatch{DeadLetterExpired: new(true)}})
	ctx := t.Context()
	settle := func(r []string) commands.SettleRequest {
		return commands.SettleRequest{Queue: "q", Actor: "worker", Receipts: r}
	}

	for name, test := range map[string]struct {
		act   func() eventstore.MessageID
		kinds string
		state queries.State
	}{
		"acked": {func() eventstore.MessageID {
			id := b.publish("q", numbered(1)...)[0]
			b.ack("q", b.poll("q", 1))
			return id
		}, "published delivered acked", queries.Acked},
		"discarded after retry, extension and release": {func() eventstore.MessageID {
			id := b.publish("q", numbered(1)...)[0]
			b.nack("q", b.poll("q", 1), "retry", "")
			r := b.poll("q", 1)
			_, _, err := b.broker.Extend(ctx, commands.ExtendRequest{SettleRequest: settle(r)})
			require.NoError(t, err)
			_, err = b.broker.Release(ctx, settle(r))
			require.NoError(t, err)
			b.nack("q", b.poll("q", 1), "discard", "")
			return id
		}, "published delivered retried delivered extended released delivered discarded", queries.Discarded},
		"purged": {func() eventstore.MessageID {
			id := b.publish("q", numbered(1)...)[0]
			_, err := b.broker.Purge(ctx, "q", "")
			require.NoError(t, err)
			return id
		}, "published purged", queries.Purged},
		"delayed": {func() eventstore.MessageID {
			return b.publish("q", commands.Message{Payload: []byte("1"), Delay: time.Hour})[0]
		}, "published", queries.Delayed},
		"expired": {func() eventstore.MessageID {
			return b.publish("q", commands.Message{Payload: []byte("1"), TTL: time.Millisecond})[0]
		}, "published expired", queries.Expired},
		"expired and dead": {func() eventstore.MessageID {
			return b.publish("expiring", commands.Message{Payload: []byte("1"), TTL: time.Millisecond})[0]
		}, "published expired dead_lettered", queries.Dead},
		"lease expired": {func() eventstore.MessageID {
			id := b.publish("q", commands.Message{Payload: []byte("1"), RoutingKey: "lease"})[0]
			_, err := b.broker.Poll(ctx, commands.PollRequest{
				Queue: "q", Max: 1, Lease: 100 * time.Millisecond, RoutingKeys: []string{"lease"}, Wait: time.Second,
			})
			require.NoError(t, err)
			return id
		}, "published delivered lease_expired", queries.Ready},
	} {
		// In turn, since they share a queue.
		id := test.act()
		var events []queries.Event
		require.Eventually(t, func() bool {
			h, _, err := b.History(ctx, id, queries.HistoryFilter{})
			events = h.Events
			return err == nil && kindsOf(events) == test.kinds
		}, patience, 10*time.Millisecond, "%s: %s", name, kindsOf(events))
		require.Eventually(t, func() bool {
			m, err := b.Message(ctx, id)
			return err == nil && m.State == test.state
		}, patience, 10*time.Millisecond, name)
		if test.state == queries.Ready {
			_, err := b.broker.Purge(ctx, "q", "")
			require.NoError(t, err)
		}
	}
}

func TestMessageInFlight(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.ChannelSpec{})
	id := b.publish("q", commands.Message{Payload: []byte("{ }"), RoutingKey: "k", Priority: 3, ContentType: "a/b", Headers: []byte(`{"H":1}`)})[0]
	receipt, err := eventstore.ParseReceipt(b.poll("q", 1)[0])
	require.NoError(t, err)
	m, err := b.Message(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, queries.InFlight, m.State)
	require.Equal(t, receipt.Delivery, m.Delivery)
	require.Equal(t, "worker", m.Owner)
	require.NotNil(t, m.LeaseUntil)
	require.Equal(t, 1, m.Attempts)
	require.Equal(t, []any{"q", "k", 3, "a/b", "{ }"}, []any{m.Channel, m.RoutingKey, m.Priority, m.ContentType, string(m.Payload)})

	require.NoError(t, b.broker.DeleteChannel(t.Context(), "", "q", true))
	m, err = b.Message(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, queries.Deleted, m.State)
}

func TestHistoryInPages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.ChannelSpec{})
	id := b.publish("q", numbered(1)...)[0]
	for range 3 {
		_, err := b.broker.Release(t.Context(), commands.SettleRequest{Queue: "q", Receipts: b.poll("q", 1)})
		require.NoError(t, err)
	}
	b.ack("q", b.poll("q", 1))
	var filter queries.HistoryFilter
	var pages []string
	for filter.Limit = 4; ; {
		page, next, err := b.History(t.Context(), id, filter)
		require.NoError(t, err)
		pages = append(pages, kindsOf(page.Events))
		if filter.Cursor = next; next == "" {
			break
		}
	}
	require.Equal(t, []string{"published delivered released delivered", "released delivered released delivered", "acked"}, pages)

	for _, f := range []queries.HistoryFilter{{Limit: -1}, {Limit: queries.MaxLimit + 1}, {Cursor: "x"}} {
		_, _, err := b.History(t.Context(), id, f)
		require.Equal(t, eventstore.InvalidField, code(err), "%+v", f)
	}
}

// The history of a message that ended, or died, is as cheap as it was then,
// however much came after it.
func TestHistoryStopsAtTheEnd(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.ChannelSpec{})
	acked := b.publish("q", numbered(1)...)[0]
	b.ack("q", b.poll("q", 1))
	dead := b.publish("q", numbered(1)...)[0]
	b.nack("q", b.poll("q", 1), "deadLetter", "")
	var channel int
	require.NoError(t, b.pool.QueryRow(t.Context(), `
		with others as (
			insert into leat.events (kind, channel_id, message_ids, at)
			select 'message.acked', c.id, array[1000000 + n], clock_timestamp() + n * interval '1 min'
			from leat.channels c, generate_series(1, 100) n
			returning channel_id
		)
		select distinct channel_id from others`).Scan(&channel))
	for id, kinds := range map[eventstore.MessageID]string{
		acked: "published delivered acked", dead: "published delivered dead_lettered",
	} {
		require.Equal(t, kinds, kindsOf(b.history(id)))
		last, err := b.Death(t.Context(), id)
		require.NoError(t, err)
		plan := b.analyze(queries.HistorySQL, id, last, 0, channel, false, 100)
		require.Contains(t, plan, "channel_id_position_idx")
		require.NotRegexp(t, `Rows Removed by Filter: ([2-9]|1\d)`, plan)
	}
}

// Whatever names a message is in its history, near to its beginning or millions of
// positions later, in a batch of its own or among messages of any other age; and what
// does not name it is not looked at, but for batches of messages of its time.
func TestHistoryOfWhatIsLate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.ChannelSpec{})
	id := b.publish("q", numbered(1)...)[0]
	var channel int
	require.NoError(t, b.pool.QueryRow(t.Context(), `
		with others as (
			insert into leat.events (position, kind, channel_id, message_ids, message_ranges)
			select o.position, 'message.extended', c.id, case when o.ranges is null then o.ids else '{}' end, o.ranges
			from leat.channels c
			cross join (
				select $1::bigint + p.position as position,
					(select array_agg(coalesce(i, $1) order by random()) from (
						select $1 + case when n % 2 = 0 then 10 else 0 end + (random() * p.spread)::bigint as i
						from generate_series(1, 1 + (random() * 9)::integer)
						union all
						select null where n % 3 = 0
					) i) as ids,
					case when n % 20 = 0 then int8multirange(int8range($1 - n, $1 + n % 3), int8range($1 + 100 + n, $1 + 200 + n)) end as ranges
				from generate_series(1, 600) n
				cross join lateral (
					select n * (array[1, 1, 100, 300, 10000])[1 + n % 5] + n as position, (array[0, 100, 4096, 4097, 500000, 3000000])[1 + n % 6] as spread
				) p
			) o
			on conflict do nothing
			returning channel_id
		)
		select distinct channel_id from others`, id).Scan(&channel))
	naive, err := b.pool.Query(t.Context(), `
		select e.position
		from leat.events e
		where e.position > $1 and leat.names(e.message_ids, e.message_ranges, $1)
		order by e.position`, id)
	require.NoError(t, err)
	want, err := pgx.CollectRows(naive, pgx.RowTo[eventstore.Position])
	require.NoError(t, err)
	require.Greater(t, len(want), 200)
	require.Greater(t, want[len(want)-1], eventstore.Position(id)+5_000_000)

	for _, limit := range []int{7, queries.MaxLimit} {
		var got []eventstore.Position
		for filter := (queries.HistoryFilter{Limit: limit}); ; {
			page, next, err := b.History(t.Context(), id, filter)
			require.NoError(t, err)
			for _, e := range page.Events {
				got = append(got, e.Position)
			}
			if filter.Cursor = next; next == "" {
				break
			}
		}
		require.Equal(t, append([]eventstore.Position{eventstore.Position(id)}, want...), got)
	}
	lineage, err := b.Lineage(t.Context(), id, queries.LineageFilter{})
	require.NoError(t, err)
	require.Len(t, lineage.Members[0].Events, 100)

	// A long queue, whose messages wait and are settled one by one.
	_, err = b.pool.Exec(t.Context(), `
		insert into leat.events (position, kind, channel_id, message_ids)
		select 20000000 + 2 * n + k, (array['message.delivered', 'message.acked'])[1 + k]::leat.event_kind, $1, array[10000000 + n]
		from generate_series(1, 20000) n, generate_series(0, 1) k`, channel)
	require.NoError(t, err)
	_, err = b.pool.Exec(t.Context(), `vacuum analyze leat.events`)
	require.NoError(t, err)
	plan := b.analyze(queries.HistorySQL, 10_010_000, math.MaxInt64, 0, channel, false, 100)
	require.Contains(t, plan, "(actual rows=2 ")
	require.NotRegexp(t, `Rows Removed by Filter: \d{3}`, plan)
	require.NotRegexp(t, `actual rows=\d{3}`, plan)
}

// analyze runs a statement and tells what it did.
func (b bench) analyze(sql string, args ...any) string {
	b.t.Helper()
	rows, err := b.pool.Query(b.t.Context(), "explain (analyze, timing off, summary off, buffers) "+sql, args...)
	require.NoError(b.t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(b.t, err)
	return strings.Join(lines, "\n")
}

func TestEvents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.ChannelSpec{})
	b.declare("other", commands.ChannelSpec{})
	published := b.publish("q", numbered(10)...)
	b.publish("other", commands.Message{Payload: []byte("1"), RoutingKey: "k"})
	b.ack("q", b.poll("q", 10))
	ctx := t.Context()

	all, next, err := b.Events(ctx, queries.EventsFilter{})
	require.NoError(t, err)
	require.Empty(t, next)
	require.Equal(t, "channel.declared channel.declared "+strings.Repeat("published ", 11)+"delivered acked", kindsOf(all))
	require.Equal(t, "q", all[2].Channel)

	middle := all[7].At
	for name, test := range map[string]struct {
		filter queries.EventsFilter
		n      int
	}{
		"from and to":    {queries.EventsFilter{From: all[3].Position, To: all[5].Position}, 3},
		"at the end":     {queries.EventsFilter{From: all[len(all)-1].Position + 1}, 0},
		"channel":        {queries.EventsFilter{Channel: "other"}, 2},
		"kinds":          {queries.EventsFilter{Kinds: []eventstore.Kind{eventstore.MessageAcked, eventstore.ChannelDeclared}}, 3},
		"message":        {queries.EventsFilter{MessageID: published[4]}, 3},
		"actor":          {queries.EventsFilter{Actor: "worker"}, 1},
		"key":            {queries.EventsFilter{RoutingKey: new("k")}, 1},
		"empty key":      {queries.EventsFilter{RoutingKey: new("")}, 10},
		"message by":     {queries.EventsFilter{MessageID: published[4], Actor: "worker", Channel: "q"}, 1},
		"message of":     {queries.EventsFilter{MessageID: published[4], Channel: "other"}, 0},
		"key of another": {queries.EventsFilter{MessageID: published[4], RoutingKey: new("k")}, 0},
		"message later":  {queries.EventsFilter{MessageID: published[4], From: eventstore.Position(published[9]) + 1}, 2},
		"no message":     {queries.EventsFilter{MessageID: 1}, 0},
		"all of them":    {queries.EventsFilter{Actor: "worker", Channel: "q", Kinds: []eventstore.Kind{eventstore.MessageDelivered}}, 1},
		"long ago":       {queries.EventsFilter{Until: time.Unix(0, 0)}, 0},
		"in the future":  {queries.EventsFilter{Since: time.Now().Add(time.Hour)}, 0},
		"ever":           {queries.EventsFilter{Since: time.Unix(0, 0), Until: time.Now().Add(time.Hour)}, len(all)},
	} {
		page, _, err := b.Events(ctx, test.filter)
		require.NoError(t, err)
		require.Len(t, page, test.n, name)
	}
	early, _, err := b.Events(ctx, queries.EventsFilter{Until: middle})
	require.NoError(t, err)
	late, _, err := b.Events(ctx, queries.EventsFilter{Since: middle})
	require.NoError(t, err)
	require.Len(t, append(early, late...), len(all))

	filter := queries.EventsFilter{MessageID: published[4], Limit: 2}
	page, next, err := b.Events(ctx, filter)
	require.NoError(t, err)
	require.Equal(t, "published delivered", kindsOf(page))
	filter.Cursor = next
	page, next, err = b.Events(ctx, filter)
	require.NoError(t, err)
	require.Equal(t, "acked", kindsOf(page))
	require.Empty(t, next)

	var paged []queries.Event
	filter = queries.EventsFilter{Limit: 4}
	for {
		page, next, err := b.Events(ctx, filter)
		require.NoError(t, err)
		paged = append(paged, page...)
		if filter.Cursor = next; next == "" {
			break
		}
	}
	require.Equal(t, all, paged)
	refusedSpans(t, b, all[len(all)-1].Position)
}

// Bounds that cannot be meant are refused; so are cursors and beginnings to which
// the log has not come, as after a restore of an older copy.
func refusedSpans(t *testing.T, b bench, last eventstore.Position) {
	t.Helper()
	now := time.Now()
	for name, test := range map[string]struct {
		filter queries.EventsFilter
		want   eventstore.Code
	}{
		"from > to":              {queries.EventsFilter{From: 5, To: 4}, eventstore.InvalidField},
		"since > until":          {queries.EventsFilter{Since: now, Until: now.Add(-time.Second)}, eventstore.InvalidField},
		"beyond":                 {queries.EventsFilter{From: last + 2}, eventstore.PositionAhead},
		"cursor beyond":          {queries.EventsFilter{Cursor: queries.CursorAt(last+1, false)}, eventstore.PositionAhead},
		"back from beyond":       {queries.EventsFilter{Cursor: queries.CursorAt(last+1, true), Backwards: true}, eventstore.PositionAhead},
		"cursor of other order":  {queries.EventsFilter{Cursor: queries.CursorAt(last, false), Backwards: true}, eventstore.InvalidField},
		"cursor of other order2": {queries.EventsFilter{Cursor: queries.CursorAt(last, true)}, eventstore.InvalidField},
	} {
		_, _, err := b.Events(t.Context(), test.filter)
		require.Equal(t, test.want, code(err), "%s: %v", name, err)
	}
	page, next, err := b.Events(t.Context(), queries.EventsFilter{Cursor: queries.CursorAt(last, false)})
	require.NoError(t, err)
	require.Empty(t, page)
	require.Empty(t, next)
}

// The bisection by time finds the same as a look at each event.
func TestEventsByTime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.ChannelSpec{})
	// A log of 100 hours, with gaps in the positions.
	_, err := b.pool.Exec(t.Context(), `
		insert into leat.events (position, at, kind)
		select 1000 + 7 * n, '2020-01-01'::timestamptz + n * interval '1 hour', 'channel.altered'
		from generate_series(1, 100) n`)
	require.NoError(t, err)
	_, err = b.pool.Exec(t.Context(), "select setval('leat.position_seq', 5000)")
	require.NoError(t, err)
	start := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	hour := func(n float64) time.Time { return start.Add(time.Duration(n * float64(time.Hour))) }
	for _, test := range []struct {
		since, until float64
		n            int
	}{
		{0, 1000, 100}, {1, 2, 1}, {1, 101, 100}, {0.5, 50.5, 50}, {99.5, 100.5, 1}, {100, 100, 0}, {101, 200, 0}, {42, 44, 2},
	} {
		page, _, err := b.Events(t.Context(), queries.EventsFilter{Since: hour(test.since), Until: hour(test.until), From: 1000})
		require.NoError(t, err)
		require.Len(t, page, test.n, "%v to %v", test.since, test.until)
	}
}

// An event that waited for a lock is older than its neighbours, and misleads
// nobody.
func TestEventsByTimeOfAWaiter(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.pool.Exec(t.Context(), `
		insert into leat.events (position, at, kind)
		select n, '2020-01-01'::timestamptz + n * interval '1 s' - case when n % 64 = 0 then interval '50 s' else '0' end, 'channel.altered'
		from generate_series(1, 4096) n`)
	require.NoError(t, err)
	_, err = b.pool.Exec(t.Context(), "select setval('leat.position_seq', 4096)")
	require.NoError(t, err)
	start := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, second := range []int{1, 64, 1000, 2047, 2048, 2049, 4000} {
		at := start.Add(time.Duration(second) * time.Second)
		var want int
		require.NoError(t, b.pool.QueryRow(t.Context(), "select count(*) from leat.events where at >= $1 and at < $1 + interval '90 s'", at).Scan(&want))
		page, _, err := b.Events(t.Context(), queries.EventsFilter{Since: at, Until: at.Add(90 * time.Second)})
		require.NoError(t, err)
		require.Len(t, page, want, "second %d", second)
	}
}

// No page of a long log takes long, whatever is looked for: pages that found
// nothing say where to go on.
func TestEventsLookAtABoundedPart(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.ChannelSpec{})
	_, err := b.pool.Exec(t.Context(), `
		insert into leat.events (position, kind, channel_id, actor, message_ids)
		select n, 'message.acked', 1, case when n % 60000 = 0 then 'rare' end, array[n]
		from generate_series(1001, 121000) n`)
	require.NoError(t, err)
	_, err = b.pool.Exec(t.Context(), "select setval('leat.position_seq', 121000); update leat.channels set id = 1")
	require.NoError(t, err)
	for name, test := range map[string]struct {
		filter queries.EventsFilter
		pages  int
	}{
		"log":     {queries.EventsFilter{Actor: "rare"}, 3},
		"batches": {queries.EventsFilter{Actor: "rare", Channel: "q", Kinds: []eventstore.Kind{eventstore.MessageAcked}}, 12},
	} {
		var positions []eventstore.Position
		pages := 1
		for ; ; pages++ {
			page, next, err := b.Events(t.Context(), test.filter)
			require.NoError(t, err)
			for _, e := range page {
				positions = append(positions, e.Position)
			}
			if test.filter.Cursor = next; next == "" {
				break
			}
		}
		require.Equal(t, []eventstore.Position{60_000, 120_000}, positions, name)
		require.Equal(t, test.pages, pages, name)
	}
}

// F26: a reader that goes on from where it was misses nothing that commits late.
func TestEventsStopAtSettled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.ChannelSpec{})
	tx, err := b.pool.Begin(t.Context())
	require.NoError(t, err)
	early, err := b.broker.PublishTx(t.Context(), tx, commands.PublishRequest{Channel: "q", Messages: numbered(1)})
	require.NoError(t, err)
	late := b.publish("q", numbered(1)...)[0]

	page, _, err := b.Events(t.Context(), queries.EventsFilter{Kinds: []eventstore.Kind{eventstore.MessagePublished}})
	require.NoError(t, err)
	require.Empty(t, page, "the later message waits for the earlier one")
	require.NoError(t, tx.Commit(t.Context()))
	page, _, err = b.Events(t.Context(), queries.EventsFilter{Kinds: []eventstore.Kind{eventstore.MessagePublished}})
	require.NoError(t, err)
	require.Len(t, page, 2)
	require.EqualValues(t, early.Messages[0].MessageID, page[0].Position)
	require.EqualValues(t, late, page[1].Position)
}
