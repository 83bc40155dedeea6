package client_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"leat/api"
	"leat/api/client"
	"leat/api/internal/streamfake"
	"leat/api/ws"
	"leat/eventstore"
)

// river serves a stream in memory, and a client that reaches it by a proxy.
type river struct {
	*client.Client
	stream *streamfake.Stream
	proxy  *proxy
}

const riverEpoch = 7

func newRiver(t *testing.T) *river {
	t.Helper()
	stream := streamfake.New("s", riverEpoch)
	server := ws.New(ws.Config{
		Streams: stream, Logger: slog.New(slog.DiscardHandler), Heartbeat: 50 * time.Millisecond,
	})
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := server.Subscribe(w, r, subscribeRequest(r), func(ws.Summary) {}); err != nil {
			t.Errorf("subscribe: %v", err)
		}
	}))
	p := newProxy(t, web.URL)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(t, server.Shutdown(ctx))
		web.Close()
	})
	return &river{connect(t, p.url()), stream, p}
}

func subscribeRequest(r *http.Request) eventstore.SubscribeRequest {
	query := r.URL.Query()
	request := eventstore.SubscribeRequest{
		Stream: strings.Split(r.URL.Path, "/")[3], Point: query.Get("point"), Member: query.Get("member"), Pattern: query.Get("key"),
	}
	request.Window, _ = strconv.Atoi(query.Get("window"))
	epoch, _ := strconv.Atoi(query.Get("epoch"))
	request.Start.Epoch = eventstore.Position(epoch)
	switch from := query.Get("from"); from {
	case "":
	case "earliest":
		request.Start.Kind = eventstore.StartEarliest
	default:
		n, _ := strconv.Atoi(from)
		request.Start.Kind, request.Start.Offset = eventstore.StartOffset, eventstore.Offset(n)
	}
	return request
}

func (r *river) publish(from, to int) {
	for n := from; n < to; n++ {
		r.stream.Publish(strconv.Itoa(n))
	}
}

// seen collects offsets.
type seen struct {
	mu      sync.Mutex
	offsets []int
}

func (s *seen) add(m client.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offsets = append(s.offsets, int(m.Offset))
}

func (s *seen) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.offsets)
}

// each requires the offsets from 0 to n-1, each once, in order.
func (s *seen) each(t *testing.T, n int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, offset := range s.offsets {
		require.Equal(t, i, offset)
	}
	require.Len(t, s.offsets, n)
}

// subscribe runs a subscription until the test, or stop, ends it.
func (r *river) subscribe(t *testing.T, config client.SubscribeConfig, handle func(context.Context, client.Message) error) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Subscribe(ctx, "s", config, handle) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() { _ = stop() })
	return stop
}

func TestSubscribe(t *testing.T) {
	t.Parallel()
	r := newRiver(t)
	r.publish(0, 3)
	var got seen
	config := client.SubscribeConfig{From: "earliest", Point: "p"}
	stop := r.subscribe(t, config, func(_ context.Context, m client.Message) error {
		require.Equal(t, strconv.Itoa(int(m.Offset)), string(m.Bytes()))
		require.Equal(t, api.StreamPosition{Epoch: riverEpoch, Offset: m.Offset}, m.Position())
		got.add(m)
		return nil
	})
	require.Eventually(t, func() bool { return r.stream.Committed("p") == 3 }, patience, time.Millisecond)
	r.publish(3, 10)
	require.Eventually(t, func() bool { return got.len() == 10 }, patience, time.Millisecond)
	require.NoError(t, stop())
	got.each(t, 10)
	require.EqualValues(t, 10, r.stream.Committed("p"), "the end commits")
	require.Eventually(t, func() bool { return r.stream.Subscribers() == 0 }, patience, time.Millisecond)

	// The next one goes on.
	r.publish(10, 20)
	require.NoError(t, r.Subscribe(t.Context(), "s", config, func(_ context.Context, m client.Message) error {
		got.add(m)
		if m.Offset == 14 {
			return client.ErrStop
		}
		return nil
	}))
	got.each(t, 15)
	require.EqualValues(t, 15, r.stream.Committed("p"))
}

// Batches hold what is there, and never more than they may.
func TestSubscribeBatches(t *testing.T) {
	t.Parallel()
	r := newRiver(t)
	r.publish(0, 500)
	var got seen
	largest := 0
	err := r.SubscribeBatches(t.Context(), "s", client.SubscribeConfig{From: "earliest", MaxBatch: 64}, func(_ context.Context, batch []client.Message) error {
		largest = max(largest, len(batch))
		for _, m := range batch {
			got.add(m)
		}
		if got.len() == 500 {
			return client.ErrStop
		}
		return nil
	})
	require.NoError(t, err)
	got.each(t, 500)
	require.Equal(t, 64, largest)
}

// Connections that break in any way cost nothing and double nothing while the
// consumer lives, with a point and without.
func TestF33SubscribeReconnects(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"", "p"} {
		for _, concurrency := range []int{1, 4} {
			t.Run(fmt.Sprintf("point %q, %d at once", point, concurrency), func(t *testing.T) {
				t.Parallel()
				r := newRiver(t)
				r.publish(0, 10)
				var got seen
				lost := make(chan error, 1000)
				stop := r.subscribe(t, client.SubscribeConfig{
					From: "earliest", Point: point, Window: 20, Silence: 300 * time.Millisecond, Concurrency: concurrency,
					OnLost: func(err error, _ time.Duration) { lost <- err },
				}, func(_ context.Context, m client.Message) error {
					got.add(m)
					return nil
				})
				const all = 300
				breaks := []func(){r.proxy.cut, r.proxy.stall, r.proxy.halfOpen, r.proxy.cut}
				for i := range len(breaks) {
					require.Eventually(t, func() bool { return got.len() >= 10+i*40 }, patience, time.Millisecond)
					r.publish(10+i*40, 30+i*40)
					breaks[i]()
					r.publish(30+i*40, 50+i*40)
					select {
					case err := <-lost:
						require.Error(t, err)
					case <-time.After(patience):
						t.Fatal("nobody noticed")
					}
				}
				r.publish(10+len(breaks)*40, all)
				require.Eventually(t, func() bool { return got.len() >= all }, patience, time.Millisecond)
				require.NoError(t, stop())
				got.each(t, all)
				if point != "" {
					require.EqualValues(t, all, r.stream.Committed(point))
				}
			})
		}
	}
}

// F33: of what is handled out of order only the part without a gap is committed.
func TestF33CommitsContiguousPrefix(t *testing.T) {
	t.Parallel()
	r := newRiver(t)
	r.stream.PublishKeys("a", "b", "slow", "b", "a", "slow", "c")
	release := make(chan struct{})
	var got seen
	stop := r.subscribe(t, client.SubscribeConfig{From: "earliest", Point: "p", Concurrency: 3}, func(_ context.Context, m client.Message) error {
		if m.RoutingKey == "slow" {
			<-release
		}
		got.add(m)
		return nil
	})
	require.Eventually(t, func() bool { return got.len() == 5 && r.stream.Committed("p") == 2 }, patience, time.Millisecond)
	r.proxy.cut()
	r.stream.PublishKeys("c", "slow")
	require.Eventually(t, func() bool { return got.len() == 6 }, patience, time.Millisecond, "others go on over a new connection")
	require.EqualValues(t, 2, r.stream.Committed("p"))
	close(release)
	require.Eventually(t, func() bool { return r.stream.Committed("p") == 9 }, patience, time.Millisecond)
	require.NoError(t, stop())
	require.Len(t, got.offsets, 9, "each once")
	slow := []int{}
	for _, offset := range got.offsets {
		if offset == 2 || offset == 5 || offset == 8 {
			slow = append(slow, offset)
		}
	}
	require.Equal(t, []int{2, 5, 8}, slow, "a key has an order")
}

// An error of the handler ends it, and what came before is committed.
func TestSubscribeHandlerFails(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for name, fail := range map[string]func() error{
		"error": func() error { return boom },
		"panic": func() error { panic("boom") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRiver(t)
			r.publish(0, 10)
			err := r.Subscribe(t.Context(), "s", client.SubscribeConfig{From: "earliest", Point: "p", CommitEvery: 100}, func(_ context.Context, m client.Message) error {
				if m.Offset == 4 {
					return fail()
				}
				return nil
			})
			require.ErrorContains(t, err, "boom")
			require.ErrorContains(t, err, "offset 4")
			require.EqualValues(t, 4, r.stream.Committed("p"))
		})
	}
}

// Where going on makes no sense, the error says why, and where it would.
func TestSubscribeEnds(t *testing.T) {
	t.Parallel()
	resume := &eventstore.StreamPosition{Epoch: 9, Offset: 3}
	for _, code := range []eventstore.Code{
		eventstore.PointTaken, eventstore.EpochChanged, eventstore.OffsetGone, eventstore.PointNotFound, eventstore.ChannelNotFound, eventstore.Internal,
	} {
		t.Run(string(code), func(t *testing.T) {
			t.Parallel()
			r := newRiver(t)
			done := make(chan error, 1)
			go func() {
				done <- r.Subscribe(t.Context(), "s", client.SubscribeConfig{Point: "p"}, func(context.Context, client.Message) error { return nil })
			}()
			require.Eventually(t, func() bool { return r.stream.Subscribers() == 1 }, patience, time.Millisecond)
			r.stream.End(&eventstore.Error{Code: code, Message: "It is over.", Index: -1, Resume: resume})
			problem, ok := errors.AsType[*api.Problem](<-done)
			require.True(t, ok)
			require.Equal(t, code, problem.Code)
			require.EqualValues(t, 3, problem.Resume.Offset)
		})
	}
	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		r := newRiver(t)
		err := r.Subscribe(t.Context(), "s", client.SubscribeConfig{From: "7"}, nil)
		problem, ok := errors.AsType[*api.Problem](err)
		require.True(t, ok, "%v", err)
		require.Equal(t, eventstore.OffsetAhead, problem.Code)
	})
	t.Run("nobody there", func(t *testing.T) {
		t.Parallel()
		err := connect(t, "http://127.0.0.1:1").Subscribe(t.Context(), "s", client.SubscribeConfig{FailFast: true}, nil)
		require.ErrorContains(t, err, "refused")
	})
	t.Run("passes", func(t *testing.T) {
		t.Parallel()
		r := newRiver(t)
		var got seen
		stop := r.subscribe(t, client.SubscribeConfig{}, func(_ context.Context, m client.Message) error {
			got.add(m)
			return nil
		})
		for i := range 3 {
			require.Eventually(t, func() bool { return r.stream.Subscribers() == 1 }, patience, time.Millisecond)
			r.stream.End(&eventstore.Error{Code: eventstore.DatabaseUnavailable, Message: "Away.", Index: -1})
			r.publish(i, i+1)
			require.Eventually(t, func() bool { return got.len() == i+1 }, patience, time.Millisecond)
		}
		require.NoError(t, stop())
		got.each(t, 3)
	})
}

// A point that somebody resets is followed: what comes again is handled again.
func TestSubscribePointMoved(t *testing.T) {
	t.Parallel()
	for name, tell := range map[string]func(r *river){
		"told": func(r *river) {
			r.stream.End(&eventstore.Error{Code: eventstore.PointMoved, Message: "It was reset.", Index: -1})
		},
		"while away": func(r *river) { r.proxy.cut() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRiver(t)
			r.publish(0, 10)
			var got seen
			stop := r.subscribe(t, client.SubscribeConfig{From: "earliest", Point: "p"}, func(_ context.Context, m client.Message) error {
				got.add(m)
				return nil
			})
			require.Eventually(t, func() bool { return r.stream.Committed("p") == 10 }, patience, time.Millisecond)
			// Another commit is sent when the first has its answer: the client knows of that.
			r.publish(10, 11)
			require.Eventually(t, func() bool { return r.stream.Committed("p") == 11 }, patience, time.Millisecond)
			require.Eventually(t, func() bool { return r.stream.Subscribers() == 1 }, patience, time.Millisecond)
			r.stream.MovePoint("p", 4)
			tell(r)
			require.Eventually(t, func() bool { return got.len() == 18 && r.stream.Committed("p") == 11 }, patience, time.Millisecond)
			require.NoError(t, stop())
			require.Equal(t, []int{4, 5, 6, 7, 8, 9, 10}, got.offsets[11:])
		})
	}
}

// FS10: a commit that fails is made later.
func TestFS10CommitIsRepeated(t *testing.T) {
	t.Parallel()
	r := newRiver(t)
	r.stream.FailCommits(&eventstore.Error{Code: eventstore.DatabaseUnavailable, Message: "Away.", Index: -1})
	r.publish(0, 5)
	var got seen
	stop := r.subscribe(t, client.SubscribeConfig{From: "earliest", Point: "p"}, func(_ context.Context, m client.Message) error {
		got.add(m)
		return nil
	})
	require.Eventually(t, func() bool { return got.len() == 5 }, patience, time.Millisecond)
	require.Zero(t, r.stream.Committed("p"))
	r.stream.FailCommits(nil)
	require.Eventually(t, func() bool { return r.stream.Committed("p") == 5 }, patience, time.Millisecond)
	require.NoError(t, stop())
}

// Rare commits still make room in the window.
func TestSubscribeCommitsRarely(t *testing.T) {
	t.Parallel()
	r := newRiver(t)
	r.publish(0, 100)
	var got seen
	config := client.SubscribeConfig{From: "earliest", Point: "p", Window: 4, CommitEvery: 80}
	handle := func(_ context.Context, m client.Message) error {
		got.add(m)
		return nil
	}
	stop := r.subscribe(t, config, handle)
	require.Eventually(t, func() bool { return got.len() == 100 }, patience, time.Millisecond)
	require.Less(t, int(r.stream.Committed("p")), 100)
	require.GreaterOrEqual(t, int(r.stream.Committed("p")), 80)
	require.NoError(t, stop())
	require.EqualValues(t, 100, r.stream.Committed("p"))

	r.publish(100, 110)
	config.CommitEvery, config.CommitInterval = 0, 20*time.Millisecond
	stop = r.subscribe(t, config, handle)
	require.Eventually(t, func() bool { return r.stream.Committed("p") == 110 }, patience, time.Millisecond)
	require.NoError(t, stop())

	r.publish(110, 120)
	config.NoCommit = true
	stop = r.subscribe(t, config, handle)
	require.Eventually(t, func() bool { return got.len() == 120 }, patience, time.Millisecond)
	require.NoError(t, stop())
	require.EqualValues(t, 110, r.stream.Committed("p"))
}

// Handlers may finish, but not for ever.
func TestSubscribeGrace(t *testing.T) {
	t.Parallel()
	r := newRiver(t)
	r.publish(0, 2)
	started := make(chan struct{})
	stop := r.subscribe(t, client.SubscribeConfig{From: "earliest", Point: "p", Grace: 20 * time.Millisecond}, func(ctx context.Context, m client.Message) error {
		if m.Offset == 1 {
			close(started)
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	})
	<-started
	require.NoError(t, stop())
	require.EqualValues(t, 1, r.stream.Committed("p"))
}
