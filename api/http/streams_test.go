package httpapi_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"leat/api"
	"leat/eventstore"
)

func TestStreams(t *testing.T) {
	t.Parallel()
	s := setup(t)
	created := s.must(201, http.MethodPut, "/v1/channels/s", `{"kind":"stream","policy":{"retention":{"age":"1h","messages":5}}}`)
	var channel map[string]any
	require.NoError(t, json.Unmarshal(created.body, &channel))
	require.Equal(t, map[string]any{
		"dedupWindow": "10m0s", "retention": map[string]any{"age": "1h0m0s", "bytes": 0.0, "messages": 5.0},
	}, channel["policy"])
	require.NotContains(t, channel, "mode")
	altered := read[api.Channel](s.must(200, http.MethodPatch, "/v1/channels/s", `{"policy":{"retention":{"bytes":1000}}}`))
	require.EqualValues(t, 1000, altered.Policy.Retention.Bytes)

	published := read[api.PublishResult](s.must(201, http.MethodPost, "/v1/channels/s/messages",
		`{"messages":[{"routingKey":"a.b","payload":{"n":0}},{"routingKey":"c","payloadBase64":"AA=="},{"payload":2}]}`))
	for i, m := range published.Messages {
		require.EqualValues(t, i, *m.Offset)
	}
	one := read[api.Channel](s.must(200, http.MethodGet, "/v1/channels/s", ""))
	require.Equal(t, api.StreamStatus{End: 3, Messages: 3, Bytes: 9}, *one.Stream)
	require.Nil(t, one.Counts)

	page := read[api.StreamPage](s.must(200, http.MethodGet, "/v1/streams/s/messages", ""))
	require.Len(t, page.Messages, 3)
	require.JSONEq(t, `{"n":0}`, string(page.Messages[0].Payload))
	require.Equal(t, []byte{0}, page.Messages[1].Bytes())
	require.EqualValues(t, 3, page.Next)
	require.Equal(t, one.Epoch, page.Epoch)
	page = read[api.StreamPage](s.must(200, http.MethodGet, "/v1/streams/s/messages?from=0&limit=1&key=*.b&epoch="+one.Epoch.String(), ""))
	require.Len(t, page.Messages, 1)
	require.EqualValues(t, 1, page.Next)

	for query, field := range map[string]string{
		"?from=":          "from",
		"?from=yesterday": "from",
		"?from=-1":        "from",
		"?epoch=x":        "epoch",
		"?limit=0":        "limit",
		"?key=%FF":        "key",
		"?kee=a":          "kee",
	} {
		p := s.call(http.MethodGet, "/v1/streams/s/messages"+query, "").problem()
		require.Equal(t, field, p.Errors[0].Field, query)
	}
	p := s.must(422, http.MethodPut, "/v1/channels/t", `{"kind":"stream","policy":{"lease":"1s","retention":{"age":"-1s"}}}`).problem()
	require.Equal(t, "policy.retention.age", p.Errors[0].Field)
	require.Equal(t, "policy.lease", p.Errors[1].Field)
	p = s.must(422, http.MethodPost, "/v1/channels/s/messages", `{"messages":[{"payload":1},{"payload":1,"ttl":"1s"}]}`).problem()
	require.Equal(t, 1, *p.Errors[0].Index)
	require.Equal(t, "ttl", p.Errors[0].Field)

	ahead := s.call(http.MethodGet, "/v1/streams/s/messages?from=4", "").problem()
	require.Equal(t, eventstore.OffsetAhead, ahead.Code)
	require.EqualValues(t, 3, ahead.Resume.Offset)
	require.Equal(t, one.Epoch, ahead.Resume.Epoch)
	notThere := s.must(404, http.MethodPost, "/v1/queues/s/poll", `{}`).problem()
	require.Contains(t, notThere.Detail, "it is a stream. Subscribe to it (/v1/streams/s/subscribe, leat tail) instead.")
	s.must(404, http.MethodGet, "/v1/streams/none/messages", "").problem()
	s.declare("q", `{}`)
	for _, path := range []string{"/v1/streams/q/messages", "/v1/streams/q/points", "/v1/streams/q/points/p"} {
		p := s.must(404, http.MethodGet, path, "").problem()
		require.Equal(t, eventstore.ChannelNotFound, p.Code)
		require.Contains(t, p.Detail, "it is a queue. Consume it (/v1/queues/q/consume, leat consume) or poll it instead.", path)
	}

	// HEAD answers what GET would, and subscribes nobody.
	at := "/v1/streams/s/subscribe"
	require.Equal(t, "application/x-ndjson", s.must(200, http.MethodHead, at+"?from=earliest", "").header.Get("Content-Type"))
	s.must(200, http.MethodHead, at+"?point=p&from=99", "")
	s.must(404, http.MethodGet, "/v1/streams/s/points/p", "")
	s.must(422, http.MethodHead, at+"?from=x", "")
	require.Equal(t, ahead.Status, s.call(http.MethodHead, at+"?from=4", "").status)
	s.must(404, http.MethodHead, "/v1/streams/none/subscribe", "")
	s.must(404, http.MethodHead, "/v1/streams/q/subscribe?point=p", "")
}
