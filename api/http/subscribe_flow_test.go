package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"leat/api"
	"leat/eventstore"
)

// socket is a WebSocket to the API.
type socket struct {
	t    testing.TB
	conn *websocket.Conn
}

func (s site) dial(path string) socket {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, s.url+path, nil) //nolint:bodyclose // the library closes it
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = conn.CloseNow() })
	return socket{s.t, conn}
}

func (c socket) send(text string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	require.NoError(c.t, c.conn.Write(ctx, websocket.MessageText, []byte(text)))
}

func (c socket) read() ([]byte, error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	_, data, err := c.conn.Read(ctx)
	return data, err
}

// expect reads a frame of a type, and passes heartbeats over.
func expect[T any](c socket, kind string) (frame T) {
	c.t.Helper()
	for {
		data, err := c.read()
		require.NoError(c.t, err)
		var head struct{ Type string }
		require.NoError(c.t, json.Unmarshal(data, &head))
		if head.Type == api.FrameHeartbeat {
			continue
		}
		require.Equal(c.t, kind, head.Type, "%s", data)
		require.NoError(c.t, json.Unmarshal(data, &frame))
		return frame
	}
}

// offsets reads messages until there are n, and says which.
func (c socket) offsets(n int) (list []int) {
	c.t.Helper()
	for len(list) < n {
		for _, m := range expect[api.MessagesFrame](c, api.FrameMessages).Messages {
			list = append(list, int(m.Offset))
		}
	}
	return list
}

// closed is the code that the connection ends with, after an error frame.
func (c socket) closed() api.CloseCode {
	c.t.Helper()
	e := expect[api.ErrorFrame](c, api.FrameError)
	_, err := c.read()
	require.Equal(c.t, e.Close, api.CloseCode(websocket.CloseStatus(err)), "%v", err)
	return e.Close
}

// A subscriber reads, commits, is killed and resumes behind its last commit, in
// every form and beside an operator; what it does wrong is told (F33).
func TestF33SubscribeFlow(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.declare("s", `{"kind":"stream"}`)
	const at = "/v1/streams/s/subscribe"
	for n := range 5 {
		s.publish("s", fmt.Sprintf(`{"routingKey":"a.%d","payload":{"n":%d}}`, n%2, n))
	}
	c := s.dial(at + "?point=p&from=earliest&window=5")
	began := expect[api.SubscribedFrame](c, api.FrameSubscribed)
	require.False(t, began.Resumed)
	require.Equal(t, eventstore.Offset(5), began.End)
	require.Equal(t, []int{0, 1, 2, 3, 4}, c.offsets(5))
	c.send(`{"type":"commit","offset":1}`)
	require.Equal(t, eventstore.Offset(1), expect[api.CommittedFrame](c, api.FrameCommitted).Offset)
	for frame, code := range map[string]eventstore.Code{
		`{"type":"commit","offset":0}`:                                eventstore.CommitBehind,
		`{"type":"commit","offset":99}`:                               eventstore.OffsetAhead,
		fmt.Sprintf(`{"type":"commit","offset":2,"epoch":%d}`, 1<<40): eventstore.EpochChanged,
	} {
		c.send(frame)
		e := expect[api.ErrorFrame](c, api.FrameError)
		require.Equal(t, code, e.Problem.Code, frame)
		require.Zero(t, e.Close)
	}
	require.NoError(t, c.conn.CloseNow()) // killed

	c = s.dial(at + "?point=p&from=earliest")
	require.True(t, expect[api.SubscribedFrame](c, api.FrameSubscribed).Resumed)
	require.Equal(t, []int{2, 3, 4}, c.offsets(3))
	s.publish("s", `{"routingKey":"b","payload":5}`)
	require.Equal(t, []int{5}, c.offsets(1))

	// A newer one takes over, over any form; an operator commits for it.
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+at+"?point=p", nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.Equal(t, api.ClosePointTaken, c.closed())
	require.Equal(t, "2", response.Header.Get("Leat-Stream-Next"))
	s.must(200, http.MethodPost, "/v1/streams/s/points/p/commit", fmt.Sprintf(`{"epoch":%d,"offset":3}`, began.Epoch))
	require.NoError(t, response.Body.Close())
	c = s.dial(at + "?point=p&key=b")
	require.Equal(t, eventstore.Offset(4), expect[api.SubscribedFrame](c, api.FrameSubscribed).Next)
	require.Equal(t, []int{5}, c.offsets(1), "what does not match is passed over")

	// The stream goes, and comes back as another one.
	s.must(204, http.MethodDelete, "/v1/channels/s?force=true", "")
	require.Equal(t, api.CloseNotFound, c.closed())
	require.Equal(t, api.CloseNotFound, s.dial(at).closed())
	s.declare("s", `{"kind":"stream"}`)
	require.Equal(t, api.CloseEpochChanged, s.dial(fmt.Sprintf("%s?from=0&epoch=%d", at, began.Epoch)).closed())
	require.Equal(t, api.CloseOffsetAhead, s.dial(at+"?from=1").closed())
	require.Equal(t, api.CloseBadRequest, s.dial(at+"?from=x").closed())
	require.Equal(t, api.CloseBadRequest, s.dial(at+"?key="+strings.Repeat("k", 256)).closed())
}
