package queries_test

import (
	"crypto/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"leat/commands"
	"leat/eventstore"
	"leat/queries"
)

func TestChannels(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("empty", commands.ChannelSpec{})
	off := commands.CircuitPatch{Enabled: new(false)}
	b.declare("full", commands.ChannelSpec{Mode: commands.FIFO, Policy: commands.PolicyPatch{Circuit: off}})
	b.publish("full", numbered(5)...)
	b.publish("full", commands.Message{Payload: []byte("1"), RoutingKey: "later", Delay: time.Hour})
	b.nack("full", b.poll("full", 1), "deadLetter", "")
	b.poll("full", 2)

	list, err := b.Channels(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Equal(t, "empty", list[0].Name)
	require.Zero(t, list[0].OldestReadyAge)
	full := list[1]
	require.Equal(t, []int64{2, 1, 2, 1}, []int64{full.Ready, full.Delayed, full.InFlight, full.Dead})
	require.Positive(t, full.OldestReadyAge)
	require.Equal(t, commands.DefaultPolicy().Lease, full.Lease)

	one, err := b.Channel(t.Context(), "full")
	require.NoError(t, err)
	one.OldestReadyAge = full.OldestReadyAge
	require.Equal(t, full, one)
	for _, name := range []string{"nope", "", "a\x00", "\xff"} {
		_, err = b.Channel(t.Context(), name)
		require.Equal(t, eventstore.ChannelNotFound, code(err), "%q", name)
	}
}

// A copy has an age as well, though no event bears its id.
func TestOldestReadyCopy(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("from", commands.ChannelSpec{Kind: commands.Exchange, Type: commands.Fanout})
	b.declare("to", commands.ChannelSpec{})
	_, _, err := b.broker.DeclareLink(t.Context(), "test", commands.LinkSpec{Source: "from", Target: "to"})
	require.NoError(t, err)
	b.publish("from", numbered(3)...)
	to, err := b.Channel(t.Context(), "to")
	require.NoError(t, err)
	require.EqualValues(t, 3, to.Ready)
	require.Positive(t, to.OldestReadyAge)
}

func TestMessagesByState(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.ChannelSpec{})
	soon := time.Now().Add(time.Hour)
	published := b.publish("q",
		commands.Message{Payload: []byte("1"), RoutingKey: "a", Priority: 9},
		commands.Message{Payload: []byte("2"), RoutingKey: "b", Priority: 8},
		commands.Message{Payload: []byte("3"), RoutingKey: "a", ExpiresAt: soon, Headers: []byte(`{"X":1}`), ContentType: "text/plain"},
		commands.Message{Payload: []byte("4"), RoutingKey: "b", DeliverAt: soon})
	b.nack("q", b.poll("q", 1), "deadLetter", "")
	b.poll("q", 1)

	for i, state := range []queries.State{queries.Dead, queries.InFlight, queries.Ready, queries.Delayed} {
		page, next, err := b.Messages(t.Context(), "q", queries.MessagesFilter{State: state, WithPayload: true})
		require.NoError(t, err)
		require.Empty(t, next)
		require.Equal(t, published[i:i+1], ids(page), state)
		require.Equal(t, state, page[0].State)
		require.Equal(t, "q", page[0].Channel)
		require.NotEmpty(t, page[0].Payload)
	}
	all, _, err := b.Messages(t.Context(), "q", queries.MessagesFilter{})
	require.NoError(t, err)
	require.Equal(t, published, ids(all))
	require.Equal(t, "rejected", all[0].Reason)
	require.Equal(t, 1, all[0].Attempts)
	require.Equal(t, 9, all[0].Priority)
	require.Equal(t, "worker", all[1].Owner)
	require.NotNil(t, all[1].LeaseUntil)
	require.NotZero(t, all[1].Delivery)
	require.Nil(t, all[1].DueAt)
	require.NotNil(t, all[2].ExpiresAt)
	require.JSONEq(t, `{"X":1}`, string(all[2].Headers))
	require.Equal(t, "text/plain", all[2].ContentType)
	require.NotNil(t, all[3].DueAt)
	require.Nil(t, all[3].Payload)

	key := "a"
	some, _, err := b.Messages(t.Context(), "q", queries.MessagesFilter{RoutingKey: &key})
	require.NoError(t, err)
	require.Equal(t, []eventstore.MessageID{published[0], published[2]}, ids(some))
}

// G8 of lists: what moves between two pages makes none repeat or skip the rest.
func TestPagesAreStable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.ChannelSpec{})
	// Runs that lie in one another: by key, every third message is of one run.
	messages := numbered(60)
	for i := range messages {
		messages[i].RoutingKey = string(rune('a' + i%3))
	}
	published := b.publish("q", messages...)

	var seen []eventstore.MessageID
	filter := queries.MessagesFilter{Limit: 7}
	for range 20 {
		page, next, err := b.Messages(t.Context(), "q", filter)
		require.NoError(t, err)
		seen = append(seen, ids(page)...)
		if next == "" {
			break
		}
		filter.Cursor = next
		// What was seen goes, and splits runs.
		b.ack("q", b.poll("q", 2))
	}
	require.True(t, slices.IsSorted(seen))
	require.Equal(t, published, slices.Compact(slices.Clone(seen)))
	require.Len(t, seen, 60)
}

// Large payloads make a page shorter, not the answer huge.
func TestPagesAreBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.ChannelSpec{})
	large := []byte(`"` + strings.Repeat("x", 1<<20-2) + `"`)
	for range 2 {
		b.publish("q", slices.Repeat([]commands.Message{{Payload: large}}, 6)...)
	}
	page, next, err := b.Messages(t.Context(), "q", queries.MessagesFilter{WithPayload: true})
	require.NoError(t, err)
	require.Len(t, page, 8)
	rest, last, err := b.Messages(t.Context(), "q", queries.MessagesFilter{WithPayload: true, Cursor: next})
	require.NoError(t, err)
	require.Len(t, rest, 4)
	require.Empty(t, last)
	bare, _, err := b.Messages(t.Context(), "q", queries.MessagesFilter{})
	require.NoError(t, err)
	require.Len(t, bare, 12)

	// Headers weigh too.
	b.declare("headers", commands.ChannelSpec{})
	heavy := commands.Message{Payload: []byte("1"), Headers: []byte(`{"h":"` + random(32_000) + `"}`)}
	b.publish("headers", slices.Repeat([]commands.Message{heavy}, 400)...)
	page, next, err = b.Messages(t.Context(), "headers", queries.MessagesFilter{Limit: 400})
	require.NoError(t, err)
	require.Less(t, len(page), 300)
	require.NotEmpty(t, next)

	events, next, err := b.Events(t.Context(), queries.EventsFilter{Channel: "q"})
	require.NoError(t, err)
	require.Len(t, events, 9) // and the declaration
	require.NotEmpty(t, next)
}

// random is text that does not compress.
func random(n int) string {
	var text strings.Builder
	for text.Len() < n {
		text.WriteString(rand.Text())
	}
	return text.String()[:n]
}

func TestDeadLetters(t *testing.T) {
	t.Parallel()
	b := setup(t)
	once := 1
	b.declare("q", commands.ChannelSpec{Policy: commands.PolicyPatch{MaxDeliveries: &once, NonRetryable: &[]string{"Fatal"}}})
	published := b.publish("q", numbered(3)...)
	b.nack("q", b.poll("q", 1), "deadLetter", "I will not")
	b.nack("q", b.poll("q", 1), "retry", "the last straw")
	_, err := b.broker.Nack(t.Context(), commands.NackRequest{
		SettleRequest: commands.SettleRequest{Queue: "q", Receipts: b.poll("q", 1)}, ErrorClass: "Fatal",
	})
	require.NoError(t, err)

	dead, next, err := b.DeadLetters(t.Context(), "q", queries.DeadLettersFilter{WithPayload: true})
	require.NoError(t, err)
	require.Empty(t, next)
	require.Equal(t, published, ids(dead))
	for i, want := range []queries.Message{
		{Reason: "rejected", Detail: "I will not"},
		{Reason: "retries_exhausted", Detail: "the last straw"},
		{Reason: "non_retryable", ErrorClass: "Fatal"},
	} {
		require.Equal(t, []string{want.Reason, want.Detail, want.ErrorClass}, []string{dead[i].Reason, dead[i].Detail, dead[i].ErrorClass})
		require.Equal(t, queries.Dead, dead[i].State)
		require.NotNil(t, dead[i].DiedAt)
		require.NotEmpty(t, dead[i].Payload)
	}
	// The log knows it all as well.
	_, err = b.pool.Exec(t.Context(), "select leat.lose_views()")
	require.NoError(t, err)
	_, err = b.pool.Exec(t.Context(), "select leat.rebuild_views()")
	require.NoError(t, err)
	rebuilt, _, err := b.DeadLetters(t.Context(), "q", queries.DeadLettersFilter{WithPayload: true})
	require.NoError(t, err)
	require.Equal(t, dead, rebuilt)

	one, next, err := b.DeadLetters(t.Context(), "q", queries.DeadLettersFilter{Reason: "non_retryable", Limit: 1})
	require.NoError(t, err)
	require.Empty(t, next)
	require.Equal(t, published[2:], ids(one))
	keyless := ""
	one, _, err = b.DeadLetters(t.Context(), "q", queries.DeadLettersFilter{Reason: "rejected", RoutingKey: &keyless})
	require.NoError(t, err)
	require.Equal(t, published[:1], ids(one))
	nobody := "x"
	none, _, err := b.DeadLetters(t.Context(), "q", queries.DeadLettersFilter{RoutingKey: &nobody})
	require.NoError(t, err)
	require.Empty(t, none)
}

func TestFilters(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.ChannelSpec{})
	ctx := t.Context()
	for _, f := range []queries.MessagesFilter{
		{Limit: -1},
		{Limit: queries.MaxLimit + 1},
		{State: "gone"},
		{State: queries.Acked},
		{State: queries.Ready, Reason: "rejected"},
		{State: queries.Dead, Reason: "old age"},
		{Cursor: "1"},
		{Cursor: "MS4tMQ"}, // 1.-1
		{RoutingKey: new("\x00")},
	} {
		_, _, err := b.Messages(ctx, "q", f)
		require.Equal(t, eventstore.InvalidField, code(err), "%+v", f)
	}
	_, _, err := b.Messages(ctx, "nope", queries.MessagesFilter{})
	require.Equal(t, eventstore.ChannelNotFound, code(err))
	_, _, err = b.DeadLetters(ctx, "nope", queries.DeadLettersFilter{})
	require.Equal(t, eventstore.ChannelNotFound, code(err))
	_, _, err = b.DeadLetters(ctx, "q", queries.DeadLettersFilter{Reason: "\xff"})
	require.Equal(t, eventstore.InvalidField, code(err))
	_, _, err = b.Events(ctx, queries.EventsFilter{Channel: "nope"})
	require.Equal(t, eventstore.ChannelNotFound, code(err))
	_, _, err = b.Events(ctx, queries.EventsFilter{Actor: "\x00"})
	require.Equal(t, eventstore.InvalidField, code(err))
	_, err = b.Message(ctx, 1<<62)
	require.Equal(t, eventstore.MessageNotFound, code(err))
	_, err = b.Message(ctx, 1) // a channel.declared event is no message
	require.Equal(t, eventstore.MessageNotFound, code(err))
}

// While the queue views are lost nothing is counted as empty, and the log still
// answers.
func TestLostViews(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.ChannelSpec{})
	id := b.publish("q", numbered(1)...)[0]
	_, err := b.pool.Exec(t.Context(), "delete from leat.views_alive")
	require.NoError(t, err)

	_, err = b.Channels(t.Context())
	require.Equal(t, eventstore.ViewsRebuilding, code(err))
	_, _, err = b.Messages(t.Context(), "q", queries.MessagesFilter{})
	require.Equal(t, eventstore.ViewsRebuilding, code(err))
	_, _, err = b.DeadLetters(t.Context(), "q", queries.DeadLettersFilter{})
	require.Equal(t, eventstore.ViewsRebuilding, code(err))
	m, err := b.Message(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, queries.Ready, m.State)
	status, err := b.Status(t.Context())
	require.NoError(t, err)
	require.False(t, status.ViewsAlive)
}

func TestStatus(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.ChannelSpec{})
	held, err := b.pool.Begin(t.Context())
	require.NoError(t, err)
	var pid int
	require.NoError(t, held.QueryRow(t.Context(), "select pg_backend_pid() from leat.fence()").Scan(&pid))
	_, err = held.Exec(t.Context(), "set local application_name = 'holder'; select txid_current()")
	require.NoError(t, err)

	status, err := b.Status(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, status.ServerVersion)
	require.False(t, status.StartedAt.IsZero())
	require.Positive(t, status.LastPosition)
	require.LessOrEqual(t, status.SettledPosition, status.LastPosition)
	require.NotEmpty(t, status.Sessions)
	require.NotNil(t, status.Horizon, "who holds the horizon is named")
	require.NotNil(t, status.SettledHolder, "who holds the settled position is named")
	require.Equal(t, pid, status.SettledHolder.PID)
	require.Equal(t, "holder", status.SettledHolder.Application)
	require.Equal(t, "idle in transaction", status.SettledHolder.State)
	require.Zero(t, status.PartitionedTo, "nobody has made partitions")
	require.Nil(t, status.CheckpointAt)
	require.NoError(t, held.Rollback(t.Context()))

	_, err = b.pool.Exec(t.Context(), `select leat.make_partitions();
		insert into leat.unplaced (channel_id, fifo, first_id, state, rank, routing_key, ids)
		values (1, false, 1, 0, 9, '', '{1,2}'), (1, false, 3, 0, 9, '', '{3}')`)
	require.NoError(t, err)
	_, err = b.pool.Exec(t.Context(), "select leat.checkpoint()")
	require.NoError(t, err)
	status, err = b.Status(t.Context())
	require.NoError(t, err)
	require.Nil(t, status.SettledHolder)
	require.Greater(t, status.PartitionedTo, status.LastPosition)
	require.EqualValues(t, 3, status.Unplaced)
}
