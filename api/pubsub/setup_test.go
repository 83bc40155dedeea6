package pubsub_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
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

func TestMain(m *testing.M) {
	// What the suite makes of many subscribers has no end while one of them has a
	// message that the test does not want any more; nor has its test of restarts.
	suites := []goleak.Option{
		goleak.IgnoreAnyFunction("github.com/ThreeDotsLabs/watermill/internal/subscriber.(*multiplier).Subscribe.func2"),
		goleak.IgnoreAnyFunction("github.com/ThreeDotsLabs/watermill/internal/subscriber.(*multiplier).Subscribe.func3"),
		goleak.IgnoreAnyFunction("github.com/ThreeDotsLabs/watermill/pubsub/tests.TestReconnect.func2"),
	}
	os.Exit(dbtest.MainIgnoring(m, suites, eventstore.SQL, projections.SQL, commands.SQL, replication.SQL))
}

// patience bounds every wait.
const patience = 30 * time.Second

// setup runs a broker with the HTTP API, and a client of it.
func setup(t testing.TB) *client.Client {
	t.Helper()
	return newBroker(t, dbtest.New(t)).client(t)
}

// broker is one that can be started again.
type broker struct {
	pool   *pgxpool.Pool
	server *httptest.Server
	end    func() error
	mu     sync.Mutex
}

func newBroker(t testing.TB, pool *pgxpool.Pool) *broker {
	t.Helper()
	b := &broker{pool: pool}
	require.NoError(t, b.start("127.0.0.1:0"))
	t.Cleanup(func() { require.NoError(t, b.end()) })
	return b
}

func (b *broker) start(address string) error {
	logger := slog.New(slog.DiscardHandler)
	points := replication.NewPoints(replication.PointsConfig{Pool: b.pool, Logger: logger})
	hub := replication.NewHub(replication.HubConfig{Pool: b.pool, Logger: logger, Points: points})
	commander := commands.New(commands.Config{
		Pool: b.pool, Logger: logger, Announce: func(channels []eventstore.ChannelID, _ bool) { hub.Poke(channels...) },
	})
	var config net.ListenConfig
	listener, err := config.Listen(context.Background(), "tcp", address)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var parts errgroup.Group
	for _, run := range []func(context.Context) error{commander.Run, hub.Run, points.Run} {
		parts.Go(func() error { return run(ctx) })
	}
	handler := httpapi.New(httpapi.Config{
		Commands: commander, Queries: queries.New(b.pool), Points: points, Streams: streams{hub},
		Projections: views{projections.New(b.pool, logger)}, Readiness: unready{}, Logger: logger,
	})
	b.server = &httptest.Server{Listener: listener, Config: &http.Server{Handler: handler, ReadHeaderTimeout: patience}}
	b.server.Start()
	b.end = func() error {
		stopping, done := context.WithTimeout(context.Background(), patience)
		defer done()
		err := handler.Shutdown(stopping)
		b.server.Close()
		cancel()
		return errors.Join(err, parts.Wait())
	}
	return nil
}

// restart cuts all connections, and serves again at the same address.
func (b *broker) restart() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.server.CloseClientConnections()
	if err := b.end(); err != nil {
		return err
	}
	return b.start(b.server.Listener.Addr().String())
}

func (b *broker) client(t testing.TB) *client.Client {
	t.Helper()
	c, err := client.New(b.server.URL, client.Options{Client: "tester"})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
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
