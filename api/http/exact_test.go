package httpapi_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"leat/api"
)

// Payloads that a careless way through JSON would change. F23: numbers, repeated
// keys; also white space and escapes.
var exactPayloads = []string{
	`{"n":1234567890123456789,"m":0.1234567890123456789012,"e":1e400,"z":-0,"k":1,"k":2}`,
	`{ "a" :	[1 ,2]  }`,
	`"<script>&amp;\u003c\u2028/\/"`,
	"\"\u2028é🔑\"",
	`null`, `true`, `0`, `""`, `-0.0e-0`,
	"{\n  \"pretty\": 1\n}",
}

func TestExactBytes(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.declare("q", "")
	for _, payload := range exactPayloads {
		id := s.publish("q", `{"payload":`+payload+`}`)
		path := "/v1/messages/" + id.String()
		exact := `"payload":` + payload + `,`

		r := s.must(http.StatusOK, http.MethodPost, "/v1/queues/q/poll", `{"wait":"5s"}`)
		require.True(t, contains(r.body, exact), "poll: %s", r.body)
		for _, where := range []string{"/v1/queues/q/messages", path, path + "/history", "/v1/events?messageId=" + id.String()} {
			r := s.must(http.StatusOK, http.MethodGet, where, "")
			require.True(t, contains(r.body, exact), "%s: %s", where, r.body)
		}
		line := s.must(http.StatusOK, http.MethodGet, "/v1/events?kind=message.published&messageId="+id.String(), "",
			header{"Accept": "application/x-ndjson"})
		event := read[api.Event](line)
		require.Equal(t, payload, string(event.Bytes()))
	}
}

// Bytes that are no JSON value, or not one that survives inside another.
func TestExactBytesOfAnything(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.declare("q", "")
	for _, test := range []struct{ contentType, payload string }{
		{"application/octet-stream", "\x00\x01\xff"},
		{"application/vnd.order+json", " {\"a\":1}\n"},
		{"application/vnd.order+json", "\"\xff\""},
		{"application/vnd.order+json", "{broken"},
		{"application/vnd.order+json; charset=utf-8", `{"a":1}`},
		{"text/plain; charset=utf-8", `{"a":1}`},
		{"text/plain", ""},
	} {
		raw := s.must(http.StatusCreated, http.MethodPost, "/v1/channels/q/messages", test.payload,
			header{"Content-Type": test.contentType})
		require.Len(t, read[api.PublishResult](raw).Messages, 1)
		d := s.poll("q", 1)[0]
		require.Equal(t, test.payload, string(d.Bytes()))
		require.Equal(t, test.contentType, d.ContentType)

		encoded := base64.StdEncoding.EncodeToString([]byte(test.payload))
		s.publish("q", `{"payloadBase64":"`+encoded+`","contentType":"`+test.contentType+`"}`)
		d = s.poll("q", 1)[0]
		require.Equal(t, test.payload, string(d.Bytes()))
	}
}

// F21: names of headers keep their case, and names that differ by case only
// stay apart. Through HTTP headers they are lower case.
func TestHeaderNames(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.declare("q", "")
	s.publish("q", `{"payload":1,"headers":{"traceId":"1","TRACEID":"2","x-é":"3","n":1234567890123456789}}`)
	var headers map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(s.poll("q", 1)[0].Headers, &headers))
	require.Equal(t, map[string]json.RawMessage{
		"traceId": json.RawMessage(`"1"`), "TRACEID": json.RawMessage(`"2"`), "x-é": json.RawMessage(`"3"`),
		"n": json.RawMessage(`1234567890123456789`),
	}, headers)

	s.must(http.StatusCreated, http.MethodPost, "/v1/channels/q/messages?routingKey=k%2F1&priority=4", "x", header{
		"Content-Type": "text/plain", "Leat-Header-TraceId": "abc", "Ce-Id": "17", "Traceparent": "00-aa-bb-01",
		"Leat-Delay": "1ms", "Leat-Dedup-Id": "d",
	})
	d := s.poll("q", 1)[0]
	require.JSONEq(t, `{"traceid":"abc","ce-id":"17","traceparent":"00-aa-bb-01"}`, string(d.Headers))
	require.Equal(t, "k/1", d.RoutingKey)
	require.Equal(t, 4, d.Priority)
}
