package queries_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"leat/commands"
	"leat/eventstore"
	"leat/queries"
)

func TestLinks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("e", commands.ChannelSpec{Kind: commands.Exchange, Type: commands.Topic})
	b.declare("q", commands.ChannelSpec{})
	b.declare("r", commands.ChannelSpec{})
	var want []queries.Link
	for i := range 5 {
		spec := commands.LinkSpec{Source: "e", Target: []string{"q", "r"}[i%2], Match: commands.Match{Pattern: new(fmt.Sprint(i))}}
		l, _, err := b.broker.DeclareLink(t.Context(), "", spec)
		require.NoError(t, err)
		want = append(want, queries.Link{
			ID: l.ID, Source: l.Source, Target: l.Target, Match: queries.Match(l.Match), Enabled: true, DeclaredAt: l.DeclaredAt,
		})
	}
	var all []queries.Link
	f := queries.LinksFilter{Source: "e", Limit: 2}
	for {
		page, next, err := b.Links(t.Context(), f)
		require.NoError(t, err)
		all = append(all, page...)
		if next == "" {
			break
		}
		f.Cursor = next
	}
	require.Equal(t, want, all)
	page, _, err := b.Links(t.Context(), queries.LinksFilter{Target: "r"})
	require.NoError(t, err)
	require.Equal(t, []queries.Link{want[1], want[3]}, page)
	page, _, err = b.Links(t.Context(), queries.LinksFilter{Source: "q"})
	require.NoError(t, err)
	require.Empty(t, page)
	one, err := b.Link(t.Context(), want[2].ID)
	require.NoError(t, err)
	require.Equal(t, want[2], one)

	_, err = b.Link(t.Context(), 1<<30)
	require.Equal(t, eventstore.LinkNotFound, code(err))
	_, _, err = b.Links(t.Context(), queries.LinksFilter{Source: "nope"})
	require.Equal(t, eventstore.ChannelNotFound, code(err))
	_, _, err = b.Links(t.Context(), queries.LinksFilter{Limit: -1})
	require.Equal(t, eventstore.InvalidField, code(err))

	// What is no queue has no messages, and no counts.
	_, _, err = b.Messages(t.Context(), "e", queries.MessagesFilter{})
	require.Equal(t, eventstore.ChannelNotFound, code(err))
	_, _, err = b.DeadLetters(t.Context(), "e", queries.DeadLettersFilter{})
	require.Equal(t, eventstore.ChannelNotFound, code(err))
	channel, err := b.Channel(t.Context(), "e")
	require.NoError(t, err)
	require.Equal(t, "topic", channel.Type)
	require.Empty(t, channel.Mode)
	events, _, err := b.Events(t.Context(), queries.EventsFilter{Channel: "e", Kinds: []eventstore.Kind{eventstore.LinkDeclared}})
	require.NoError(t, err)
	require.Len(t, events, 5)
}
