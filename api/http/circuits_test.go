package httpapi_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"leat/api"
	"leat/api/client"
	"leat/eventstore"
)

// G5: circuits through HTTP, of keys of all sorts, by path and by query.
func TestG5Circuits(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.declare("f", `{"mode":"fifo"}`)
	s.declare("q", `{}`)
	keys := []string{"", "a/b c%2F?+", "open", "ключ"}
	for _, key := range keys {
		query := "?routingKey=" + url.QueryEscape(key)
		s.must(http.StatusCreated, http.MethodPost, "/v1/channels/f/messages"+query, "1", header{"Content-Type": "text/plain"})
		s.must(http.StatusCreated, http.MethodPost, "/v1/channels/f/messages"+query, "2", header{"Content-Type": "text/plain"})
		path := "/v1/queues/f/circuits/" + url.PathEscape(key) + "/open"
		if key == "" {
			path = "/v1/queues/f/circuits/open?routingKey="
		}
		require.Equal(t, api.CircuitResult{Changed: true, Messages: 2}, read[api.CircuitResult](s.must(200, http.MethodPost, path, "")))
		require.Equal(t, api.CircuitResult{}, read[api.CircuitResult](s.must(200, http.MethodPost, path, "{}")))
	}
	var seen []string
	cursor := ""
	for {
		page := read[api.CircuitPage](s.must(200, http.MethodGet, "/v1/circuits?channel=f&state=open&limit=2&cursor="+cursor, ""))
		for _, c := range page.Circuits {
			require.Equal(t, "by hand", c.Reason)
			seen = append(seen, c.RoutingKey)
		}
		if cursor = page.NextCursor; cursor == "" {
			break
		}
	}
	require.ElementsMatch(t, keys, seen)
	require.Empty(t, read[api.CircuitPage](s.must(200, http.MethodGet, "/v1/circuits?state=closing", "")).Circuits)
	require.Len(t, read[api.CircuitPage](s.must(200, http.MethodGet, "/v1/circuits?routingKey=", "")).Circuits, 1)

	published := read[api.PublishResult](s.must(201, http.MethodPost, "/v1/channels/f/messages", `{"messages":[{"routingKey":"open","payload":3}]}`))
	require.True(t, published.Messages[0].DeadLettered)
	broker, err := client.New(s.url, client.Options{})
	require.NoError(t, err)
	defer broker.Close()
	for _, key := range keys {
		result, err := broker.CloseCircuit(t.Context(), "f", key, api.CloseCircuitRequest{Recover: key == "open"})
		require.NoError(t, err)
		require.True(t, result.Changed)
		require.Equal(t, key == "open", result.Messages == 3)
	}
	shut := func() (ofChannel, ofAll int64) {
		return read[api.Channel](s.must(200, http.MethodGet, "/v1/channels/f", "")).Counts.OpenCircuits,
			read[api.Status](s.must(200, http.MethodGet, "/v1/status", "")).OpenCircuits
	}
	ofChannel, ofAll := shut()
	require.Zero(t, ofChannel+ofAll)
	result, err := broker.OpenCircuit(t.Context(), "f", "new")
	require.NoError(t, err)
	ofChannel, ofAll = shut()
	require.EqualValues(t, 1, ofChannel)
	require.EqualValues(t, 1, ofAll)
	require.Equal(t, api.CircuitResult{Changed: true}, result)
	page, err := broker.Circuits(t.Context(), client.CircuitsFilter{Channel: "f", RoutingKey: new("new"), State: "open"})
	require.NoError(t, err)
	require.Len(t, page.Circuits, 1)

	for path, want := range map[string]struct {
		code  eventstore.Code
		field string
	}{
		"/v1/queues/q/circuits/k/open":             {eventstore.InvalidField, "name"},
		"/v1/queues/nope/circuits/k/close":         {eventstore.ChannelNotFound, ""},
		"/v1/queues/f/circuits/open":               {eventstore.InvalidField, "routingKey"},
		"/v1/queues/f/circuits/%ff/open":           {eventstore.InvalidField, "routingKey"},
		"/v1/queues/f/circuits/k/open?routingKey=": {eventstore.UnknownField, "routingKey"},
	} {
		p := s.call(http.MethodPost, path, "").problem()
		require.Equal(t, want.code, p.Code, path)
		if want.field != "" {
			require.Equal(t, want.field, p.Errors[0].Field, path)
		}
	}
	for query, field := range map[string]string{
		"state=closed": "state", "channel=": "channel", "cursor=x": "cursor", "cursor=azE": "cursor", "routingKey=%00": "routingKey", "limit=0": "limit",
	} {
		p := s.call(http.MethodGet, "/v1/circuits?"+query, "").problem()
		require.Equal(t, eventstore.InvalidField, p.Code, query)
		require.Equal(t, field, p.Errors[0].Field, query)
	}
	require.Equal(t, eventstore.ChannelNotFound, s.call(http.MethodGet, "/v1/circuits?channel=nope", "").problem().Code)
}
