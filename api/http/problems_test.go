package httpapi_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"leat/api"
	httpapi "leat/api/http"
	"leat/commands"
	"leat/eventstore"
	"leat/queries"
)

// fake stands for a broker whose calls do what the test says. What it does not
// say ends in a nil pointer.
type fake struct {
	httpapi.Commands
	httpapi.Queries
	poll   func(context.Context, commands.PollRequest) ([]commands.Delivery, error)
	events func(queries.EventsFilter) ([]queries.Event, string, error)
	checks []api.Check
}

func (f fake) Poll(ctx context.Context, r commands.PollRequest) ([]commands.Delivery, error) {
	return f.poll(ctx, r)
}

func (f fake) Events(_ context.Context, filter queries.EventsFilter) ([]queries.Event, string, error) {
	return f.events(filter)
}

func (f fake) Ready(context.Context) []api.Check { return f.checks }

// log is what a server logs, as text.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func serveFake(t *testing.T, f fake) (site, *log) {
	t.Helper()
	out := &log{}
	server := httptest.NewServer(httpapi.New(httpapi.Config{
		Commands: f, Queries: f, Readiness: f,
		Logger: slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}))
	t.Cleanup(server.Close)
	return site{t: t, url: server.URL, close: server.Close}, out
}

func TestProblems(t *testing.T) {
	t.Parallel()
	s, _ := serveFake(t, fake{})
	for _, test := range []struct {
		method, path string
		status       int
		code         eventstore.Code
	}{
		{"GET", "/", 404, "not_found"},
		{"GET", "/v1", 404, "not_found"},
		{"GET", "/v1/channels/", 404, "not_found"},
		{"GET", "/v1/channels/a/b", 404, "not_found"},
		{"GET", "/v1//channels", 404, "not_found"},
		{"GET", "/v1/../v1/nope", 404, "not_found"},
		{"POST", "/v1/channels", 405, "method_not_allowed"},
		{"DELETE", "/v1/events", 405, "method_not_allowed"},
		{"GET", "/v1/queues/q/poll", 405, "method_not_allowed"},
		{"OPTIONS", "/v1/channels", 405, "method_not_allowed"},
		{"TRACE", "/v1/channels", 405, "method_not_allowed"},
	} {
		r := s.call(test.method, test.path, "")
		p := r.problem()
		require.Equal(t, test.status, p.Status, "%s %s", test.method, test.path)
		require.Equal(t, test.code, p.Code)
		require.Equal(t, r.header.Get("X-Request-Id"), p.RequestID)
		if test.status == 405 {
			require.NotEmpty(t, r.header.Get("Allow"))
		}
	}
	r := s.call("HEAD", "/livez", "")
	require.Equal(t, 200, r.status)
	require.Empty(t, r.body)
	require.Equal(t, 404, s.call("HEAD", "/nope", "").status)
}

func TestFailures(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err        error
		status     int
		code       eventstore.Code
		retryAfter string
	}{
		"rebuilding": {&eventstore.Error{Code: eventstore.ViewsRebuilding, Message: "m", Index: -1, RetryAfter: 1500 * time.Millisecond}, 503, "views_rebuilding", "2"},
		"away":       {&eventstore.Error{Code: eventstore.DatabaseUnavailable, Message: "m", Index: -1}, 503, "database_unavailable", "1"},
		"stopping":   {context.Canceled, 503, "shutting_down", "1"},
		"refused":    {&eventstore.Error{Code: eventstore.ChannelNotFound, Message: "m", Index: -1}, 404, "channel_not_found", ""},
		"unknown":    {errors.New("secret detail"), 500, "internal", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, out := serveFake(t, fake{poll: func(context.Context, commands.PollRequest) ([]commands.Delivery, error) {
				return nil, test.err
			}})
			r := s.must(test.status, "POST", "/v1/queues/q/poll", `{}`, header{"X-Request-Id": "my-id"})
			p := r.problem()
			require.Equal(t, test.code, p.Code)
			require.Equal(t, "my-id", p.RequestID)
			require.Equal(t, test.retryAfter, r.header.Get("Retry-After"))
			require.NotContains(t, string(r.body), "secret")
			if test.status == 500 {
				require.Contains(t, out.String(), "secret detail")
			}
		})
	}
}

func TestPanic(t *testing.T) {
	t.Parallel()
	s, out := serveFake(t, fake{})
	p := s.must(500, "POST", "/v1/queues/q/ack", `{"receipts":["1:1"]}`).problem()
	require.Equal(t, eventstore.Internal, p.Code)
	require.Contains(t, out.String(), "settle.go", "the stack is in the log")
	s.must(200, "GET", "/livez", "")
}

func TestCrossOrigin(t *testing.T) {
	t.Parallel()
	s, _ := serveFake(t, fake{poll: func(context.Context, commands.PollRequest) ([]commands.Delivery, error) { return nil, nil }})
	p := s.must(403, "POST", "/v1/queues/q/poll", `{}`, header{"Origin": "https://elsewhere.example"}).problem()
	require.Equal(t, api.CrossOrigin, p.Code)
	s.must(200, "POST", "/v1/queues/q/poll", `{}`, header{"Origin": s.url})
}

func TestReadiness(t *testing.T) {
	t.Parallel()
	s, _ := serveFake(t, fake{checks: []api.Check{{Name: "database", OK: true}, {Name: "views", Detail: "rebuilding"}}})
	r := s.must(503, "GET", "/readyz", "")
	require.NotEmpty(t, r.header.Get("Retry-After"))
	require.JSONEq(t, `{"status":"unavailable","checks":[{"name":"database","ok":true},{"name":"views","ok":false,"detail":"rebuilding"}]}`, string(r.body))
	s.must(200, "GET", "/healthz", "")

	s, _ = serveFake(t, fake{checks: []api.Check{{Name: "database", OK: true}}})
	require.JSONEq(t, `{"status":"ok"}`, string(s.must(200, "GET", "/readyz", "").body))
	require.JSONEq(t, `{"status":"ok","checks":[{"name":"database","ok":true}]}`, string(s.must(200, "GET", "/readyz?verbose", "").body))
}

func TestPollEndsWithClient(t *testing.T) {
	t.Parallel()
	started, ended := make(chan struct{}), make(chan error, 1)
	s, _ := serveFake(t, fake{poll: func(ctx context.Context, _ commands.PollRequest) ([]commands.Delivery, error) {
		close(started)
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ctx.Err()
	}})
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/queues/q/poll", strings.NewReader(`{"wait":"60s"}`))
	require.NoError(t, err)
	go func() {
		<-started
		cancel()
	}()
	response, err := http.DefaultClient.Do(req)
	if err == nil {
		require.NoError(t, response.Body.Close())
	}
	require.ErrorIs(t, err, context.Canceled)
	select {
	case err := <-ended:
		require.ErrorIs(t, err, context.Canceled)
	case <-time.After(patience):
		t.Fatal("the poll goes on without its client")
	}
}

// A page of the log may be empty and not the last.
func TestEmptyPages(t *testing.T) {
	t.Parallel()
	s, _ := serveFake(t, fake{events: func(queries.EventsFilter) ([]queries.Event, string, error) {
		return nil, "second", nil
	}})
	require.JSONEq(t, `{"events":[],"nextCursor":"second"}`, string(s.must(200, "GET", "/v1/events", "").body))
}

func TestRequestLog(t *testing.T) {
	t.Parallel()
	s, out := serveFake(t, fake{poll: func(context.Context, commands.PollRequest) ([]commands.Delivery, error) { return nil, nil }})
	s.must(200, "POST", "/v1/queues/q/poll", ``, header{"Leat-Client": "tester", "X-Request-Id": "bad id"})
	s.close() // the line comes after the answer
	line := out.String()
	require.Contains(t, line, "level=DEBUG")
	require.Contains(t, line, "status=200")
	require.Contains(t, line, "client=tester")
	require.NotContains(t, line, "bad id")
}

// A poll without a consumer is its caller's.
func TestActor(t *testing.T) {
	t.Parallel()
	var asked commands.PollRequest
	s, _ := serveFake(t, fake{poll: func(_ context.Context, r commands.PollRequest) ([]commands.Delivery, error) {
		asked = r
		return nil, nil
	}})
	s.must(200, "POST", "/v1/queues/a%2Fb+c/poll", ``)
	require.Equal(t, "127.0.0.1", asked.Consumer)
	require.Equal(t, "a/b+c", asked.Queue)
	s.must(200, "POST", "/v1/queues/q/poll", `{}`, header{"Leat-Client": "tester"})
	require.Equal(t, "tester", asked.Consumer)
	s.must(200, "POST", "/v1/queues/q/poll", `{"consumer":"worker"}`, header{"Leat-Client": "tester"})
	require.Equal(t, "worker", asked.Consumer)
}
