package client_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"leat/api"
	"leat/api/client"
	httpapi "leat/api/http"
	"leat/commands"
	"leat/eventstore"
	"leat/migrations/dbtest"
	"leat/projections"
	"leat/queries"
	"leat/replication"
)

// setup runs a broker with the HTTP API, and a client of it.
func setup(t testing.TB) *client.Client {
	t.Helper()
	return connect(t, startBroker(t))
}

// startBroker runs a broker on a database of its own until the test ends, and
// answers its URL.
func startBroker(t testing.TB) string {
	t.Helper()
	pool := dbtest.New(t)
	logger := slog.New(slog.DiscardHandler)
	points := replication.NewPoints(replication.PointsConfig{Pool: pool, Logger: logger})
	hub := replication.NewHub(replication.HubConfig{Pool: pool, Logger: logger, Points: points})
	head := eventstore.NewHead(eventstore.New(pool))
	broker := commands.New(commands.Config{
		Pool: pool, Logger: logger, Done: head.Poke, Announce: func(channels []eventstore.ChannelID, _ bool) { hub.Poke(channels...) },
	})
	ctx, cancel := context.WithCancel(context.Background())
	var parts errgroup.Group
	for _, run := range []func(context.Context) error{broker.Run, hub.Run, points.Run, head.Run} {
		parts.Go(func() error { return run(ctx) })
	}
	handler := httpapi.New(httpapi.Config{
		Commands: broker, Queries: queries.New(pool), Points: points, Streams: streams{hub},
		Projections: views{projections.New(pool, logger)}, Readiness: unready{}, Head: head, Logger: logger,
	})
	server := httptest.NewServer(handler)
	t.Cleanup(func() {
		stopping, done := context.WithTimeout(context.Background(), patience)
		defer done()
		require.NoError(t, handler.Shutdown(stopping))
		server.Close()
		cancel()
		require.NoError(t, parts.Wait())
	})
	return server.URL
}

// streams, views and unready are what the program makes of its parts.
type streams struct{ hub *replication.Hub }

func (s streams) Subscribe(ctx context.Context, request eventstore.SubscribeRequest) (api.Subscription, error) {
	subscription, err := s.hub.Subscribe(ctx, request)
	if err != nil {
		return nil, err
	}
	return subscription, nil
}

type views struct{ *projections.Views }

func (v views) Verify(ctx context.Context, fromCheckpoint bool, limit int) ([]api.Difference, error) {
	found, err := v.Views.Verify(ctx, fromCheckpoint, limit)
	return make([]api.Difference, len(found)), err
}

type unready struct{}

func (unready) Ready(context.Context) []api.Check { return []api.Check{{Name: "always red"}} }

func connect(t testing.TB, address string) *client.Client {
	t.Helper()
	c, err := client.New(address, client.Options{Client: "tester"})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// demo stands in for the test that an example does not have.
type demo struct {
	testing.TB
	ends []func()
}

func (*demo) Helper()                        {}
func (*demo) Context() context.Context       { return context.Background() }
func (d *demo) Cleanup(end func())           { d.ends = append(d.ends, end) }
func (*demo) Errorf(format string, a ...any) { fmt.Printf(format+"\n", a...) }
func (*demo) FailNow()                       { panic("the example failed") }

// start runs a broker for an example, and answers a client of it.
func start() (leat *client.Client, end func()) {
	d := &demo{}
	leat = setup(d)
	return leat, func() {
		for _, end := range slices.Backward(d.ends) {
			end()
		}
	}
}
