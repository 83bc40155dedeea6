package replication_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"leat/eventstore"
	"leat/replication"
)

// patience is how long a test waits for what must happen.
const patience = 30 * time.Second

var (
	ctx   = context.Background()
	quiet = slog.New(slog.DiscardHandler)
)

// run runs a part until the end of the test, or until stop.
func run(t testing.TB, part func(context.Context) error) (stop func()) {
	t.Helper()
	running, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- part(running) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			select {
			case err := <-done:
				require.NoError(t, err)
			case <-time.After(patience):
				t.Error("it does not end")
			}
		})
	}
	t.Cleanup(stop)
	return stop
}

// wakes are what a listener told.
type wakes chan []eventstore.ChannelID

// listen runs a listener on a database and waits until it listens.
func listen(t *testing.T, address string, proveEvery time.Duration) wakes {
	t.Helper()
	heard := make(wakes, 1000)
	run(t, (&replication.Listener{
		URL: address, Logger: quiet, ProveEvery: proveEvery,
		Wake: func(channels ...eventstore.ChannelID) { heard <- channels },
	}).Run)
	heard.all(t)
	return heard
}

// next is the next wake-up.
func (w wakes) next(t *testing.T) []eventstore.ChannelID {
	t.Helper()
	select {
	case channels := <-w:
		return channels
	case <-time.After(patience):
		require.FailNow(t, "no wake-up")
		return nil
	}
}

// all waits for the wake-up of everything that follows a new connection.
func (w wakes) all(t *testing.T) {
	t.Helper()
	for len(w.next(t)) > 0 {
		continue // what was heard before
	}
}

func notify(t *testing.T, pool *pgxpool.Pool, payload string) {
	t.Helper()
	_, err := pool.Exec(ctx, `select pg_notify('leat', $1)`, payload)
	require.NoError(t, err)
}
