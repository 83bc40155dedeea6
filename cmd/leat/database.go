package main

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/lmittmann/tint"
	"golang.org/x/term"

	"leat/commands"
	"leat/eventstore"
	"leat/migrations"
	"leat/projections"
	"leat/projections/async"
	"leat/replication"
)

// functions are the SQL functions of every folder, for the migrator.
func functions() []fs.FS {
	return []fs.FS{eventstore.SQL, projections.SQL, async.SQL, commands.SQL, replication.SQL}
}

// newLogger writes for people on a terminal and JSON elsewhere, to stderr.
func newLogger() *slog.Logger {
	if term.IsTerminal(int(os.Stderr.Fd())) {
		return slog.New(tint.NewTextHandler(os.Stderr, &tint.Options{TimeFormat: time.TimeOnly}))
	}
	return slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{ReplaceAttr: readableDuration}))
}

// readableDuration writes 1.5s where slog would write nanoseconds and not say so.
func readableDuration(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}

// poolConfig is what a URL asks of a pool, and our own defaults.
func poolConfig(url string) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("parse database URL: %w", err)
	}
	config.MaxConns = max(config.MaxConns, 16)
	// A load opens connections together, and they would end together, an hour later.
	// In new sessions the functions plan anew, and everybody would wait for that,
	// some tenths of a second. One by one, the others do the work.
	if config.MaxConnLifetimeJitter == 0 {
		config.MaxConnLifetimeJitter = config.MaxConnLifetime
	}
	config.ConnConfig.OnPgError = eventstore.KeepConnection
	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "leat"
	}
	return config, nil
}

// connect opens a pool and waits until the server answers.
func connect(ctx context.Context, url string) (*pgxpool.Pool, error) {
	config, err := poolConfig(url)
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect to database: %w", err)
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("connect to database: %w", err)
	}
	return pool, nil
}

// open connects and brings the schema to this binary's version.
func open(ctx context.Context, url string, logger *slog.Logger) (*pgxpool.Pool, error) {
	pool, err := connect(ctx, url)
	if err != nil {
		return nil, err
	}
	result, err := migrations.Run(ctx, pool, functions()...)
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("migrate database: %w", err)
	}
	if len(result.Applied) > 0 || result.Functions {
		logger.Info("schema brought up to date", "from", result.From, "to", result.To)
	}
	return pool, nil
}
