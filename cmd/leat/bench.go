package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"leat/cmd/leat/internal/bench"
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
		Use:   "bench",
		Short: "Measure the broker against bare PostgreSQL",
		Long: `Measure the broker against the least that PostgreSQL itself needs for the same
work, in one run: the sides take turns, and ratios are medians over the rounds.

It runs on a private PostgreSQL in a temporary folder, or with --database-url in
scratch databases of an existing server. Either is removed at the end. Put the
folder on the disk that matters: in memory, syncing costs nothing.`,
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
	flags.IntVar(&config.Messages, "messages", 0, "messages of each sample (default: as many as suit it)")
	flags.DurationVar(&config.Duration, "duration", 0, "time of each sample that has no number of messages (default 1s)")
	flags.IntVar(&config.Rounds, "rounds", 0, "samples of each side (default 3)")
	flags.BoolVar(&config.quick, "quick", false, "a few messages of everything, to see that it works")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
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
	config.Start = func(ctx context.Context, url string) (*bench.Node, error) {
		pool, err := open(ctx, url, logger)
		if err != nil {
			return nil, err
		}
		b := newBroker(pool, url, logger)
		return &bench.Node{Commands: b.commands, Pool: pool, Run: func(ctx context.Context, listener net.Listener) error {
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
	t.row("CASE", "SIDE", "MESSAGES/S", "SERVER US", "CLIENT US", "WAL BYTES", "P50 MS", "P99 MS")
	for _, f := range r.Figures {
		t.row(f.Case, f.Label, fmt.Sprintf("%.0f", f.PerSecond), figure(f.ServerCPU, 1), figure(f.ClientCPU, 1),
			figure(&f.WAL, 0), figure(f.P50, 2), figure(f.P99, 2))
	}
	t.row()
	t.row("CPU and WAL are per message. The client's CPU is the broker's and the load's.")
	t.row()
	t.row("CASE", "SIDE", "AIM", "WANTED", "MEASURED")
	for _, a := range r.Aims {
		bound, met := "at least", "met"
		if a.AtMost {
			bound = "at most"
		}
		if !a.Met {
			met = "NOT MET"
		}
		t.row(a.Case, a.Side, a.Name, fmt.Sprintf("%s %g", bound, a.Wanted), fmt.Sprintf("%.2f", a.Value), met)
	}
	if r.Shortened {
		t.row()
		t.row("A quick run: these figures prove nothing.")
	}
}

// figure is a number, if it is known.
func figure(value *float64, digits int) string {
	if value == nil {
		return none
	}
	return fmt.Sprintf("%.*f", digits, *value)
}
