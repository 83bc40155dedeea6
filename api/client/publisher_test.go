package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
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

// publishServer stores what it is sent in memory, the way that a test wants it.
type publishServer struct {
	*httptest.Server
	requests atomic.Int64
	messages atomic.Int64
	// before may answer instead, and say so.
	before func(w http.ResponseWriter, request int64, body api.PublishRequest) bool
}

func newPublishServer(t *testing.T, before func(w http.ResponseWriter, request int64, body api.PublishRequest) bool) *publishServer {
	t.Helper()
	s := &publishServer{before: before}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body api.PublishRequest
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Errorf("read request: %v", err)
		}
		n := s.requests.Add(1)
		if s.before != nil && s.before(w, n, body) {
			return
		}
		result := api.PublishResult{Messages: make([]api.Published, len(body.Messages))}
		for i := range result.Messages {
			result.Messages[i].MessageID = eventstore.MessageID(s.messages.Add(1))
		}
		writeJSON(w, http.StatusCreated, result)
	}))
	t.Cleanup(s.Close)
	return s
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", api.ContentJSON)
	if _, problem := v.(*api.Problem); problem {
		w.Header().Set("Content-Type", api.ContentProblem)
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client will notice
}

func refuse(w http.ResponseWriter, problem *api.Problem) bool {
	w.Header().Set("Retry-After", "0")
	writeJSON(w, problem.Status, problem)
	return true
}

func publisher(t *testing.T, url string, config client.PublisherConfig) *client.Publisher {
	t.Helper()
	p := client.NewPublisher(connect(t, url), "q", config)
	t.Cleanup(func() { _ = p.Close(context.Background()) })
	return p
}

// patience is how long a test waits for what a loaded machine does late.
const patience = 30 * time.Second

func message(n int) api.Message { return api.Message{Payload: fmt.Appendf(nil, "%d", n)} }

// While the first request is under way the others gather.
func TestPublisherGathers(t *testing.T) {
	t.Parallel()
	first := make(chan struct{})
	server := newPublishServer(t, func(_ http.ResponseWriter, request int64, _ api.PublishRequest) bool {
		if request == 1 {
			<-first
		}
		return false
	})
	p := publisher(t, server.URL, client.PublisherConfig{Flights: 1})
	var group sync.WaitGroup
	publish := func(n int) {
		group.Go(func() {
			published, err := p.Publish(t.Context(), message(n))
			if err != nil || published.MessageID == 0 {
				t.Errorf("publish: %v %v", published, err)
			}
		})
	}
	publish(0)
	require.Eventually(t, func() bool { return server.requests.Load() == 1 }, patience, time.Millisecond)
	for n := range 500 {
		publish(n)
	}
	require.Eventually(t, func() bool { return client.Waiting(p) == 500 }, patience, time.Millisecond)
	close(first)
	group.Wait()
	require.EqualValues(t, 2, server.requests.Load())
	require.EqualValues(t, 501, server.messages.Load())
	require.NoError(t, p.Close(t.Context()))
	_, err := p.Publish(t.Context(), message(1))
	require.ErrorIs(t, err, client.ErrClosed)
}

// A request has at most so many messages and bytes; one that is larger goes alone.
func TestPublisherBounds(t *testing.T) {
	t.Parallel()
	var largest atomic.Int64
	server := newPublishServer(t, func(_ http.ResponseWriter, _ int64, body api.PublishRequest) bool {
		bytes := 0
		for _, m := range body.Messages {
			bytes += len(m.Payload)
		}
		if len(body.Messages) > 10 || (len(body.Messages) > 1 && bytes > 1000) {
			t.Errorf("%d messages, %d bytes", len(body.Messages), bytes)
		}
		largest.Store(max(largest.Load(), int64(bytes)))
		return false
	})
	p := publisher(t, server.URL, client.PublisherConfig{BatchMessages: 10, BatchBytes: 1000, PendingBytes: 5000})
	var group sync.WaitGroup
	for n := range 200 {
		group.Go(func() {
			size := 50
			if n%20 == 0 {
				size = 20_000 // more than all that may wait
			}
			_, err := p.Publish(t.Context(), api.Message{Payload: []byte(`"` + strings.Repeat("x", size) + `"`)})
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	require.EqualValues(t, 200, server.messages.Load())
	require.EqualValues(t, 20_002, largest.Load())
}

// What is certainly not stored is sent again; what may be, only with a dedupId.
func TestPublisherRetries(t *testing.T) {
	t.Parallel()
	cut := func(w http.ResponseWriter) bool {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = conn.Close()
		}
		return true
	}
	busy := api.NewProblem(eventstore.Busy, "busy")
	uncertain := api.NewProblem(eventstore.DatabaseUnavailable, "the connection was lost")
	uncertain.Uncertain = true
	for name, test := range map[string]struct {
		fail     func(w http.ResponseWriter) bool
		dedup    string
		requests int64 // 2: it was tried again
	}{
		"busy":                         {func(w http.ResponseWriter) bool { return refuse(w, busy) }, "", 2},
		"too many":                     {func(w http.ResponseWriter) bool { return refuse(w, &api.Problem{Status: 429}) }, "", 2},
		"nothing was stored":           {func(w http.ResponseWriter) bool { return refuse(w, api.NewProblem(eventstore.DatabaseUnavailable, "")) }, "", 2},
		"uncertain":                    {func(w http.ResponseWriter) bool { return refuse(w, uncertain) }, "", 1},
		"uncertain, with dedupId":      {func(w http.ResponseWriter) bool { return refuse(w, uncertain) }, "d", 2},
		"cut":                          {cut, "", 1},
		"cut, with dedupId":            {cut, "d", 2},
		"bad gateway":                  {func(w http.ResponseWriter) bool { http.Error(w, "", http.StatusBadGateway); return true }, "", 1},
		"bad gateway, with dedupId":    {func(w http.ResponseWriter) bool { http.Error(w, "", http.StatusBadGateway); return true }, "d", 2},
		"failure, even with dedupId":   {func(w http.ResponseWriter) bool { return refuse(w, api.NewProblem(eventstore.Internal, "")) }, "d", 1},
		"no channel, with a dedupId":   {func(w http.ResponseWriter) bool { return refuse(w, api.NewProblem(eventstore.ChannelNotFound, "")) }, "d", 1},
		"unavailable somewhere before": {func(w http.ResponseWriter) bool { http.Error(w, "", http.StatusServiceUnavailable); return true }, "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newPublishServer(t, func(w http.ResponseWriter, request int64, _ api.PublishRequest) bool {
				return request == 1 && test.fail(w)
			})
			p := publisher(t, server.URL, client.PublisherConfig{})
			_, err := p.Publish(t.Context(), api.Message{Payload: []byte("1"), DedupID: test.dedup})
			require.Equal(t, test.requests, server.requests.Load())
			if test.requests == 2 {
				require.NoError(t, err)
				return
			}
			_, unanswered := errors.AsType[*client.UnansweredError](err)
			require.Equal(t, !strings.HasPrefix(name, "no channel"), unanswered, "%v", err)
		})
	}
	t.Run("nobody answers", func(t *testing.T) {
		t.Parallel()
		p := publisher(t, "http://127.0.0.1:1", client.PublisherConfig{RetryFor: -1})
		_, err := p.Publish(t.Context(), message(1))
		require.Error(t, err)
		_, unanswered := errors.AsType[*client.UnansweredError](err)
		require.False(t, unanswered, "it never left")
	})
}

// A bad message is its own caller's affair.
func TestPublisherBadMessages(t *testing.T) {
	t.Parallel()
	c := setup(t)
	_, err := c.DeclareChannel(t.Context(), "q", api.ChannelSpec{})
	require.NoError(t, err)
	p := client.NewPublisher(c, "q", client.PublisherConfig{Flights: 1})
	bad := map[int]api.Message{
		3:  {Payload: []byte(`1`), Priority: 77},
		4:  {Payload: []byte(`{`)},
		5:  {Payload: []byte(`1`), Headers: []byte(`[]`)},
		6:  {Payload: []byte(`1`), RoutingKey: "\xff"},
		50: {Payload: []byte(`"` + strings.Repeat("x", 1<<20) + `"`)},
		99: {},
	}
	var group sync.WaitGroup
	for n := range 200 {
		group.Go(func() {
			m, isBad := bad[n]
			if !isBad {
				m = message(n)
			}
			_, err := p.Publish(t.Context(), m)
			if _, refused := errors.AsType[*api.Problem](err); refused != isBad {
				t.Errorf("message %d: %v", n, err)
			}
		})
	}
	group.Wait()
	require.NoError(t, p.Close(t.Context()))
	channel, err := c.Channel(t.Context(), "q")
	require.NoError(t, err)
	require.EqualValues(t, 200-len(bad), channel.Counts.Ready)
}

// A caller whose context ends knows whether its message may be stored.
func TestPublisherContext(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	server := newPublishServer(t, func(http.ResponseWriter, int64, api.PublishRequest) bool {
		<-release
		return false
	})
	p := publisher(t, server.URL, client.PublisherConfig{Flights: 1})
	ctx, cancel := context.WithCancel(t.Context())
	errs := make([]error, 2)
	var group sync.WaitGroup
	for i := range errs {
		group.Go(func() { _, errs[i] = p.Publish(ctx, message(i)) })
		require.Eventually(t, func() bool { return server.requests.Load() == 1 && client.Waiting(p) == i }, patience, time.Millisecond)
	}
	cancel()
	group.Wait()
	_, unanswered := errors.AsType[*client.UnansweredError](errs[0])
	require.True(t, unanswered, "%v", errs[0])
	_, unanswered = errors.AsType[*client.UnansweredError](errs[1])
	require.False(t, unanswered, "%v", errs[1])
	require.ErrorIs(t, errs[1], context.Canceled)

	// Closing does not wait for ever either.
	closing, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer stop()
	require.ErrorIs(t, p.Close(closing), context.DeadlineExceeded)
	close(release)
}

// Messages that stand or fall together are one request, and repeated like others.
func TestPublishAll(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	busy := api.NewProblem(eventstore.Busy, "later")
	var messages []api.Message
	server := newPublishServer(t, func(w http.ResponseWriter, request int64, body api.PublishRequest) bool {
		if len(body.Messages) != len(messages) {
			t.Errorf("%d messages", len(body.Messages))
		}
		return request <= 2 && refuse(w, busy)
	})
	p := publisher(t, server.URL, client.PublisherConfig{})
	messages = []api.Message{message(1), message(2), message(3)}
	published, err := p.PublishAll(ctx, messages)
	require.NoError(t, err)
	require.Len(t, published, 3)
	require.EqualValues(t, 3, server.requests.Load())
	_, err = p.PublishAll(ctx, []api.Message{message(1), {Payload: []byte("{")}})
	require.ErrorContains(t, err, "message 1: invalid_field")

	var lost atomic.Bool
	uncertain := api.NewProblem(eventstore.DatabaseUnavailable, "away")
	uncertain.Uncertain = true
	server = newPublishServer(t, func(w http.ResponseWriter, _ int64, _ api.PublishRequest) bool {
		return !lost.Swap(true) && refuse(w, uncertain)
	})
	p = publisher(t, server.URL, client.PublisherConfig{})
	_, err = p.PublishAll(ctx, messages)
	var unanswered *client.UnansweredError
	require.ErrorAs(t, err, &unanswered)
	lost.Store(false)
	for i := range messages {
		messages[i].DedupID = fmt.Sprint(i)
	}
	_, err = p.PublishAll(ctx, messages)
	require.NoError(t, err)

	require.NoError(t, p.Close(ctx))
	_, err = p.PublishAll(ctx, messages)
	require.ErrorIs(t, err, client.ErrClosed)
}
