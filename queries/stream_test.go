package queries_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"leat/commands"
	"leat/eventstore"
	"leat/queries"
)

// read reads the stream s.
func (b bench) read(f queries.StreamFilter) queries.StreamPage {
	b.t.Helper()
	page, err := b.StreamMessages(b.t.Context(), "s", f)
	require.NoError(b.t, err)
	return page
}

// shown are messages as "offset payload key".
func shown(messages []*eventstore.StreamMessage) []string {
	var list []string
	for _, m := range messages {
		list = append(list, fmt.Sprintf("%d %s %s", m.Offset, m.Payload, m.RoutingKey))
	}
	return list
}

func from(offset eventstore.Offset) eventstore.Start {
	return eventstore.Start{Kind: eventstore.StartOffset, Offset: offset}
}

func pattern(t testing.TB, text string) eventstore.Pattern {
	t.Helper()
	p, err := eventstore.ParsePattern(text)
	require.NoError(t, err)
	return p
}

// A page has messages and copies alike, whatever event they lie in.
func TestStreamMessages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("x", commands.ChannelSpec{Kind: commands.Exchange, Type: commands.Fanout})
	b.declare("s", commands.ChannelSpec{Kind: commands.Stream})
	_, _, err := b.broker.DeclareLink(t.Context(), "", commands.LinkSpec{Source: "x", Target: "s"})
	require.NoError(t, err)
	var want []string
	add := func(channel string, keys ...string) {
		var messages []commands.Message
		for _, key := range keys {
			payload := fmt.Sprint(len(want))
			messages = append(messages, commands.Message{RoutingKey: key, Payload: []byte(payload), Headers: []byte(`{"h":1}`), ContentType: "text/plain"})
			want = append(want, payload+" "+payload+" "+key)
		}
		b.publish(channel, messages...)
	}
	add("s", "a")
	add("x", "a", "b", "a.b", "c")
	add("s", "a", "b")
	add("x", "d", "d")
	published := time.Now()
	add("x", "e")
	add("s", "e")

	page := b.read(queries.StreamFilter{Start: eventstore.Start{Kind: eventstore.StartEarliest}})
	require.Equal(t, want, shown(page.Messages))
	require.EqualValues(t, len(want), page.End)
	require.Equal(t, page.End, page.Next)
	for _, m := range page.Messages {
		require.Equal(t, "text/plain", m.ContentType)
		require.JSONEq(t, `{"h":1}`, string(m.Headers))
		require.Equal(t, m.MessageID == m.OriginMessageID, slices.Contains([]eventstore.Offset{0, 5, 6, 10}, m.Offset))
	}
	for start := range len(want) + 1 {
		for limit := 1; limit <= len(want); limit++ {
			page := b.read(queries.StreamFilter{Start: from(eventstore.Offset(start)), Limit: limit})
			end := min(start+limit, len(want))
			require.Equal(t, append([]string(nil), want[start:end]...), shown(page.Messages), "%d %d", start, limit)
			require.EqualValues(t, end, page.Next)
		}
	}
	page = b.read(queries.StreamFilter{Start: eventstore.Start{Kind: eventstore.StartTime, Time: published}})
	require.Equal(t, want[9:], shown(page.Messages))
	page = b.read(queries.StreamFilter{})
	require.Empty(t, page.Messages)
	require.Equal(t, page.End, page.Next)

	page = b.read(queries.StreamFilter{Start: from(1), Pattern: pattern(t, "*.b"), Limit: 1})
	require.Equal(t, []string{want[3]}, shown(page.Messages))
	require.EqualValues(t, 4, page.Next)
	page = b.read(queries.StreamFilter{Start: from(4), Pattern: pattern(t, "*.b")})
	require.Empty(t, page.Messages)
	require.Equal(t, page.End, page.Next)
}

func TestStreamMessagesRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("s", commands.ChannelSpec{Kind: commands.Stream})
	b.declare("q", commands.ChannelSpec{})
	b.publish("s", numbered(3)...)
	refused := func(stream string, start eventstore.Start) *eventstore.Error {
		_, err := b.StreamMessages(t.Context(), stream, queries.StreamFilter{Start: start})
		e, ok := errors.AsType[*eventstore.Error](err)
		require.True(t, ok, err)
		return e
	}
	page := b.read(queries.StreamFilter{Start: from(3)})
	for _, c := range []struct {
		start  eventstore.Start
		code   eventstore.Code
		resume eventstore.Offset
	}{
		{from(4), eventstore.OffsetAhead, 3},
		{eventstore.Start{Kind: eventstore.StartOffset, Offset: 1, Epoch: page.Epoch + 1}, eventstore.EpochChanged, 0},
	} {
		e := refused("s", c.start)
		require.Equal(t, c.code, e.Code)
		require.Equal(t, &eventstore.StreamPosition{Epoch: page.Epoch, Offset: c.resume}, e.Resume)
	}
	for _, stream := range []string{"q", "none", "\x00"} {
		require.Equal(t, eventstore.ChannelNotFound, refused(stream, eventstore.Start{}).Code)
	}
	_, err := b.StreamMessages(t.Context(), "s", queries.StreamFilter{Limit: queries.MaxLimit + 1})
	require.Equal(t, eventstore.InvalidField, code(err))
}

// A page is bounded by the bytes of its payloads.
func TestStreamMessagesBytes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("s", commands.ChannelSpec{Kind: commands.Stream})
	for range 10 {
		b.publish("s", commands.Message{Payload: []byte(strings.Repeat("x", 1<<20))})
	}
	page := b.read(queries.StreamFilter{Start: from(0)})
	require.Len(t, page.Messages, 8)
	require.EqualValues(t, 8, page.Next)
}

func TestStreamStatus(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("s", commands.ChannelSpec{Kind: commands.Stream, Policy: commands.PolicyPatch{
		Retention: commands.RetentionPatch{Bytes: new(int64(100))},
	}})
	b.publish("s", numbered(12)...)
	channels, err := b.Channels(t.Context())
	require.NoError(t, err)
	require.Len(t, channels, 1)
	require.Equal(t, queries.StreamStatus{End: 12, Bytes: 14}, channels[0].Stream)
	require.EqualValues(t, 100, channels[0].RetentionBytes)
	channel, err := b.Channel(t.Context(), "s")
	require.NoError(t, err)
	require.Equal(t, channels[0], channel)
	_, _, err = b.Messages(t.Context(), "s", queries.MessagesFilter{})
	require.ErrorContains(t, err, "it is a stream")
}

// A message of a stream has a history that ends with its publish, however much has
// come since, and says whether the stream keeps it.
func TestStreamStory(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("x", commands.ChannelSpec{Kind: commands.Exchange, Type: commands.Fanout})
	b.declare("s", commands.ChannelSpec{Kind: commands.Stream})
	b.declare("q", commands.ChannelSpec{})
	for _, link := range []commands.LinkSpec{{Source: "x", Target: "s"}, {Source: "s", Target: "q"}} {
		_, _, err := b.broker.DeclareLink(t.Context(), "", link)
		require.NoError(t, err)
	}
	direct := b.publish("s", numbered(2)...)
	origins := b.publish("x", numbered(3)...)
	page := b.read(queries.StreamFilter{Start: from(2)})
	require.Len(t, page.Messages, 3)

	m, err := b.Message(t.Context(), direct[1])
	require.NoError(t, err)
	require.Equal(t, queries.Streamed, m.State)
	require.EqualValues(t, 1, *m.Offset)
	kinds := func(id eventstore.MessageID) (list []eventstore.Kind) {
		h, _, err := b.History(t.Context(), id, queries.HistoryFilter{})
		require.NoError(t, err)
		for _, e := range h.Events {
			list = append(list, e.Kind)
		}
		return list
	}
	require.Equal(t, []eventstore.Kind{eventstore.MessagePublished, eventstore.MessageRouted}, kinds(direct[1]))
	for i, copied := range page.Messages {
		m, err := b.Message(t.Context(), copied.MessageID)
		require.NoError(t, err)
		require.Equal(t, queries.Streamed, m.State)
		require.Equal(t, copied.Offset, *m.Offset)
		require.Equal(t, origins[i], m.OriginID)
		require.Equal(t, []eventstore.Kind{eventstore.MessageCopied}, kinds(copied.MessageID))
	}
	l, err := b.Lineage(t.Context(), page.Messages[0].MessageID, queries.LineageFilter{})
	require.NoError(t, err)
	require.Len(t, l.Members, 3)
	states := map[string]queries.State{}
	for _, member := range l.Members {
		states[member.Channel] = member.State
	}
	require.Equal(t, map[string]queries.State{"x": queries.Routed, "s": queries.Streamed, "q": queries.Ready}, states)

	_, err = b.pool.Exec(t.Context(), `update leat.streams set first_offset = 3`)
	require.NoError(t, err)
	m, err = b.Message(t.Context(), page.Messages[0].MessageID)
	require.NoError(t, err)
	require.Equal(t, queries.Trimmed, m.State)
	require.NoError(t, b.broker.DeleteChannel(t.Context(), "", "s", true))
	m, err = b.Message(t.Context(), page.Messages[2].MessageID)
	require.NoError(t, err)
	require.Equal(t, queries.Deleted, m.State)
}
