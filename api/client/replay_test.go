package client_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"leat/api"
	"leat/api/client"
	"leat/eventstore"
)

// Whatever pieces an answer comes in, whole lines are written, without signs of life;
// following, what broke off goes on behind the last of them.
func TestCopyEvents(t *testing.T) {
	t.Parallel()
	line := func(n string) string {
		return `{"position":` + n + `,"pad":"` + strings.Repeat("x", 300<<10) + `"}` + "\n"
	}
	var queries []string
	answers := []func(w http.ResponseWriter){
		func(w http.ResponseWriter) {
			_, _ = w.Write([]byte("\n" + line("1") + "\n\n" + line("5") + line("9")[:1000]))
			panic(http.ErrAbortHandler)
		},
		func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) },
		func(w http.ResponseWriter) {
			_, _ = w.Write([]byte(line("9") + `{"error":{"status":503,"code":"shutting_down","detail":"stops"}}` + "\n"))
		},
		func(w http.ResponseWriter) { _, _ = w.Write([]byte(line("10"))) },
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		queries = append(queries, r.URL.RawQuery)
		answers[len(queries)-1](w)
	}))
	t.Cleanup(server.Close)
	c, err := client.New(server.URL, client.Options{})
	require.NoError(t, err)
	t.Cleanup(c.Close)

	var text strings.Builder
	lost := 0
	last, err := c.CopyEvents(t.Context(), &text, client.EventsFilter{Follow: true, Cursor: "x", Limit: 7}, client.ReplayConfig{
		OnLost: func(error, time.Duration) { lost++ },
	})
	require.NoError(t, err)
	require.EqualValues(t, 10, last)
	require.Equal(t, line("1")+line("5")+line("9")+line("10"), text.String())
	require.Equal(t, 3, lost)
	require.Equal(t, []string{
		"cursor=x&follow=true&limit=7", "follow=true&from=6&limit=5", "follow=true&from=6&limit=5", "follow=true&from=10&limit=4",
	}, queries)
}

// Without following, what breaks off is an error that tells how far it came.
func TestCopyEventsBreaksOff(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"position":3,"at":""}` + "\n" + `{"position":4,`))
	}))
	t.Cleanup(server.Close)
	c, err := client.New(server.URL, client.Options{})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	var text strings.Builder
	last, err := c.CopyEvents(t.Context(), &text, client.EventsFilter{}, client.ReplayConfig{})
	require.ErrorContains(t, err, "unexpected EOF")
	require.EqualValues(t, 3, last)
	require.True(t, strings.HasSuffix(text.String(), "}\n") && strings.Count(text.String(), "\n") == 1)
}

// With a broker: what is there, and then what comes, until the context ends.
func TestCopyEventsFollows(t *testing.T) {
	t.Parallel()
	c := setup(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := c.DeclareChannel(ctx, "a", api.ChannelSpec{})
	require.NoError(t, err)
	seen := make(chan eventstore.Position)
	done := make(chan error, 1)
	go func() {
		for e, err := range c.StreamEvents(ctx, client.EventsFilter{Follow: true}) {
			if err != nil {
				done <- err
				return
			}
			seen <- e.Position
		}
	}()
	first := <-seen
	_, err = c.DeclareChannel(ctx, "b", api.ChannelSpec{})
	require.NoError(t, err)
	require.Greater(t, <-seen, first)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}
