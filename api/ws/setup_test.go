package ws_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"leat/api"
	"leat/api/internal/streamfake"
	"leat/api/ws"
	"leat/commands"
	"leat/eventstore"
	"leat/migrations/dbtest"
	"leat/projections"
	"leat/replication"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(consumerEnv); url != "" {
		consumeForEver(url)
		return
	}
	os.Exit(dbtest.Main(m, eventstore.SQL, projections.SQL, commands.SQL, replication.SQL))
}

// patience is how long a test waits for what must happen.
const patience = 20 * time.Second

const epoch = 7

// site serves one stream, "s", at any path.
type site struct {
	t      testing.TB
	stream *streamfake.Stream
	server *ws.Server
	url    string

	mu        sync.Mutex
	summaries []ws.Summary
}

func setup(t testing.TB, config ws.Config) *site {
	t.Helper()
	s := &site{t: t, stream: streamfake.New("s", epoch)}
	config.Streams = s.stream
	config.Logger = slog.New(slog.DiscardHandler)
	s.server = ws.New(config)
	server := httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	server.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		_ = c.(*net.TCPConn).SetWriteBuffer(16 << 10) // so that who does not read is noticed early
		return ctx
	}
	server.Start()
	s.url = server.URL
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(t, s.server.Shutdown(ctx))
		server.Close()
		require.Zero(t, s.stream.Subscribers(), "all subscriptions are closed")
	})
	return s
}

// in is the same site for a part of the test.
func (s *site) in(t testing.TB) *site {
	t.Helper()
	return &site{t: t, stream: s.stream, server: s.server, url: s.url}
}

// serve reads just enough parameters.
func (s *site) serve(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	request := eventstore.SubscribeRequest{
		Stream: strings.TrimPrefix(r.URL.Path, "/"),
		Point:  query.Get("point"),
		Start:  eventstore.Start{Kind: eventstore.StartEarliest},
	}
	request.Window, _ = strconv.Atoi(query.Get("window"))
	if query.Has("from") {
		n, _ := strconv.Atoi(query.Get("from"))
		request.Start = eventstore.Start{Kind: eventstore.StartOffset, Offset: eventstore.Offset(n)}
	}
	if query.Has("epoch") {
		n, _ := strconv.Atoi(query.Get("epoch"))
		request.Start.Epoch = eventstore.Position(n)
	}
	w.Header().Set("X-Request-Id", "the-id")
	done := func(summary ws.Summary) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.summaries = append(s.summaries, summary)
	}
	var err error
	if query.Has("bad") {
		bad := &eventstore.Error{Code: eventstore.InvalidField, Field: "bad", Message: "is bad", Index: -1}
		err = s.server.Refuse(w, r, bad, done)
	} else {
		err = s.server.Subscribe(w, r, request, done)
	}
	if err != nil {
		p, _ := api.ProblemOf(err)
		http.Error(w, string(p.Code), p.Status)
	}
}

// client is a connection that reads frames.
type client struct {
	t    testing.TB
	conn *websocket.Conn
}

func (s *site) dial(path string) *client {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, s.url+path, nil) //nolint:bodyclose // the library closes it
	require.NoError(s.t, err)
	conn.SetReadLimit(-1)
	s.t.Cleanup(func() { _ = conn.CloseNow() })
	return &client{s.t, conn}
}

// frame is any frame.
type frame struct {
	Type       string
	Stream     string
	Epoch      int64
	Next       int64
	End        int64
	Offset     *int64
	Resumed    bool
	Point      string
	Member     string
	Partitions []int
	Messages   []api.StreamMessage
	Problem    *api.Problem
	Close      api.CloseCode
}

func (c *client) read() (f frame) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, data, err := c.conn.Read(ctx)
	require.NoError(c.t, err)
	require.NoError(c.t, json.Unmarshal(data, &f), "%s", data)
	return f
}

// expect reads a frame of that type, and passes heartbeats over.
func (c *client) expect(kind string) frame {
	c.t.Helper()
	for {
		f := c.read()
		if f.Type == api.FrameHeartbeat && kind != api.FrameHeartbeat {
			continue
		}
		require.Equal(c.t, kind, f.Type, "%+v", f)
		return f
	}
}

// messages reads n messages.
func (c *client) messages(n int) (list []api.StreamMessage) {
	c.t.Helper()
	for len(list) < n {
		f := c.expect(api.FrameMessages)
		list = append(list, f.Messages...)
		require.Equal(c.t, int64(list[len(list)-1].Offset)+1, f.Next)
	}
	require.Len(c.t, list, n)
	return list
}

func (c *client) send(text string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	require.NoError(c.t, c.conn.Write(ctx, websocket.MessageText, []byte(text)))
}

// closed reads the error frame, if there is to be one, and the close code.
func (c *client) closed(code api.CloseCode, reason eventstore.Code) (last frame) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()

	for {
		_, data, err := c.conn.Read(ctx)
		if err != nil {
			var end websocket.CloseError
			require.ErrorAs(c.t, err, &end)
			require.Equal(c.t, code, api.CloseCode(end.Code))
			require.Equal(c.t, string(reason), end.Reason)
			return last
		}
		var f frame
		require.NoError(c.t, json.Unmarshal(data, &f))
		if f.Type == api.FrameError {
			require.Equal(c.t, code, f.Close)
			require.Equal(c.t, reason, f.Problem.Code)
			last = f
		}
	}
}
