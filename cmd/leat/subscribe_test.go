package main

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
)

// A stop ends subscriptions, which have no end of their own, and says so; pages
// of an origin that is allowed may have them.
func TestStopEndsSubscriptions(t *testing.T) {
	t.Parallel()
	const origin = "https://shop.example"
	broker := serveProcess(t, "--data", dataFolder(t), "--allow-origin", "http://localhost:*, "+origin)
	broker.leat("channel", "declare", "s", "--kind", "stream")
	broker.leat("publish", "s", "1")
	at := broker.url + "/v1/streams/s/subscribe?from=earliest"
	subscribe := func(origin string) (*websocket.Conn, error) {
		conn, _, err := websocket.Dial(t.Context(), at, &websocket.DialOptions{ //nolint:bodyclose // the library closes it
			HTTPHeader: http.Header{"Origin": {origin}},
		})
		return conn, err
	}
	_, err := subscribe("https://evil.example")
	require.ErrorContains(t, err, "403")
	socket, err := subscribe(origin)
	require.NoError(t, err)
	lines, err := http.Get(at)
	require.NoError(t, err)
	defer func() { _ = lines.Body.Close() }()
	for range 2 { // subscribed, messages
		_, _, err := socket.Read(t.Context())
		require.NoError(t, err)
	}

	told := make(chan string, 2)
	go func() {
		var err error
		for err == nil {
			_, _, err = socket.Read(t.Context())
		}
		told <- err.Error()
	}()
	go func() {
		text, err := io.ReadAll(lines.Body)
		if err != nil {
			text = []byte(err.Error())
		}
		told <- string(text)
	}()
	require.Zero(t, broker.stop(stopSignal))
	for range 2 {
		text := <-told
		require.Contains(t, text, "shutting_down")
		require.True(t, strings.Contains(text, "StatusGoingAway") || strings.Contains(text, `{"error":{`), text)
	}
}

func TestAllowOriginIsChecked(t *testing.T) {
	t.Parallel()
	bad := command(t.Context(), "", "serve", "--allow-origin", "shop.example")
	require.Equal(t, exitUsage, bad.code)
	require.Contains(t, bad.errs, "scheme://host")
}
