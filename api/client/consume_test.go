package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"leat/api"
	"leat/api/client"
	"leat/eventstore"
)

// consume runs a consumer until the test, or stop, ends it.
func consume(t *testing.T, c *client.Client, config client.ConsumeConfig, handle func(context.Context, api.Delivery) error) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Consume(ctx, "q", config, handle) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() { _ = stop() })
	return stop
}

func keys(n int) []string { return make([]string, n) }

func number(d api.Delivery) int {
	n, err := strconv.Atoi(string(d.Bytes()))
	if err != nil {
		panic(err)
	}
	return n
}

func TestConsume(t *testing.T) {
	t.Parallel()
	q, server := newFakeQueue(t, "standard", time.Minute)
	q.publish(keys(500)...)
	var running, most atomic.Int64
	stop := consume(t, connect(t, server.URL), client.ConsumeConfig{Concurrency: 8}, func(context.Context, api.Delivery) error {
		most.Store(max(most.Load(), running.Add(1)))
		defer running.Add(-1)
		return nil
	})
	require.Eventually(t, func() bool { _, left := q.settled(); return left == 0 }, patience, time.Millisecond)
	require.NoError(t, stop())
	acked, _ := q.settled()
	slices.Sort(acked)
	require.Len(t, slices.Compact(acked), 500)
	require.LessOrEqual(t, most.Load(), int64(8))
}

// What a handler answers is what becomes of the message.
func TestConsumeOutcomes(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for name, test := range map[string]struct {
		err  func() error
		want api.NackFrame
	}{
		"error":   {func() error { return boom }, api.NackFrame{Action: "retry", Reason: "boom"}},
		"panic":   {func() error { panic("boom") }, api.NackFrame{Action: "retry", Reason: "panic: boom", ErrorClass: "panic"}},
		"dead":    {func() error { return fmt.Errorf("oh: %w", client.DeadLetter(boom)) }, api.NackFrame{Action: "deadLetter", Reason: "oh: boom"}},
		"discard": {func() error { return client.Discard(nil) }, api.NackFrame{Action: "discard", Reason: "discard"}},
		"class": {
			func() error { return client.WithClass("net", client.DeadLetter(boom)) },
			api.NackFrame{Action: "deadLetter", Reason: "boom", ErrorClass: "net"},
		},
		"class inside": {
			func() error { return client.DeadLetter(client.WithClass("net", boom)) },
			api.NackFrame{Action: "deadLetter", Reason: "boom", ErrorClass: "net"},
		},
		"long": {func() error { return errors.New(strings.Repeat("é", 1000) + "\xff") }, api.NackFrame{Action: "retry", Reason: strings.Repeat("é", 512)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q, server := newFakeQueue(t, "standard", time.Minute)
			q.publish("k")
			err := connect(t, server.URL).Consume(t.Context(), "q", client.ConsumeConfig{}, func(_ context.Context, d api.Delivery) error {
				if d.Attempt > 1 || d.RoutingKey == "end" {
					return client.ErrStop
				}
				if test.want.Action != "retry" {
					q.publish("end")
				}
				return test.err()
			})
			require.NoError(t, err)
			require.Len(t, q.nacks, 1)
			got := q.nacks[0]
			got.Type, got.ID, got.Receipts = "", 0, nil
			require.Equal(t, test.want, got)
		})
	}
	t.Run("after", func(t *testing.T) {
		t.Parallel()
		q, server := newFakeQueue(t, "standard", time.Minute)
		q.publish("k")
		require.NoError(t, connect(t, server.URL).Consume(t.Context(), "q", client.ConsumeConfig{}, func(_ context.Context, d api.Delivery) error {
			if d.Attempt > 1 {
				return client.ErrStop
			}
			return client.RetryAfter(time.Hour, boom)
		}))
		require.Equal(t, api.Duration(time.Hour), *q.nacks[0].Delay)
	})
	t.Run("release", func(t *testing.T) {
		t.Parallel()
		q, server := newFakeQueue(t, "standard", time.Minute)
		q.publish("k")
		again := false
		require.NoError(t, connect(t, server.URL).Consume(t.Context(), "q", client.ConsumeConfig{}, func(_ context.Context, d api.Delivery) error {
			require.Equal(t, 1, d.Attempt)
			if again {
				return client.ErrStop
			}
			again = true
			return client.ErrRelease
		}))
		require.Equal(t, 1, q.released)
	})
}

// A lease is extended while its message waits or is handled.
func TestConsumeExtendsLeases(t *testing.T) {
	t.Parallel()
	q, server := newFakeQueue(t, "standard", 3*time.Second)
	q.publish(keys(3)...)
	long := time.NewTimer(5 * time.Second)
	stop := consume(t, connect(t, server.URL), client.ConsumeConfig{}, func(ctx context.Context, d api.Delivery) error {
		if number(d) == 0 {
			select {
			case <-long.C:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	})
	require.Eventually(t, func() bool { _, left := q.settled(); return left == 0 }, patience, time.Millisecond)
	require.NoError(t, stop())
	require.Empty(t, q.nacks)
	require.Greater(t, q.extended, 3)
}

// The handler is told when its message is another's, and when the connection is
// gone, which gives everything back.
func TestConsumeLeaseLost(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(q *fakeQueue, p *proxy){
		"stolen": func(q *fakeQueue, _ *proxy) { q.steal(0) },
		"cut":    func(_ *fakeQueue, p *proxy) { p.cut() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q, server := newFakeQueue(t, "standard", 3*time.Second)
			p := newProxy(t, server.URL)
			q.publish("k")
			causes := make(chan error, 1)
			started := make(chan struct{})
			var once sync.Once
			stop := consume(t, connect(t, p.url()), client.ConsumeConfig{}, func(ctx context.Context, _ api.Delivery) error {
				first := false
				once.Do(func() { first = true })
				if first {
					close(started)
					<-ctx.Done()
					causes <- context.Cause(ctx)
					return ctx.Err()
				}
				return nil
			})
			<-started
			lose(q, p)
			select {
			case cause := <-causes:
				require.ErrorIs(t, cause, client.ErrLeaseLost)
			case <-time.After(patience):
				t.Fatal("the handler was not told")
			}
			if name == "cut" {
				require.Eventually(t, func() bool { _, left := q.settled(); return left == 0 }, patience, time.Millisecond)
			}
			require.NoError(t, stop())
			require.Empty(t, q.nacks, "it is not this consumer's to refuse")
		})
	}
}

// Connections that break cost nothing: every message is acked in the end.
func TestConsumeReconnects(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"standard", "fifo"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			q, server := newFakeQueue(t, mode, time.Minute)
			p := newProxy(t, server.URL)
			var mu sync.Mutex
			handled := map[string][]int{}
			stop := consume(t, connect(t, p.url()), client.ConsumeConfig{Concurrency: 4, Silence: 300 * time.Millisecond}, func(_ context.Context, d api.Delivery) error {
				mu.Lock()
				defer mu.Unlock()
				handled[d.RoutingKey] = append(handled[d.RoutingKey], number(d))
				return nil
			})
			for i := range 10 {
				for range 10 {
					q.publish("a", "b", "c")
				}
				if i%3 == 2 {
					p.stall()
				} else {
					p.cut()
				}
			}
			require.Eventually(t, func() bool { _, left := q.settled(); return left == 0 }, patience, time.Millisecond)
			require.NoError(t, stop())
			acked, _ := q.settled()
			require.Len(t, acked, 300)
		})
	}
}

// A settlement that the server cannot make now is made later.
func TestConsumeSettlesAgain(t *testing.T) {
	t.Parallel()
	q, server := newFakeQueue(t, "standard", time.Minute)
	q.refuse = api.NewProblem(eventstore.DatabaseUnavailable, "away")
	q.publish(keys(5)...)
	var handled atomic.Int64
	stop := consume(t, connect(t, server.URL), client.ConsumeConfig{}, func(context.Context, api.Delivery) error {
		handled.Add(1)
		return nil
	})
	require.Eventually(t, func() bool { return handled.Load() == 5 }, patience, time.Millisecond)
	q.mu.Lock()
	q.refuse = nil
	q.mu.Unlock()
	require.Eventually(t, func() bool { _, left := q.settled(); return left == 0 }, patience, time.Millisecond)
	require.NoError(t, stop())
	require.EqualValues(t, 5, handled.Load(), "each once")
}

// What comes behind a message that was refused must not overtake it.
func TestConsumeKeepsTheOrderOfKeys(t *testing.T) {
	t.Parallel()
	q, server := newFakeQueue(t, "fifo", time.Minute)
	q.publish("a", "a", "a", "b", "a", "b")
	var mu sync.Mutex
	handled := map[string][]int{}
	stop := consume(t, connect(t, server.URL), client.ConsumeConfig{Concurrency: 4}, func(_ context.Context, d api.Delivery) error {
		if number(d) == 1 && d.Attempt < 3 {
			return errors.New("not yet")
		}
		mu.Lock()
		defer mu.Unlock()
		handled[d.RoutingKey] = append(handled[d.RoutingKey], number(d))
		return nil
	})
	require.Eventually(t, func() bool { _, left := q.settled(); return left == 0 }, patience, time.Millisecond)
	require.NoError(t, stop())
	require.Equal(t, map[string][]int{"a": {0, 1, 2, 4}, "b": {3, 5}}, handled)
}

// At the end running handlers finish, those that do not are told, and the rest
// is given back.
func TestConsumeStops(t *testing.T) {
	t.Parallel()
	q, server := newFakeQueue(t, "standard", time.Minute)
	q.publish(keys(10)...)
	started := make(chan int, 10)
	finish := make(chan struct{})
	stop := consume(t, connect(t, server.URL), client.ConsumeConfig{Concurrency: 2, Grace: 50 * time.Millisecond}, func(ctx context.Context, d api.Delivery) error {
		started <- number(d)
		if number(d) == 0 {
			<-finish
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	})
	<-started
	<-started
	done := make(chan error, 1)
	go func() { done <- stop() }()
	close(finish)
	require.NoError(t, <-done)
	acked, left := q.settled()
	require.Equal(t, []int{0}, acked)
	require.Equal(t, 9, left)
	require.Empty(t, q.nacks)
	require.Eventually(t, func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		for _, m := range q.messages {
			if m.receipt != "" || m.attempt != 0 {
				return false
			}
		}
		return true
	}, patience, time.Millisecond, "no attempt counts")
}

// Panics are told to the logger, with their stack.
func TestConsumeLogsPanics(t *testing.T) {
	t.Parallel()
	q, server := newFakeQueue(t, "standard", time.Minute)
	q.publish("k")
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	require.NoError(t, connect(t, server.URL).Consume(t.Context(), "q", client.ConsumeConfig{Logger: logger}, func(_ context.Context, d api.Delivery) error {
		if d.Attempt > 1 {
			return client.ErrStop
		}
		panic("oh dear")
	}))
	require.Contains(t, log.String(), "oh dear")
	require.Contains(t, log.String(), "consume_test.go")
}
