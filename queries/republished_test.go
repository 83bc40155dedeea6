package queries_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"leat/commands"
	"leat/eventstore"
	"leat/queries"
)

// G6: a message that was published again, long after it was settled, has that in its
// history and the copy in its family, page by page too; what became of it stays.
func TestG6Republished(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, name := range []string{"q", "waiting", "to"} {
		b.declare(name, commands.ChannelSpec{})
	}
	b.declare("s", commands.ChannelSpec{Kind: commands.Stream})
	republish := func(source string) {
		_, err := b.broker.Republish(t.Context(), commands.RepublishRequest{Source: source, Target: "to", Actor: "auditor"})
		require.NoError(t, err)
	}
	for _, test := range []struct {
		channel string
		state   queries.State
		kinds   []eventstore.Kind
	}{
		{"q", queries.Acked, []eventstore.Kind{
			eventstore.MessagePublished, eventstore.MessageRouted, eventstore.MessageDelivered, eventstore.MessageAcked,
			eventstore.MessageRouted, eventstore.MessageRouted,
		}},
		{"waiting", queries.InFlight, []eventstore.Kind{
			eventstore.MessagePublished, eventstore.MessageRouted, eventstore.MessageDelivered, eventstore.MessageRouted, eventstore.MessageRouted,
		}},
		{"s", queries.Streamed, []eventstore.Kind{
			eventstore.MessagePublished, eventstore.MessageRouted, eventstore.MessageRouted, eventstore.MessageRouted,
		}},
	} {
		id := b.publish(test.channel, numbered(1)...)[0]
		republish(test.channel)
		if test.channel != "s" {
			receipts := b.poll(test.channel, 1)
			if test.channel == "q" {
				b.ack("q", receipts)
			}
		}
		republish(test.channel)
		republish(test.channel)
		var kinds []eventstore.Kind
		for cursor, more := "", true; more; more = cursor != "" {
			h, next, err := b.History(t.Context(), id, queries.HistoryFilter{Cursor: cursor, Limit: 1})
			require.NoError(t, err)
			require.Len(t, h.Events, 1)
			kinds, cursor = append(kinds, h.Events[0].Kind), next
		}
		require.Equal(t, test.kinds, kinds, test.channel)
		m, err := b.Message(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, test.state, m.State, test.channel)
		family := b.lineage(id)
		require.Len(t, family.Members, 4, test.channel)
		require.Equal(t, test.state, family.Members[0].State)
		for _, copied := range family.Members[1:] {
			require.Equal(t, queries.CauseRepublish, copied.Cause)
			require.Equal(t, id, copied.ParentID)
			require.Equal(t, "to", copied.Channel)
		}
		require.Equal(t, family.Members, b.lineage(family.Members[3].ID).Members, "from any member")
	}
}
