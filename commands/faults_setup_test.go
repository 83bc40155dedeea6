package commands_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"leat/commands"
	"leat/eventstore"
	"leat/projections"
	"leat/replication"
)

// forgiving is how long a test waits for what has to come back after a fault,
// on a machine that has other things to do.
const forgiving = 60 * time.Second

// wired runs a broker as the program wires it: with a listener and an announcer,
// and a keeper of the views.
func wired(t testing.TB, url string) broker {
	t.Helper()
	pool := connect(t, url)
	logger := slog.New(slog.DiscardHandler)
	announcer := replication.NewAnnouncer(pool, nil, logger)
	b := serve(t, pool, commands.Config{Announce: announcer.Announce})
	listener := replication.Listener{URL: url, Logger: logger, Wake: b.Wake}
	views := projections.New(pool, logger)

	ctx, cancel := context.WithCancel(context.Background())
	var parts errgroup.Group
	for _, run := range []func(context.Context) error{announcer.Run, listener.Run, views.Run} {
		parts.Go(func() error { return run(ctx) })
	}
	t.Cleanup(func() {
		cancel()
		require.NoError(t, parts.Wait())
	})
	return b
}

// connect opens a pool of 10 connections, unless adapt says otherwise.
func connect(t testing.TB, url string, adapt ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	config.MaxConns = 10
	config.ConnConfig.OnPgError = eventstore.KeepConnection
	for _, f := range adapt {
		f(config)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}
