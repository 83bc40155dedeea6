package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"leat/api"
	httpapi "leat/api/http"
	"leat/commands"
	"leat/eventstore"
	"leat/migrations/dbtest"
	"leat/projections"
	"leat/projections/async"
	"leat/queries"
	"leat/replication"
)

func TestMain(m *testing.M) {
	os.Exit(dbtest.Main(m, eventstore.SQL, projections.SQL, async.SQL, commands.SQL, replication.SQL))
}

// patience is how long a test waits for what must happen.
const patience = 20 * time.Second

// site is the API on a real broker and a database of its own.
type site struct {
	t     testing.TB
	pool  *pgxpool.Pool // nil without a database
	url   string
	close func() // waits for the requests
	stop  func() // ends answers that have no end
}

func setup(t testing.TB) site {
	t.Helper()
	pool := dbtest.New(t)
	logger := slog.New(slog.DiscardHandler)
	points := replication.NewPoints(replication.PointsConfig{Pool: pool, Logger: logger})
	hub := replication.NewHub(replication.HubConfig{Pool: pool, Logger: logger, Points: points})
	head := eventstore.NewHead(eventstore.New(pool))
	broker := commands.New(commands.Config{
		Pool: pool, Logger: logger, Done: head.Poke, Announce: func(channels []eventstore.ChannelID, _ bool) { hub.Poke(channels...) },
	})
	views := projections.New(pool, logger)
	projector := async.New(async.Config{Pool: pool, Logger: logger, Gather: 10 * time.Millisecond})
	ctx, cancel := context.WithCancel(context.Background())
	var parts errgroup.Group
	for _, run := range []func(context.Context) error{broker.Run, hub.Run, points.Run, head.Run, projector.Run} {
		parts.Go(func() error { return run(ctx) })
	}
	handler := httpapi.New(httpapi.Config{
		Commands:    broker,
		Queries:     queries.New(pool),
		Points:      points,
		Projections: viewsAdapter{views},
		Async:       projector,
		Readiness:   always{},
		Log:         logAdapter{eventstore.New(pool), &eventstore.Retention{Store: eventstore.New(pool)}},
		Head:        head,
		Streams:     streamsAdapter{hub},
		Logger:      logger,
		DatabaseURL: "postgres://leat@localhost/leat",
	})
	server := httptest.NewServer(handler)
	t.Cleanup(func() {
		require.NoError(t, handler.Shutdown(context.Background()))
		server.Close()
		cancel()
		require.NoError(t, parts.Wait())
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	})
	return site{t, pool, server.URL, server.Close, func() { require.NoError(t, handler.Shutdown(t.Context())) }}
}

type always struct{}

func (always) Ready(context.Context) []api.Check { return []api.Check{{Name: "database", OK: true}} }

// streamsAdapter is what cmd/leat does.
type streamsAdapter struct{ hub *replication.Hub }

func (s streamsAdapter) Subscribe(ctx context.Context, request eventstore.SubscribeRequest) (api.Subscription, error) {
	subscription, err := s.hub.Subscribe(ctx, request)
	if err != nil {
		return nil, err
	}
	return subscription, nil
}

// logAdapter is what cmd/leat does.
type logAdapter struct {
	*eventstore.Store
	retention *eventstore.Retention
}

func (l logAdapter) State(ctx context.Context) (eventstore.LogState, error) {
	return l.retention.State(ctx)
}

// viewsAdapter is what cmd/leat does.
type viewsAdapter struct{ *projections.Views }

func (v viewsAdapter) Verify(ctx context.Context, fromCheckpoint bool, limit int) ([]api.Difference, error) {
	found, err := v.Views.Verify(ctx, fromCheckpoint, limit)
	list := make([]api.Difference, len(found))
	for i, d := range found {
		list[i] = api.Difference{ChannelID: d.ChannelID, MessageID: d.MessageID, View: d.View, Log: d.Log}
	}
	return list, err
}

// reply is an answer that was read to its end.
type reply struct {
	t      testing.TB
	status int
	header http.Header
	body   []byte
}

type header map[string]string

// call makes a request. The path is sent as it is.
func (s site) call(method, path, body string, headers ...header) reply {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	require.NoError(s.t, err)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		for name, value := range h {
			req.Header[name] = []string{value} // as given, not canonical
		}
	}
	return do(s.t, req)
}

func do(t testing.TB, req *http.Request) reply {
	t.Helper()
	response, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { require.NoError(t, response.Body.Close()) }()
	data, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return reply{t, response.StatusCode, response.Header, data}
}

// must is call with a status that has to come.
func (s site) must(status int, method, path, body string, headers ...header) reply {
	s.t.Helper()
	r := s.call(method, path, body, headers...)
	require.Equal(s.t, status, r.status, "%s %s: %s", method, path, r.body)
	return r
}

func read[T any](r reply) T {
	r.t.Helper()
	var v T
	require.NoError(r.t, json.Unmarshal(r.body, &v), "%s", r.body)
	return v
}

// problem checks what every refusal has.
func (r reply) problem() api.Problem {
	r.t.Helper()
	require.Equal(r.t, api.ContentProblem, r.header.Get("Content-Type"), "%s", r.body)
	p := read[api.Problem](r)
	require.Equal(r.t, r.status, p.Status)
	require.Equal(r.t, api.StatusOf(p.Code).Status, p.Status, "%s", r.body)
	require.NotEmpty(r.t, p.Title)
	require.NotEmpty(r.t, p.Detail)
	require.NotEmpty(r.t, p.RequestID)
	return p
}

func (s site) declare(name, body string) {
	s.t.Helper()
	s.must(http.StatusCreated, http.MethodPut, "/v1/channels/"+name, body)
}

// publish stores a message given as JSON and answers its id.
func (s site) publish(queue, message string) eventstore.MessageID {
	s.t.Helper()
	r := s.must(http.StatusCreated, http.MethodPost, "/v1/channels/"+queue+"/messages", `{"messages":[`+message+`]}`)
	return read[api.PublishResult](r).Messages[0].MessageID
}

// poll takes exactly n messages.
func (s site) poll(queue string, n int) []api.Delivery {
	s.t.Helper()
	r := s.must(http.StatusOK, http.MethodPost, "/v1/queues/"+queue+"/poll", `{"max":100,"wait":"5s"}`)
	deliveries := read[api.PollResult](r).Deliveries
	require.Len(s.t, deliveries, n)
	return deliveries
}

func receipts(deliveries ...api.Delivery) string {
	list := make([]string, len(deliveries))
	for i, d := range deliveries {
		list[i] = `"` + d.Receipt + `"`
	}
	return "[" + strings.Join(list, ",") + "]"
}

// events counts what the log holds.
func (s site) events() (n int) {
	s.t.Helper()
	require.NoError(s.t, s.pool.QueryRow(s.t.Context(), "select count(*) from leat.events").Scan(&n))
	return n
}

func contains(body []byte, part string) bool { return bytes.Contains(body, []byte(part)) }
