package client_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"leat/api"
	"leat/api/client"
	"leat/eventstore"
)

// work is what a consumer of queue "q" did, by the number that is the payload.
type work struct {
	mu      sync.Mutex
	done    map[int]int       // attempt that succeeded
	refused map[int]time.Time // last time that it was to come again later
	early   []int             // came before that
}

const (
	workMessages = 300
	workDelay    = 300 * time.Millisecond
	workLease    = 3 * time.Second
	workLong     = 0 // it takes longer than its lease
)

// handle fails every tenth message once, and another tenth for good.
func (w *work) handle(ctx context.Context, d api.Delivery) error {
	n := number(d)
	if n == workLong && !w.long(ctx) {
		return context.Cause(ctx)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case n%10 == 3:
		return client.WithClass("customer", client.DeadLetter(fmt.Errorf("no customer %d", n)))
	case n%10 == 7 && d.Attempt == 1:
		w.refused[n] = time.Now()
		return client.RetryAfter(workDelay, errors.New("not yet"))
	case time.Since(w.refused[n]) < workDelay:
		w.early = append(w.early, n)
	}
	w.done[n] = d.Attempt
	return nil
}

// long takes its time, and answers whether it was left in peace.
func (*work) long(ctx context.Context) bool {
	select {
	case <-time.After(workLease + 2*time.Second):
		return true
	case <-ctx.Done():
		return false
	}
}

func (w *work) handled() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.done)
}

// The whole way, from the client to the log: what is refused comes again, and not
// too early; what is rejected is dead, with its reason; a handler that takes longer
// than its lease keeps it; and connections that are cut lose nothing.
func TestConsumeWhole(t *testing.T) {
	t.Parallel()
	url := startBroker(t)
	direct, p := connect(t, url), newProxy(t, url)
	ctx := t.Context()
	_, err := direct.DeclareChannel(ctx, "q", api.ChannelSpec{Policy: api.PolicyPatch{Lease: new(api.Duration(workLease))}})
	require.NoError(t, err)
	publish := func(from, to int) (first eventstore.MessageID) {
		var r api.PublishRequest
		for n := from; n < to; n++ {
			r.Messages = append(r.Messages, message(n))
		}
		result, err := direct.Publish(ctx, "q", r, false)
		require.NoError(t, err)
		return result.Messages[0].MessageID
	}
	w := &work{done: map[int]int{}, refused: map[int]time.Time{}}
	stop := consume(t, connect(t, p.url()), client.ConsumeConfig{Concurrency: 4}, w.handle)
	for from := 1; from < workMessages; from += 50 {
		publish(from, min(from+50, workMessages))
		require.Eventually(t, func() bool { return w.handled() > from/2 }, patience, time.Millisecond)
		p.cut()
	}
	long := publish(workLong, workLong+1)
	const dead = workMessages / 10
	require.Eventually(t, func() bool { return w.handled() == workMessages-dead }, patience, time.Millisecond)
	require.NoError(t, stop())

	channel, err := direct.Channel(ctx, "q")
	require.NoError(t, err)
	require.Equal(t, &api.Counts{Dead: dead}, channel.Counts)
	page, err := direct.DeadLetters(ctx, "q", client.DeadLettersFilter{})
	require.NoError(t, err)
	require.Len(t, page.DeadLetters, dead)
	for _, d := range page.DeadLetters {
		require.Equal(t, fmt.Sprintf("no customer %s", d.Payload), d.Detail)
		require.Equal(t, "customer", d.ErrorClass)
	}
	require.Empty(t, w.early)
	for n, attempt := range w.done {
		want := 1
		if n%10 == 7 {
			want = 2
		}
		require.Equal(t, want, attempt, "%d: a lost connection counts no attempt", n)
	}
	history, err := direct.History(ctx, long)
	require.NoError(t, err)
	kinds := map[string]int{}
	for _, event := range history {
		kinds[event.Kind]++
	}
	require.Equal(t, 1, kinds[string(eventstore.MessageDelivered)])
	require.Equal(t, 1, kinds[string(eventstore.MessageAcked)])
	require.Greater(t, kinds[string(eventstore.MessageExtended)], 1)
}
