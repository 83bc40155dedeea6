package httpapi_test

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"leat/api"
)

// dialConsume connects a push consumer.
func (s site) dialConsume(path string, headers http.Header) (*websocket.Conn, *http.Response, error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	conn, response, err := websocket.Dial(ctx, s.url+path, &websocket.DialOptions{HTTPHeader: headers})
	if conn != nil {
		s.t.Cleanup(func() { _ = conn.CloseNow() })
	}
	return conn, response, err
}

func readFrame[T any](t *testing.T, conn *websocket.Conn) (v T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, data, err := conn.Read(ctx)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &v), "%s", data)
	return v
}

// A consumer begins with what it asked for, or with the defaults.
func TestConsume(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.declare("q", `{"policy":{"lease":"45s"}}`)
	conn, _, err := s.dialConsume("/v1/queues/q/consume", http.Header{"Leat-Client": {"me"}}) //nolint:bodyclose // a WebSocket
	require.NoError(t, err)
	began := readFrame[map[string]any](t, conn)
	require.Equal(t, map[string]any{
		"type": "consuming", "queue": "q", "mode": "standard", "prefetch": 100.0, "lease": "45s", "consumer": "me",
	}, began)

	filtered, _, err := s.dialConsume("/v1/queues/q/consume?routingKeys=a&routingKeys=b,c&prefetch=7&lease=2m&consumer=you", nil) //nolint:bodyclose // a WebSocket
	require.NoError(t, err)
	frame := readFrame[api.ConsumingFrame](t, filtered)
	require.Equal(t, []any{7, "2m0s", "you"}, []any{frame.Prefetch, frame.Lease.String(), frame.Consumer})
	s.publish("q", `{"routingKey":"b,c","payload":{"n":1234567890123456789, "k":1,"k":2}}`)
	conn.CloseNow() //nolint:errcheck // it may have taken the message: then it comes back
	got := readFrame[api.DeliveriesFrame](t, filtered)
	require.Equal(t, `{"n":1234567890123456789, "k":1,"k":2}`, string(got.Deliveries[0].Bytes()))
	require.Equal(t, 1, got.Deliveries[0].Attempt)

	for _, query := range []string{"prefetch=0", "prefetch=1001", "prefetch=x", "lease=0s", "lease=5", "consumer=", "consumer=a%0ab", "prefetch=1&prefetch=2", "max=1"} {
		conn, _, err := s.dialConsume("/v1/queues/q/consume?"+query, nil) //nolint:bodyclose // a WebSocket
		require.NoError(t, err)
		refused := readFrame[api.ErrorFrame](t, conn)
		require.Equal(t, api.CloseBadRequest, refused.Close, query)
		require.Equal(t, "/v1/queues/q/consume", refused.Problem.Instance)
		require.NotEmpty(t, refused.Problem.RequestID)
	}
	_, response, err := s.dialConsume("/v1/queues/q/consume", http.Header{"Origin": {"https://evil.example"}}) //nolint:bodyclose // the library closes it
	require.Error(t, err)
	require.Equal(t, http.StatusForbidden, response.StatusCode)
}
