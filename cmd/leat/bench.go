package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"leat/cmd/leat/internal/bench"
	"leat/eventstore"
	"leat/migrations/pgserver"
)

type benchConfig struct {
	bench.Config
	database string
	tempDir  string
	quick    bool
}

func benchCommand(c *cli) *cobra.Command {
	var config benchConfig
	cmd := &cobra.Command{
		Use:   "bench [case]...",
		Short: "Measure the broker against bare PostgreSQL",
		Long: `Measure the broker against the least that PostgreSQL itself needs for the same
work, in one run: the sides take turns, and ratios are medians over the rounds.
It takes some minutes.

It runs on a private PostgreSQL in a temporary folder, or with --database-url in
scratch databases of an existing server. Either is removed at the end. Put the
folder on the disk that matters: in memory, syncing costs nothing.

Cases, named producers or consumers x batch:
  publish   singles against one INSERT and COMMIT each, batches against COPY into
            a table like the log
  drain     poll and ack against DELETE ... SKIP LOCKED ... RETURNING, and against
            lease and delete as pgmq does them
  cycle     publish, poll and ack: what a message costs on its whole way
  endtoend  8 producers of singles and 8 consumers at once, against as many that
            insert and delete; at most 1,000 messages are under way
  latency   the same at 200 messages/s, from when a message was due to be sent;
            consumers of the floor look every 4 ms
  depth     claims of 1 and 100 from queues of 1,000 and 1,000,000 messages, and
            of 1,000 and 100,000 FIFO keys
  rebuild   the queue views from the log alone
  fanout    publish through an exchange into 10 queues, against into one
  failure   open the circuit of a FIFO key with 1,000,000 messages, and recover
            what died
  stream    from the commit to subscribers, in this process and by WebSocket,
            against a bare pgoutput tail: at 20,000 messages/s; as fast as one
            publisher can, to 10 subscribers; the latency over the commit, at 200
            messages/s; reading 200,000 messages from the table; the memory of
            2,000 subscribers that get nothing
  audit     a log of --events events: what it takes to rebuild the queue views from
            it; to look at a queue as of its middle; to replay it to a pipe, against
            COPY; to ask where a message is, and what happened to it and its family;
            to seal a part of it and to verify that, against a digest of its COPY.
            Asynchronous projections, and seals, at 10,000 messages/s, against the
            same without. Publishing the past again, against the first time`,
	}
	flags := cmd.Flags()
	flags.StringVar(&config.database, "database-url", "", "a server where scratch databases may be made, instead of a private one")
	flags.StringVar(&config.tempDir, "temp-dir", os.TempDir(), "where the folder of the private PostgreSQL is made")
	flags.StringSliceVar(&config.Only, "only", nil, "cases to run, for example publish,drain/8x100 (default all)")
	flags.StringSliceVar(&config.Via, "via", []string{bench.ViaCommands}, "how to reach the broker: commands, http, or both")
	flags.StringVar(&config.Mode, "mode", "standard", "mode of the queues: standard or fifo")
	flags.IntVar(&config.Keys, "keys", 0, "routing keys to use in turn (default 1, fifo 1000)")
	flags.IntVar(&config.Payload, "payload", 256, "bytes of a payload")
	flags.IntVar(&config.Fill, "fill", 100, "batch in which the messages of a drain were published")
	flags.IntVar(&config.Events, "events", 0, "events of the log that the audit cases read (default 1000000)")
	flags.IntVar(&config.Messages, "messages", 0, "messages of each sample (default: as many as suit it)")
	flags.DurationVar(&config.Duration, "duration", 0, "time of each sample that has no number of messages (default 700ms)")
	flags.IntVar(&config.Rounds, "rounds", 0, "samples of each side (default 3)")
	flags.BoolVar(&config.quick, "quick", false, "a few messages of everything, to see that it works")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		config.Only = append(config.Only, args...)
		if config.quick {
			config.Quick()
		}
		if err := config.Validate(); err != nil {
			return &usageError{cmd, err}
		}
		report, err := runBench(cmd.Context(), config)
		if err != nil {
			return err
		}
		return c.printer(cmd).show(report, func(t *table) { benchTable(t, report) })
	}
	return cmd
}

func runBench(ctx context.Context, config benchConfig) (report *bench.Report, err error) {
	// What a broker has to say while it is measured would spoil the table.
	logger := slog.New(slog.DiscardHandler)
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	config.Replay = func(ctx context.Context, url string, to eventstore.Position) *exec.Cmd {
		return exec.CommandContext(ctx, self, "replay", "--url", url, "--to", to.String())
	}
	config.Start = func(ctx context.Context, url string, with bench.Parts) (*bench.Node, error) {
		pool, err := open(ctx, url, logger)
		if err != nil {
			return nil, err
		}
		b := newBroker(pool, url, serveConfig{Projections: with.Projections, Seal: with.Seal}, logger)
		return &bench.Node{Commands: b.commands, Pool: pool, Streams: streamsAPI{hub: b.hub}, Run: func(ctx context.Context, listener net.Listener) error {
			return b.run(ctx, listener)
		}}, nil
	}
	config.URL = config.database
	if config.URL == "" {
		server, remove, err := scratchServer(ctx, config.tempDir, logger)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, remove()) }()
		config.URL = server.URL()
	}
	var finish func()
	config.Progress, finish = benchProgress()
	defer finish()
	return bench.Run(ctx, config.Config)
}

// scratchServer starts a PostgreSQL in a folder of its own; remove stops it and
// removes the folder.
func scratchServer(ctx context.Context, parent string, logger *slog.Logger) (_ *pgserver.Server, remove func() error, err error) {
	dir, err := os.MkdirTemp(parent, "leat-bench-")
	if err != nil {
		return nil, nil, fmt.Errorf("make data folder: %w", err)
	}
	server, err := pgserver.Start(ctx, pgserver.Config{
		DataDir: dir, Logger: logger,
		// Room for the floors' connections beside the brokers'.
		Settings: map[string]string{"max_connections": "200"},
	})
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("start PostgreSQL: %w", err), os.RemoveAll(dir))
	}
	return server, func() error {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
		defer cancel()
		return errors.Join(server.Stop(stopping), os.RemoveAll(dir))
	}, nil
}

// benchProgress shows on a terminal what is being measured.
func benchProgress() (show func(bench.Step), finish func()) {
	if !term.IsTerminal(int(os.Stderr.Fd())) {
		return nil, func() {}
	}
	bar := progressbar.NewOptions(-1,
		progressbar.OptionSetWriter(os.Stderr),
		progressbar.OptionSetWidth(20),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionClearOnFinish())
	return func(step bench.Step) {
		bar.Describe(step.Name)
		bar.ChangeMax(step.Total)
		_ = bar.Set(step.Done) // only to be looked at
	}, func() { _ = bar.Finish() } // the same
}

func benchTable(t *table, r *bench.Report) {
	t.row(fmt.Sprintf("PostgreSQL %s, %s queues, %d routing keys, payloads of %d bytes, medians of %d rounds",
		r.Server, r.Mode, r.Keys, r.Payload, r.Rounds))
	t.row()
	t.row("CASE", "SIDE", "MESSAGES/S", "SERVER US", "TAIL US", "CLIENT US", "CLI US", "WAL BYTES", "P50 MS", "P99 MS", "MB/S", "LAG MS")
	for _, f := range r.Figures {
		t.row(f.Case, f.Label, fmt.Sprintf("%.0f", f.PerSecond), figure(f.ServerCPU, 1), figure(f.TailCPU, 1), figure(f.ClientCPU, 1),
			figure(f.CLICPU, 1), figure(&f.WAL, 0), figure(f.P50, 2), figure(f.P99, 2), figure(f.Megabytes, 0), figure(f.Lag, 0))
	}
	t.row()
	t.row("CPU and WAL are per message, of the whole server; the tail's is part of it. The client's CPU is the broker's and the load's.")
	t.row("Of the audit cases a message is an event of the log (rebuild, as-of, replay, chain) or a message that was asked about (message).")
	if r.Shortened {
		t.row("A quick run: these figures prove nothing.")
	}
	if len(r.Aims) > 0 {
		t.row()
		aimRows(t, r.Aims)
	}
}

func aimRows(t *table, aims []bench.Aim) {
	t.row("CASE", "SIDE", "AIM", "WANTED", "MEASURED")
	for _, a := range aims {
		bound, met := "at least", "met"
		if a.AtMost {
			bound = "at most"
		}
		if !a.Met {
			met = "NOT MET"
		}
		t.row(a.Case, a.Side, a.Name, fmt.Sprintf("%s %g", bound, a.Wanted), fmt.Sprintf("%.2f", a.Value), met)
	}
}

// figure is a number, if it is known.
func figure(value *float64, digits int) string {
	if value == nil {
		return none
	}
	return fmt.Sprintf("%.*f", digits, *value)
}
