package eventstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"leat/eventstore"
	"leat/migrations/dbtest"
)

// F26: whoever waits for the log hears of an append, told of or not, and never of one
// above which another is still open.
func TestF26HeadWaitsForTheSettled(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	head := eventstore.NewHead(eventstore.New(pool))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	running, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- head.Run(running) }()
	t.Cleanup(func() {
		cancel()
		stop()
		require.NoError(t, <-done)
	})
	appendOne := func() (p eventstore.Position) {
		require.NoError(t, pool.QueryRow(ctx, `select leat.append('channel.altered', 1, 'test')`).Scan(&p))
		return p
	}
	first := appendOne()
	settled, err := head.Wait(ctx, first-1)
	require.NoError(t, err)
	require.Equal(t, first, settled)

	open, err := pool.Begin(ctx)
	require.NoError(t, err)
	_, err = open.Exec(ctx, `select leat.append('channel.altered', 1, 'test')`)
	require.NoError(t, err)
	last := appendOne()
	head.Poke()
	short, end := context.WithTimeout(ctx, 2*time.Second)
	defer end()
	_, err = head.Wait(short, first)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	require.NoError(t, open.Rollback(ctx)) // of which nobody tells
	settled, err = head.Wait(ctx, first)
	require.NoError(t, err)
	require.Equal(t, last, settled)
}
