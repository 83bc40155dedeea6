package bench_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"leat/api"
	"leat/api/client"
	httpapi "leat/api/http"
	"leat/cmd/leat/internal/bench"
	"leat/commands"
	"leat/eventstore"
	"leat/migrations"
	"leat/migrations/dbtest"
	"leat/projections"
	"leat/projections/async"
	"leat/queries"
	"leat/replication"
)

// replayURL makes of the test's program one that replays the log of a broker.
const replayURL = "LEAT_BENCH_TEST_REPLAY"

func TestMain(m *testing.M) {
	if url := os.Getenv(replayURL); url != "" {
		if err := replay(url, os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(dbtest.Main(m, eventstore.SQL, projections.SQL, async.SQL, commands.SQL, replication.SQL))
}

func replay(url, to string) error {
	broker, err := client.New(url, client.Options{})
	if err != nil {
		return err
	}
	last, err := eventstore.ParsePosition(to)
	if err != nil {
		return err
	}
	_, err = broker.CopyEvents(context.Background(), os.Stdout, client.EventsFilter{To: last}, client.ReplayConfig{})
	return err
}

func replayCommand(ctx context.Context, url string, to eventstore.Position) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], to.String())
	cmd.Env = append(os.Environ(), replayURL+"="+url)
	return cmd
}

// scratch is a bench for tests, on a server where nothing is lost, and the
// databases that it made.
type scratch struct {
	bench.Config
	pool *pgxpool.Pool

	mu   sync.Mutex
	made []string
}

func quick(t *testing.T) *scratch {
	t.Helper()
	s := &scratch{}
	s.pool, s.URL = dbtest.NewURL(t)
	s.Replay = replayCommand
	s.Start = func(ctx context.Context, url string, with bench.Parts) (*bench.Node, error) {
		node, err := start(ctx, url, with)
		if err == nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.made = append(s.made, node.Pool.Config().ConnConfig.Database)
		}
		return node, err
	}
	s.Quick()
	return s
}

// requireGone checks that there were so many scratch databases, and that none is left.
func (s *scratch) requireGone(t *testing.T, made int) {
	t.Helper()
	require.Len(t, s.made, made)
	var left int
	require.NoError(t, s.pool.QueryRow(t.Context(), "select count(*) from pg_database where datname = any ($1)", s.made).Scan(&left))
	require.Zero(t, left, "scratch databases are dropped")
}

// start wires what the bench needs of a broker.
func start(ctx context.Context, url string, with bench.Parts) (*bench.Node, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	return startOn(ctx, config, with)
}

func startOn(ctx context.Context, config *pgxpool.Config, with bench.Parts) (*bench.Node, error) {
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if _, err := migrations.Run(ctx, pool, eventstore.SQL, projections.SQL, async.SQL, commands.SQL, replication.SQL); err != nil {
		pool.Close()
		return nil, err
	}
	logger := slog.New(slog.DiscardHandler)
	hub := replication.NewHub(replication.HubConfig{Pool: pool, Logger: logger})
	follower := async.New(async.Config{Pool: pool, Logger: logger, Off: !with.Projections})
	sealer := &eventstore.Sealer{Store: eventstore.New(pool), Interval: with.Seal}
	broker := commands.New(commands.Config{
		Pool: pool, Logger: logger, Announce: func(channels []eventstore.ChannelID, _ bool) { hub.Poke(channels...) }, Done: follower.Wake,
	})
	handler := httpapi.New(httpapi.Config{
		Commands: broker, Queries: queries.New(pool), Projections: views{projections.New(pool, logger)},
		Readiness: ready{}, Streams: streams{hub: hub}, Logger: logger,
	})
	server := &http.Server{Handler: handler}
	return &bench.Node{Commands: broker, Pool: pool, Streams: streams{hub: hub}, Run: func(ctx context.Context, listener net.Listener) error {
		served := make(chan error, 1)
		go func() { served <- server.Serve(listener) }()
		var beside errgroup.Group
		beside.Go(func() error { return hub.Run(ctx) })
		beside.Go(func() error { return follower.Run(ctx) })
		beside.Go(func() error { return sealer.Run(ctx) })
		err := broker.Run(ctx)
		err = errors.Join(err, beside.Wait(), handler.Shutdown(context.WithoutCancel(ctx)))
		if closeErr := errors.Join(server.Close(), <-served); !errors.Is(closeErr, http.ErrServerClosed) {
			err = errors.Join(err, closeErr)
		}
		return err
	}}, nil
}

// streams are those of the hub, without points.
type streams struct{ hub *replication.Hub }

func (s streams) Subscribe(ctx context.Context, r eventstore.SubscribeRequest) (api.Subscription, error) {
	return s.hub.Subscribe(ctx, r)
}

type views struct{ *projections.Views }

func (v views) Verify(context.Context, bool, int) ([]api.Difference, error) { return nil, nil }

type ready struct{}

func (ready) Ready(context.Context) []api.Check { return nil }

// Every case checks its own count: a run without an error has lost nothing and
// has nothing twice.
func TestEverything(t *testing.T) {
	t.Parallel()
	cfg := quick(t)
	// Of each kind the ones that are most at once, but for 64 connections, which
	// take a while to open.
	cfg.Only = []string{"publish/8x*", "drain/8x*", "cycle/8x100", "endtoend/max10", "latency", "depth", "rebuild", "stream"}
	steps, total := 0, 0
	cfg.Progress = func(s bench.Step) {
		require.Equal(t, steps, s.Done)
		steps, total = steps+1, s.Total
	}
	report, err := bench.Run(t.Context(), cfg.Config)
	require.NoError(t, err)
	require.Equal(t, total, steps)
	require.Len(t, report.Figures, total)
	require.True(t, report.Shortened)

	messages := map[string]int{}
	for _, f := range report.Figures {
		require.Positive(t, f.PerSecond, "%s %s", f.Case, f.Side)
		messages[f.Case+" "+f.Side] = f.Messages
	}
	for _, side := range []string{"insert", "leat"} {
		require.Equal(t, cfg.Messages, messages["publish/8x1 "+side])
	}
	require.Equal(t, cfg.Messages, messages["publish/8x1000 copy"], "the last batch is cut short")
	for _, side := range []string{"delete", "lease+delete", "leat"} {
		require.Equal(t, cfg.Messages, messages["drain/8x10 "+side])
	}
	for _, side := range []string{"pair", "leat"} {
		require.Equal(t, cfg.Messages, messages["endtoend/max10 "+side])
		require.Equal(t, cfg.Messages, messages["latency/max10 "+side])
	}
	require.NotEmpty(t, report.Aims)
	cfg.requireGone(t, 4)
	checkShape(t, report)
}

// checkShape looks at the report as programs see it.
func checkShape(t *testing.T, report *bench.Report) {
	t.Helper()
	text, err := json.Marshal(report)
	require.NoError(t, err)
	var got struct {
		Figures []map[string]any
		Aims    []map[string]any
	}
	require.NoError(t, json.Unmarshal(text, &got))
	require.Len(t, got.Figures, len(report.Figures))
	for _, f := range got.Figures {
		for _, name := range []string{
			"case", "side", "label", "messages", "perSecond", "serverCpuMicros", "clientCpuMicros", "walBytes", "p50Millis", "p99Millis",
		} {
			require.Contains(t, f, name)
		}
		if f["case"] == "latency/max10" {
			require.NotNil(t, f["p99Millis"])
		}
	}
	for _, a := range got.Aims {
		for _, name := range []string{"case", "side", "name", "value", "wanted", "atMost", "met"} {
			require.Contains(t, a, name)
		}
	}
}

// As in TestEverything, every case checks what it did; here also what it read.
func TestAudit(t *testing.T) {
	t.Parallel()
	cfg := quick(t)
	cfg.Only = []string{"audit"}
	report, err := bench.Run(t.Context(), cfg.Config)
	require.NoError(t, err)
	figures := map[string]bench.Figure{}
	for _, f := range report.Figures {
		require.Positive(t, f.PerSecond, "%s %s", f.Case, f.Side)
		figures[f.Case+" "+f.Side] = f
	}
	whole := figures["audit/rebuild leat"].Messages
	require.GreaterOrEqual(t, whole, 900)
	require.Less(t, figures["audit/as-of leat"].Messages, whole)
	for _, side := range []string{"copy", "leat"} {
		require.Equal(t, whole, figures["audit/replay "+side].Messages)
		require.NotNil(t, figures["audit/replay "+side].Megabytes)
	}
	for _, side := range []string{"old", "new", "dead", "unsettled", "copy"} {
		require.NotNil(t, figures["audit/message "+side].P99)
	}
	require.Equal(t, figures["audit/chain leat seal"].Messages, figures["audit/chain leat verify"].Messages)
	require.NotNil(t, figures["audit/chain leat verify"].Megabytes)
	for _, side := range []string{"without", "leat"} {
		require.Equal(t, cfg.Messages, figures["audit/projections "+side].Messages)
		require.Equal(t, cfg.Messages, figures["audit/sealing "+side].Messages)
	}
	require.NotNil(t, figures["audit/projections leat"].Lag)
	require.Nil(t, figures["audit/projections without"].Lag)
	require.Equal(t, 100, figures["audit/republish leat stream"].Messages)

	names := map[string]bool{}
	for _, a := range report.Aims {
		names[a.Case+": "+a.Name] = true
	}
	for _, name := range []string{
		"audit/replay: events/s, to a pipe", "audit/message: p99, ms", "audit/chain: MB/s", "audit/projections: messages/s",
		"audit/projections: lag at the end, ms", "audit/sealing: p50 of a publish, to that without",
	} {
		require.True(t, names[name], "%s is judged", name)
	}
	cfg.requireGone(t, 5)
}

func TestFIFOAndHTTP(t *testing.T) {
	t.Parallel()
	cfg := quick(t)
	cfg.Via = []string{bench.ViaCommands, bench.ViaHTTP}
	cfg.Mode, cfg.Keys, cfg.Rounds = commands.FIFO, 3, 2
	cfg.Only = []string{"publish/8x1", "drain/8x1", "endtoend/max1"}
	report, err := bench.Run(t.Context(), cfg.Config)
	require.NoError(t, err)
	require.Len(t, report.Figures, 3+4+3)
	for _, f := range report.Figures {
		require.Equal(t, 2*cfg.Messages, f.Messages, "of all rounds: %s %s", f.Case, f.Side)
	}
}

// rehearsals counts, by connection and statement, what was called in open
// transactions: brokers open none.
type rehearsals struct {
	mu    sync.Mutex
	calls map[uint32]map[string]int
}

func (r *rehearsals) TraceQueryStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	name, _, isNamed := strings.Cut(strings.TrimPrefix(data.SQL, "-- "), "\n")
	if isNamed && conn.PgConn().TxStatus() == 'T' {
		r.mu.Lock()
		defer r.mu.Unlock()
		pid := conn.PgConn().PID()
		if r.calls[pid] == nil {
			r.calls[pid] = map[string]int{}
		}
		r.calls[pid][name]++
	}
	return ctx
}

func (*rehearsals) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A session that does something for the first time is slow: no sample may meet one.
func TestEveryConnectionIsWarm(t *testing.T) {
	t.Parallel()
	cfg := quick(t)
	cfg.Only = []string{"latency"}
	const conns = 7
	seen := &rehearsals{calls: map[uint32]map[string]int{}}
	cfg.Start = func(ctx context.Context, url string, with bench.Parts) (*bench.Node, error) {
		config, err := pgxpool.ParseConfig(url)
		if err != nil {
			return nil, err
		}
		config.MaxConns = conns
		config.ConnConfig.Tracer = seen
		return startOn(ctx, config, with)
	}
	_, err := bench.Run(t.Context(), cfg.Config)
	require.NoError(t, err)
	require.Len(t, seen.calls, conns)
	for pid, calls := range seen.calls {
		for _, name := range []string{"commands.publish", "commands.claim", "commands.ack", "bench.sweep"} {
			require.Equal(t, 2, calls[name], "%s by session %d: when the broker is started, and after the vacuum before the sample", name, pid)
		}
	}
}

func TestInterrupted(t *testing.T) {
	t.Parallel()
	cfg := quick(t)
	ctx, cancel := context.WithCancel(t.Context())
	cfg.Messages = 1 << 30 // never done
	cfg.Only = []string{"publish/8x1"}
	cfg.Progress = func(bench.Step) { cancel() }
	_, err := bench.Run(ctx, cfg.Config)
	require.ErrorIs(t, err, context.Canceled)
	cfg.requireGone(t, 1)
}

// The database in the parameters would be used instead of the scratch one.
func TestOthersDatabaseIsLeftAlone(t *testing.T) {
	t.Parallel()
	cfg := quick(t)
	cfg.URL += "&dbname=postgres"
	_, err := bench.Run(t.Context(), cfg.Config)
	require.ErrorContains(t, err, "must be in its path")
	cfg.requireGone(t, 0)
}

func TestRefused(t *testing.T) {
	t.Parallel()
	for text, change := range map[string]func(*bench.Config){
		`via "smoke"`:        func(c *bench.Config) { c.Via = []string{"smoke"} },
		`mode "lifo"`:        func(c *bench.Config) { c.Mode = "lifo" },
		"keys":               func(c *bench.Config) { c.Keys = -1 },
		"payload":            func(c *bench.Config) { c.Payload = bench.MinPayload - 1 },
		"fill":               func(c *bench.Config) { c.Fill = 10_001 },
		`only "["`:           func(c *bench.Config) { c.Only = []string{"["} },
		"rounds":             func(c *bench.Config) { c.Rounds = -1 },
		"form postgres://":   func(c *bench.Config) { c.URL = "host=/run" },
		"nothing to measure": func(c *bench.Config) { c.Only = []string{"nothing"} },
		"matches none":       func(c *bench.Config) { c.Only = []string{"latency", "nothing"} },
		"events must be":     func(c *bench.Config) { c.Events = bench.MinEvents - 1 },
		"messages must be":   func(c *bench.Config) { c.Messages = -1 },
		"duration must be":   func(c *bench.Config) { c.Duration = -1 },
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			var cfg bench.Config
			cfg.URL = "postgres://"
			change(&cfg)
			require.ErrorContains(t, cfg.Validate(), text)
		})
	}
}
