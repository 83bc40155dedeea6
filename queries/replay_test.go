package queries_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"leat/commands"
	"leat/eventstore"
	"leat/queries"
)

// replayed reads all of a choice, piece by piece.
func (b bench) replayed(f queries.EventsFilter) (found []string) {
	b.t.Helper()
	r, err := b.Replay(b.t.Context(), f)
	require.NoError(b.t, err)
	for !r.Done() {
		require.NoError(b.t, r.Next(b.t.Context(), func(e *queries.Event) { found = append(found, fmt.Sprintf("%+v", plain(e))) }))
	}
	return found
}

// paged is the same by pages.
func (b bench) paged(f queries.EventsFilter) (found []string) {
	b.t.Helper()
	for {
		page, next, err := b.Events(b.t.Context(), f)
		require.NoError(b.t, err)
		for i := range page {
			found = append(found, fmt.Sprintf("%+v", plain(&page[i])))
		}
		if f.Cursor = next; next == "" {
			return found
		}
	}
}

// plain is an event without pointers.
func plain(e *queries.Event) any {
	type values struct {
		e                                           eventstore.Event
		channel, key, contentType, payload, headers string
		offset                                      eventstore.Offset
		delivery                                    eventstore.Position
		due, expires, data                          string
	}
	v := values{e: e.Event, channel: e.Channel, payload: string(e.Payload), headers: string(e.Headers), data: string(e.Data)}
	if e.RoutingKey != nil {
		v.key = *e.RoutingKey + "!"
	}
	if e.ContentType != nil {
		v.contentType = *e.ContentType
	}
	if e.Offset != nil {
		v.offset = *e.Offset
	}
	if e.Delivery != nil {
		v.delivery = *e.Delivery
	}
	v.due, v.expires = fmt.Sprint(e.DueAt), fmt.Sprint(e.ExpiresAt)
	v.e.RoutingKey, v.e.ContentType, v.e.Offset, v.e.Delivery, v.e.DueAt, v.e.ExpiresAt, v.e.Priority = nil, nil, nil, nil, nil, nil, nil
	v.e.Payload, v.e.Headers, v.e.Data = nil, nil, nil
	return v
}

// A replay, forwards and backwards, in large pieces and in pages, is every event of
// the choice, in order, with all that it says.
func TestReplayIsWhole(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.ChannelSpec{})
	b.declare("s", commands.ChannelSpec{Kind: "stream"})
	stir(b, "q")
	published := b.publish("q", commands.Message{Payload: []byte("1"), RoutingKey: "k", Priority: 3, ContentType: "text/plain", Headers: []byte(`{"a":"b"}`)})
	b.publish("s", numbered(5)...)
	b.nack("q", b.poll("q", 3), "retry", "")

	all, _, err := b.Events(t.Context(), queries.EventsFilter{Limit: queries.MaxLimit})
	require.NoError(t, err)
	require.Greater(t, len(all), 100)
	for name, f := range map[string]queries.EventsFilter{
		"all":     {},
		"part":    {From: all[7].Position, To: all[90].Position},
		"times":   {Since: all[7].At, Until: all[90].At},
		"channel": {Channel: "q"},
		"kinds":   {Channel: "q", Kinds: []eventstore.Kind{eventstore.MessageDelivered, eventstore.MessageRetried}},
		"key":     {RoutingKey: new("k")},
		"actor":   {Actor: "worker"},
		"message": {MessageID: published[0]},
		"dead":    {MessageID: eventstore.MessageID(all[20].Position), Kinds: []eventstore.Kind{eventstore.MessagePublished, eventstore.MessageDeadLettered}},
	} {
		var want []string
		for i := range all {
			e := &all[i]
			names := f.MessageID == 0 || e.Position == eventstore.Position(f.MessageID) || slices.Contains(e.MessageIDs, f.MessageID)
			if names && chosen(e, f) {
				want = append(want, fmt.Sprintf("%+v", plain(e)))
			}
		}
		require.NotEmpty(t, want, name)
		require.Equal(t, want, b.replayed(f), name)
		f.Limit = 7
		require.Equal(t, want, b.paged(f), name)
		require.Equal(t, want[:min(7, len(want))], b.replayed(f), name)
		slices.Reverse(want)
		f.Backwards = true
		require.Equal(t, want, b.paged(f), name)
		require.Equal(t, want[:min(7, len(want))], b.replayed(f), name)
		f.Limit = 0
		require.Equal(t, want, b.replayed(f), name)
	}
}

// chosen says what the filter says, once more.
func chosen(e *queries.Event, f queries.EventsFilter) bool {
	switch {
	case f.From > 0 && e.Position < f.From, f.To > 0 && e.Position > f.To,
		!f.Since.IsZero() && e.At.Before(f.Since), !f.Until.IsZero() && !e.At.Before(f.Until),
		f.Channel != "" && e.Channel != f.Channel, f.Actor != "" && e.Actor != f.Actor,
		len(f.Kinds) > 0 && !slices.Contains(f.Kinds, e.Kind),
		f.RoutingKey != nil && (e.RoutingKey == nil || *e.RoutingKey != *f.RoutingKey):
		return false
	}
	return true
}

// Payloads that are suddenly large come in small pieces, and none is left out.
func TestReplayOfHeavyEvents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.ChannelSpec{})
	b.publish("q", numbered(200)...)
	large := commands.Message{Payload: bytes.Repeat([]byte("x"), 1<<20), ContentType: "text/plain"}
	for range 4 {
		b.publish("q", slices.Repeat([]commands.Message{large}, 10)...)
	}
	for _, backwards := range []bool{false, true} {
		r, err := b.Replay(t.Context(), queries.EventsFilter{Backwards: backwards})
		require.NoError(t, err)
		events, most := 0, 0
		for !r.Done() {
			weight := 0
			require.NoError(t, r.Next(t.Context(), func(e *queries.Event) {
				events++
				weight += len(e.Payload)
			}))
			most = max(most, weight)
		}
		require.Equal(t, 241, events)
		require.LessOrEqual(t, most, 17<<20)
	}
}

// A replay that goes on, as the log does, misses nothing and repeats nothing.
func TestReplayGoesOn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.ChannelSpec{})
	store := eventstore.New(b.pool)
	published := b.publish("q", numbered(1)...)
	for name, f := range map[string]queries.EventsFilter{
		"all":     {},
		"channel": {Channel: "q"},
		"message": {MessageID: published[0]},
	} {
		r, err := b.Replay(t.Context(), f)
		require.NoError(t, err)
		var seen []eventstore.Position
		for range 4 {
			for !r.Done() {
				require.NoError(t, r.Next(t.Context(), func(e *queries.Event) { seen = append(seen, e.Position) }))
			}
			require.False(t, r.Complete())
			b.poll("q", 1)
			_, err := b.pool.Exec(t.Context(), `select leat.release('q', array(select delivery || ':' || message_id from leat.queue_messages where delivery is not null))`)
			require.NoError(t, err)
			settled, err := store.SettledPosition(t.Context())
			require.NoError(t, err)
			require.NoError(t, r.Extend(t.Context(), settled))
		}
		f.To = r.Settled()
		for !r.Done() {
			require.NoError(t, r.Next(t.Context(), func(e *queries.Event) { seen = append(seen, e.Position) }))
		}
		var want []eventstore.Position
		all, _, err := b.Events(t.Context(), f)
		require.NoError(t, err)
		for _, e := range all {
			want = append(want, e.Position)
		}
		require.Greater(t, len(want), 8, name)
		require.Equal(t, want, seen, name)
	}
}
