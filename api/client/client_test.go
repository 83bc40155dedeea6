package client_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"leat/api"
	"leat/api/client"
	"leat/commands"
	"leat/eventstore"
	"leat/migrations/dbtest"
	"leat/projections"
	"leat/replication"
)

func TestMain(m *testing.M) {
	os.Exit(dbtest.Main(m, eventstore.SQL, projections.SQL, commands.SQL, replication.SQL))
}

func TestEverything(t *testing.T) {
	t.Parallel()
	c := setup(t)
	ctx := t.Context()

	one := 1
	channel, err := c.DeclareChannel(ctx, "q", api.ChannelSpec{Policy: api.PolicyPatch{MaxDeliveries: &one}})
	require.NoError(t, err)
	require.Equal(t, 1, channel.Policy.MaxDeliveries)
	lease := api.Duration(20 * time.Second)
	channel, err = c.AlterChannel(ctx, "q", api.ChannelPatch{Policy: api.PolicyPatch{Lease: &lease}})
	require.NoError(t, err)
	require.Equal(t, lease, channel.Policy.Lease)

	published, err := c.Publish(ctx, "q", api.PublishRequest{Messages: []api.Message{
		{Payload: []byte(`{"n":1}`), RoutingKey: "a"}, {PayloadBase64: []byte{0xff}, RoutingKey: "b"},
	}}, false)
	require.NoError(t, err)
	require.Len(t, published.Messages, 2)
	_, err = c.PublishLines(ctx, "q", []byte("{\"payload\":1}\n"), true)
	require.NoError(t, err)
	_, err = c.PublishRaw(ctx, "q", []byte("raw"), "text/plain", url.Values{"routingKey": {"c"}}, http.Header{"Ce-Id": {"1"}})
	require.NoError(t, err)

	page, err := c.Messages(ctx, "q", client.MessagesFilter{State: "ready", Limit: 3})
	require.NoError(t, err)
	require.Len(t, page.Messages, 3)
	key := "c"
	page, err = c.Messages(ctx, "q", client.MessagesFilter{RoutingKey: &key, NoPayload: true})
	require.NoError(t, err)
	require.Len(t, page.Messages, 1)
	require.Nil(t, page.Messages[0].Bytes())

	deliveries, err := c.Poll(ctx, "q", api.PollRequest{Wait: api.Duration(time.Second)})
	require.NoError(t, err)
	require.Len(t, deliveries, 4)
	settled, err := c.Ack(ctx, "q", deliveries[0].Receipt)
	require.NoError(t, err)
	require.Equal(t, 1, settled.Settled)
	settled, err = c.Nack(ctx, "q", api.NackRequest{Receipts: []string{deliveries[1].Receipt}, Reason: "no"})
	require.NoError(t, err)
	require.Equal(t, 1, settled.Settled)
	settled, err = c.Extend(ctx, "q", api.ExtendRequest{Receipts: []string{deliveries[2].Receipt}})
	require.NoError(t, err)
	require.NotNil(t, settled.LeaseUntil)
	settled, err = c.Release(ctx, "q", deliveries[2].Receipt, deliveries[3].Receipt)
	require.NoError(t, err)
	require.Equal(t, 2, settled.Settled)

	dead, err := c.DeadLetters(ctx, "q", client.DeadLettersFilter{MessagesFilter: client.MessagesFilter{Reason: "retries_exhausted"}})
	require.NoError(t, err)
	require.Len(t, dead.DeadLetters, 1)
	require.Equal(t, "no", dead.DeadLetters[0].Detail)
	read(t, c, deliveries[1].MessageID)

	steps := 0
	recovered, err := c.Recover(ctx, "q", api.RecoverRequest{All: true}, func(api.RecoverResult) { steps++ })
	require.NoError(t, err)
	require.EqualValues(t, 1, recovered.Recovered)
	require.Equal(t, 2, steps)
	gone, err := c.PurgeDeadLetters(ctx, "q", api.PurgeDeadLettersRequest{IDs: []eventstore.MessageID{deliveries[1].MessageID}}, nil)
	require.NoError(t, err)
	require.Equal(t, eventstore.MessageNotDead, gone.Failed[0].Code)

	purged, err := c.Purge(ctx, "q")
	require.NoError(t, err)
	require.EqualValues(t, 3, purged)
	channels, err := c.Channels(ctx)
	require.NoError(t, err)
	require.Zero(t, channels[0].Counts.Dead)
	channel, err = c.Channel(ctx, "q")
	require.NoError(t, err)
	require.Zero(t, channel.Counts.Ready)
	require.NoError(t, c.DeleteChannel(ctx, "q", true))
	operate(t, c)
}

// read asks for what the log knows.
func read(t *testing.T, c *client.Client, id eventstore.MessageID) {
	t.Helper()
	ctx := t.Context()
	message, err := c.Message(ctx, id)
	require.NoError(t, err)
	require.Equal(t, "dead", message.State)
	history, err := c.History(ctx, id)
	require.NoError(t, err)
	require.Len(t, history, 3)
	filter := client.EventsFilter{Channel: "q", Kinds: []eventstore.Kind{eventstore.MessagePublished}, Limit: 2}
	page, err := c.Events(ctx, filter)
	require.NoError(t, err)
	require.Len(t, page.Events, 2)
	require.Equal(t, "tester", page.Events[0].Actor)
	filter.Cursor, filter.Limit = page.NextCursor, 0
	filter.Since = time.Now().Add(-time.Hour)
	n := 0
	for event, err := range c.StreamEvents(ctx, filter) {
		require.NoError(t, err)
		require.Equal(t, "message.published", event.Kind)
		n++
	}
	require.Equal(t, 2, n)
	for _, err := range c.StreamEvents(ctx, client.EventsFilter{Channel: "nope"}) {
		p, ok := errors.AsType[*api.Problem](err)
		require.True(t, ok)
		require.Equal(t, eventstore.ChannelNotFound, p.Code)
	}
}

// operate calls what operators call.
func operate(t *testing.T, c *client.Client) {
	t.Helper()
	ctx := t.Context()
	status, err := c.Status(ctx)
	require.NoError(t, err)
	require.True(t, status.ViewsAlive)
	verified, err := c.Verify(ctx, true, 10)
	require.NoError(t, err)
	require.True(t, verified.Equal)
	_, err = c.Rebuild(ctx)
	require.NoError(t, err)
	require.NoError(t, c.Live(ctx))
	ready, err := c.Ready(ctx)
	require.NoError(t, err)
	require.Equal(t, "unavailable", ready.Status)
	document, err := c.OpenAPI(ctx)
	require.NoError(t, err)
	require.Contains(t, string(document), `"openapi":"3.1`)
}

func TestProblem(t *testing.T) {
	t.Parallel()
	c := setup(t)
	_, err := c.Publish(t.Context(), "a/b", api.PublishRequest{Messages: []api.Message{{Payload: []byte(`1`)}}}, false)
	p, ok := errors.AsType[*api.Problem](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, eventstore.ChannelNotFound, p.Code)
	require.Equal(t, "/v1/channels/a%2Fb/messages", p.Instance)
}

func TestExactBytes(t *testing.T) {
	t.Parallel()
	c := setup(t)
	_, err := c.DeclareChannel(t.Context(), "q", api.ChannelSpec{})
	require.NoError(t, err)
	payload := `{"a": "<&>\u2028", "n":1234567890123456789,"n":1e400}`
	_, err = c.Publish(t.Context(), "q", api.PublishRequest{Messages: []api.Message{{Payload: []byte(payload)}}}, false)
	require.NoError(t, err)
	deliveries, err := c.Poll(t.Context(), "q", api.PollRequest{Wait: api.Duration(time.Second)})
	require.NoError(t, err)
	require.Equal(t, payload, string(deliveries[0].Payload))
}

// Something between client and server may answer in its own way.
func TestNoProblem(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "bad gateway", http.StatusBadGateway)
	}))
	t.Cleanup(server.Close)
	_, err := connect(t, server.URL).Status(t.Context())
	p, ok := errors.AsType[*api.Problem](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, http.StatusBadGateway, p.Status)

	_, err = client.New("localhost:8080", client.Options{})
	require.Error(t, err)
	server.Close()
	_, err = connect(t, server.URL).Status(t.Context())
	require.Error(t, err)
}

// 64 callers at once dial 64 times, not at each call.
func TestConnectionsAreKept(t *testing.T) {
	t.Parallel()
	var dialled atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = w.Write([]byte(`{"deliveries":[]}`))
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			dialled.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	c := connect(t, server.URL)
	var group sync.WaitGroup
	for range 64 {
		group.Go(func() {
			for range 20 {
				_, err := c.Poll(t.Context(), "q", api.PollRequest{})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	// A call that finds no idle connection dials, and may be served by another
	// that became idle meanwhile: a few more than callers.
	require.LessOrEqual(t, dialled.Load(), int64(3*64))
}
