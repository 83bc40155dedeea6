package commands_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"leat/commands"
	"leat/eventstore"
)

// A stop answers every poll that waits and every command under way, refuses new
// ones, and leaves no message in the hands of nobody.
func TestStopAnswersEverybody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const queues = 5
	for i := range queues {
		b.declare(fmt.Sprint("q", i), commands.Standard, commands.PolicyPatch{Lease: new(time.Hour)})
	}
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		stored int
		taken  int
	)
	ended := func(err error) {
		e := refusal(t, err)
		assert.Equal(t, eventstore.ShuttingDown, e.Code)
		assert.Positive(t, e.RetryAfter)
	}
	for i := range 10 * queues {
		queue := fmt.Sprint("q", i%queues)
		wg.Go(func() {
			for {
				got, err := b.Poll(ctx, commands.PollRequest{Queue: queue, Max: 3, Wait: patience})
				if err != nil {
					ended(err)
					return
				}
				mu.Lock()
				taken += len(got)
				mu.Unlock()
			}
		})
		wg.Go(func() { // callers that give up at the same time
			for {
				short, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
				_, err := b.Poll(short, commands.PollRequest{Queue: "q0", Max: 3, Wait: patience, RoutingKeys: []string{"nobody"}})
				cancel()
				if !errors.Is(err, context.DeadlineExceeded) {
					ended(err)
					return
				}
			}
		})
		wg.Go(func() {
			for {
				_, err := b.Publish(ctx, commands.PublishRequest{Channel: queue, Messages: make([]commands.Message, 2)})
				if err != nil {
					ended(err)
					return
				}
				mu.Lock()
				stored += 2
				mu.Unlock()
			}
		})
	}
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return taken > 500
	}, patience, time.Millisecond)
	b.stop()
	finished(t, &wg)
	require.Equal(t, []string{fmt.Sprint(stored)}, texts(t, b.pool, `select count(*)::text from leat.queue_messages`))
	require.Equal(t, []string{fmt.Sprint(taken)}, texts(t, b.pool, `select count(*)::text from leat.queue_messages where state = 'in_flight'`))
	b.verify()
}
