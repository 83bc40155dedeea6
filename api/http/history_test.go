package httpapi_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"leat/api"
	"leat/eventstore"
)

// copyOnce writes what a copy of a published message from one channel to another
// is in the log.
const copyOnce = `
	with n as materialized (
		select nextval('leat.position_seq') as routed, nextval('leat.position_seq') as copy, nextval('leat.position_seq') as copied
	), c as (
		insert into leat.events (position, kind, channel_id, routing_key, message_ids, origin_ids, headers, data, actor)
		select n.copied, 'message.copied', t.id, 'k', array[n.copy], array[$1::bigint], '{"more":2}', jsonb_build_object('from', n.routed), 'producer'
		from n, leat.channels t
		where t.name = 'target'
	), r as (
		insert into leat.events (position, kind, channel_id, message_ids, data, actor)
		select n.routed, 'message.routed', s.id, array[$1::bigint], jsonb_build_object('cause', 'dead_letter', 'to', array[n.copied]), 'producer'
		from n, leat.channels s
		where s.name = 'source'
	)
	select n.copy from n`

func TestG6LineageOverHTTP(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.declare("source", "")
	s.declare("target", "")
	origin := s.publish("source", `{"payload":{"a": 1},"routingKey":"k","headers":{"one":1}}`)
	var copied eventstore.MessageID
	require.NoError(t, s.pool.QueryRow(t.Context(), copyOnce, origin).Scan(&copied))
	_, err := s.pool.Exec(t.Context(), `
		insert into leat.events (kind, channel_id, message_ids, message_ranges, data)
		select 'message.dead_lettered', c.id, '{}', int8multirange(int8range($1::bigint, $1 + 1), int8range($1 + 100, $1 + 200)), '{"reason":"circuit_open"}'
		from leat.channels c
		where c.name = 'target'`, copied)
	require.NoError(t, err)

	get := func(path string) reply {
		t.Helper()
		r := s.must(http.StatusOK, http.MethodGet, path, "")
		loadContract(t, s).check(http.MethodGet, path, r)
		return r
	}
	for _, id := range []eventstore.MessageID{origin, copied} {
		path := "/v1/messages/" + id.String()
		family := read[api.Lineage](get(path + "/lineage"))
		require.Equal(t, []eventstore.MessageID{id, origin}, []eventstore.MessageID{family.MessageID, family.OriginMessageID})
		require.False(t, family.Truncated)
		require.Len(t, family.Messages, 2)
		first, second := family.Messages[0], family.Messages[1]
		require.Equal(t, []any{origin, eventstore.MessageID(0), 0, "source", ""}, []any{first.MessageID, first.ParentMessageID, first.Depth, first.Channel, first.Cause})
		require.Equal(t, []any{copied, origin, 1, "target", "deadLetter", "dead", "k"},
			[]any{second.MessageID, second.ParentMessageID, second.Depth, second.Channel, second.Cause, second.State, second.RoutingKey})
		require.JSONEq(t, `{"reason":"circuit_open"}`, string(second.Events[1].Data))
		require.Equal(t, "producer", second.Events[0].Actor)

		history := read[api.History](get(path + "/history"))
		require.Equal(t, origin, history.OriginMessageID)
		require.Equal(t, family, *history.Lineage)
		require.Nil(t, read[api.History](get(path+"/history?lineage=false")).Lineage)
	}
	stored := read[api.StoredMessage](get("/v1/messages/" + copied.String()))
	require.Equal(t, []any{origin, "target", "dead", "circuit_open"}, []any{stored.OriginMessageID, stored.Channel, stored.State, stored.Reason})
	require.JSONEq(t, `{"one":1,"more":2}`, string(stored.Headers))
	require.Equal(t, `{"a": 1}`, string(stored.Payload))

	page := get("/v1/events?kind=message.dead_lettered&messageId=" + copied.String())
	event := read[api.EventPage](page).Events[0]
	require.Equal(t, [][2]eventstore.MessageID{{copied, copied}, {copied + 100, copied + 199}}, event.Ranges)
	require.Contains(t, string(page.body), `"messageRanges":[[`)
	copies := read[api.EventPage](get("/v1/events?kind=message.copied")).Events
	require.Equal(t, []eventstore.MessageID{origin}, copies[0].Origins)
	require.JSONEq(t, `{"more":2}`, string(copies[0].Headers))
	// The position of an event that is no message.
	s.must(http.StatusNotFound, http.MethodGet, "/v1/messages/"+event.Position.String()+"/lineage", "").problem()
}
