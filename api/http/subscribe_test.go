package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"leat/api"
	httpapi "leat/api/http"
	"leat/api/internal/streamfake"
	"leat/api/ws"
	"leat/eventstore"
)

// faked is the API over a stream in memory.
type faked struct {
	site
	stream  *streamfake.Stream
	handler *httpapi.Handler
}

const fakeEpoch = 7

func setupFake(t *testing.T, config httpapi.Config) faked {
	t.Helper()
	stream := streamfake.New("s", fakeEpoch)
	config.Streams = stream
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	handler := httpapi.New(config)
	server := httptest.NewServer(handler)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(t, handler.Shutdown(ctx))
		server.Close()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		require.Zero(t, stream.Subscribers(), "all subscriptions are closed")
	})
	return faked{site{t: t, url: server.URL, close: server.Close}, stream, handler}
}

// lines reads an answer without an end, line by line.
type lines struct {
	t        *testing.T
	response *http.Response
	scanner  *bufio.Scanner
}

func (s faked) open(path, accept string, headers ...header) *lines {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	s.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	require.NoError(s.t, err)
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	for _, h := range headers {
		for name, value := range h {
			req.Header.Set(name, value)
		}
	}
	response, err := http.DefaultClient.Do(req)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = response.Body.Close() })
	require.Equal(s.t, http.StatusOK, response.StatusCode)
	return &lines{s.t.(*testing.T), response, bufio.NewScanner(response.Body)}
}

// line is the next one.
func (l *lines) line() string {
	l.t.Helper()
	require.True(l.t, l.scanner.Scan(), "the answer ended: %v", l.scanner.Err())
	return l.scanner.Text()
}

// block reads lines up to an empty one.
func (l *lines) block() string {
	l.t.Helper()
	var b strings.Builder
	for {
		line := l.line()
		if line == "" {
			return b.String()
		}
		b.WriteString(line + "\n")
	}
}

func (l *lines) ended() {
	l.t.Helper()
	require.False(l.t, l.scanner.Scan(), "%q", l.scanner.Text())
	require.NoError(l.t, l.scanner.Err())
}

func TestSubscribeNDJSON(t *testing.T) {
	t.Parallel()
	s := setupFake(t, httpapi.Config{Heartbeat: 100 * time.Millisecond})
	s.stream.Publish(`{"n":1e400}`, "{\n}")
	for _, accept := range []string{"", "*/*", "application/x-ndjson", "text/html,application/xhtml+xml,*/*;q=0.8", "text/event-stream;q=0.1, application/*"} {
		l := s.open("/v1/streams/s/subscribe?from=earliest", accept)
		require.Equal(t, "application/x-ndjson", l.response.Header.Get("Content-Type"))
		require.Equal(t, "7", l.response.Header.Get("Leat-Stream-Epoch"))
		require.Equal(t, "0", l.response.Header.Get("Leat-Stream-Next"))
		require.Contains(t, l.line(), `"payload":{"n":1e400}`)
		var m api.StreamMessage
		require.NoError(t, json.Unmarshal([]byte(l.line()), &m))
		require.Equal(t, "{\n}", string(m.Bytes()))
		require.Empty(t, l.line(), "a sign of life")
	}
	l := s.open("/v1/streams/s/subscribe", "")
	require.Equal(t, "2", l.response.Header.Get("Leat-Stream-Next"), "latest is the default")
	require.Empty(t, l.line())
	s.stream.Publish(`{"n":3}`)
	for line := l.line(); !strings.Contains(line, `{"n":3}`); line = l.line() {
		require.Empty(t, line)
	}
	s.stream.End(eventstore.NewError(eventstore.ChannelNotFound, "It was deleted."))
	for line := l.line(); !strings.HasPrefix(line, `{"error":{`); line = l.line() {
		require.Empty(t, line)
	}
	require.Contains(t, l.scanner.Text(), `"code":"channel_not_found"`)
	l.ended()
}

func TestSubscribeSSE(t *testing.T) {
	t.Parallel()
	s := setupFake(t, httpapi.Config{Heartbeat: 100 * time.Millisecond})
	s.stream.Publish(`1`, `2`, `3`)
	l := s.open("/v1/streams/s/subscribe?from=1", "text/event-stream")
	require.Equal(t, "text/event-stream", l.response.Header.Get("Content-Type"))
	require.Equal(t, "no-store", l.response.Header.Get("Cache-Control"))
	require.Regexp(t, `^retry: 2000\nevent: subscribed\ndata: \{"type":"subscribed","stream":"s","epoch":7,"next":1,.*\}\n$`, l.block())
	require.Regexp(t, `^id: 1\nevent: message\ndata: \{"offset":1,.*\}\n$`, l.block())
	require.Regexp(t, `^id: 2\n`, l.block())
	require.Equal(t, ": heartbeat\n", l.block())

	// A browser resumes behind what it had.
	l = s.open("/v1/streams/s/subscribe?from=earliest", "text/event-stream", header{"Last-Event-ID": "1"})
	l.block()
	require.Regexp(t, `^id: 2\n`, l.block())
	s.stream.Assign(1, 2)
	require.Equal(t, "event: assigned\ndata: {\"type\":\"assigned\",\"partitions\":[1,2]}\n", l.block())

	// With a filter signs of life say how far it is.
	filtered := s.open("/v1/streams/s/subscribe?key=a.%23", "text/event-stream")
	filtered.block()
	require.Equal(t, ": heartbeat\nid: 2\n", filtered.block())

	// A browser cannot be told not to come again, only when.
	s.stream.End(eventstore.NewError(eventstore.PointTaken, "Another one reads."))
	last := l.block()
	for last == ": heartbeat\n" {
		last = l.block()
	}
	require.Regexp(t, `^retry: 86400000\nevent: error\ndata: \{.*"code":"point_taken".*\}\n$`, last)
	l.ended()
}

// A stop of the broker ends what has no end, and says so.
func TestSubscribeEndsAtStop(t *testing.T) {
	t.Parallel()
	s := setupFake(t, httpapi.Config{})
	ndjson := s.open("/v1/streams/s/subscribe", "")
	sse := s.open("/v1/streams/s/subscribe", "text/event-stream")
	sse.block()
	require.NoError(t, s.handler.Shutdown(t.Context()))
	require.Contains(t, ndjson.line(), `"code":"shutting_down"`)
	ndjson.ended()
	require.Regexp(t, `^retry: 2000\nevent: error\n`, sse.block())
	sse.ended()
	p := s.call(http.MethodGet, "/v1/streams/s/subscribe", "").problem()
	require.Equal(t, eventstore.ShuttingDown, p.Code)
}

// A client that does not read holds nobody up, neither others nor a stop.
func TestF35LinesNeverRead(t *testing.T) {
	t.Parallel()
	s := setupFake(t, httpapi.Config{})
	s.open("/v1/streams/s/subscribe?from=earliest", "text/event-stream")
	reader := s.open("/v1/streams/s/subscribe?from=earliest", "")
	large := `"` + strings.Repeat("x", 1<<20) + `"`
	for range 24 { // more than the sockets hold
		s.stream.Publish(large)
	}
	reader.scanner.Buffer(nil, 2<<20)
	for range 24 {
		require.Contains(t, reader.line(), "xxx")
	}
	began := time.Now()
	require.NoError(t, s.handler.Shutdown(t.Context()))
	s.close() // waits for the handlers
	require.Less(t, time.Since(began), patience)
}

func TestSubscribeBadInput(t *testing.T) {
	t.Parallel()
	s := setupFake(t, httpapi.Config{})
	const at = "/v1/streams/s/subscribe"
	for _, c := range []struct {
		path, accept, lastEventID string
		status                    int
		field                     string
	}{
		{path: "/v1/streams/none/subscribe", status: 404},
		{path: at + "?from=9", status: 409},
		{path: at + "?epoch=6&from=0", status: 409},
		{path: at + "?from=-1", status: 422, field: "from"},
		{path: at + "?from=yesterday", status: 422, field: "from"},
		{path: at + "?from=", status: 422, field: "from"},
		{path: at + "?epoch=0", status: 422, field: "epoch"},
		{path: at + "?point=", status: 422, field: "point"},
		{path: at + "?partitions=2", status: 422, field: "partitions"},
		{path: at + "?point=p&partitions=65", status: 422, field: "partitions"},
		{path: at + "?member=m", status: 422, field: "member"},
		{path: at + "?point=p&member=" + strings.Repeat("m", 256), status: 422, field: "member"},
		{path: at + "?point=p&member=a%0ab", status: 422, field: "member"},
		{path: at + "?point=p&member=%1b", status: 422, field: "member"},
		{path: at + "?key=" + strings.Repeat("k", 256), status: 422, field: "key"},
		{path: at + "?key=%ff", status: 422, field: "key"},
		{path: at + "?window=0", status: 422, field: "window"},
		{path: at + "?window=5", status: 422, field: "window"},
		{path: at + "?offset=5", status: 400, field: "offset"},
		{path: at + "?from=1&from=2", status: 422, field: "from"},
		{path: at, accept: "application/json", status: 406},
		{path: at, accept: "text/event-stream;q=0", status: 406},
		{path: at, lastEventID: "x", status: 422, field: "Last-Event-ID"},
	} {
		headers := header{}
		if c.accept != "" {
			headers["Accept"] = c.accept
		}
		if c.lastEventID != "" {
			headers["Last-Event-ID"] = c.lastEventID
		}
		p := s.must(c.status, http.MethodGet, c.path, "", headers).problem()
		if c.field != "" {
			require.Equal(t, c.field, p.Errors[0].Field, "%+v", c)
		}
	}
	s.must(422, http.MethodHead, at+"?from=x", "")
}

// Pages of other hosts may read where the operator says so, and nowhere else.
func TestSubscribeOrigins(t *testing.T) {
	t.Parallel()
	origins, err := ws.ParseOrigins([]string{"https://shop.example", "http://localhost:*"})
	require.NoError(t, err)
	s := setupFake(t, httpapi.Config{Origins: origins})
	s.stream.Publish(`1`)
	const at = "/v1/streams/s/subscribe?from=earliest"
	for origin, allowed := range map[string]bool{
		"https://shop.example": true, "http://localhost:3000": true, s.url: true, "": true,
		"https://evil.example": false, "null": false, "http://shop.example": false,
	} {
		headers := header{"Accept": "text/event-stream"}
		if origin != "" {
			headers["Origin"] = origin
		}
		if !allowed {
			r := s.must(403, http.MethodGet, at, "", headers)
			require.Equal(t, api.CrossOrigin, r.problem().Code)
			require.Empty(t, r.header.Get("Access-Control-Allow-Origin"))
			continue
		}
		l := s.open(at, "", headers)
		require.Contains(t, l.response.Header.Values("Vary"), "Origin")
		if origin != "" && origin != s.url {
			require.Equal(t, origin, l.response.Header.Get("Access-Control-Allow-Origin"))
		} else {
			require.Empty(t, l.response.Header.Get("Access-Control-Allow-Origin"))
		}
	}
	// A page that cannot read the answer could still take a point over.
	s.must(403, http.MethodGet, at, "", header{"Sec-Fetch-Site": "cross-site"})
	// Refusals can be read, too.
	r := s.must(404, http.MethodGet, "/v1/streams/none/subscribe", "", header{"Origin": "https://shop.example"})
	require.Equal(t, "https://shop.example", r.header.Get("Access-Control-Allow-Origin"))
	// Nothing else is for pages of others.
	r = s.call(http.MethodGet, "/healthz", "", header{"Origin": "https://shop.example"})
	require.Empty(t, r.header.Get("Access-Control-Allow-Origin"))
}

// The log has a line for a subscription that is over.
func TestSubscribeIsLogged(t *testing.T) {
	t.Parallel()
	read, write := io.Pipe()
	logged := bufio.NewScanner(read)
	s := setupFake(t, httpapi.Config{Logger: slog.New(slog.NewJSONHandler(write, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	s.stream.Publish(`1`, `2`)
	l := s.open("/v1/streams/s/subscribe?from=earliest", "")
	l.line()
	l.line()
	require.NoError(t, l.response.Body.Close())
	require.True(t, logged.Scan())
	require.Contains(t, logged.Text(), `"messages":2`)
	require.Contains(t, logged.Text(), `"end":"client went"`)
	require.NoError(t, read.Close())
}
