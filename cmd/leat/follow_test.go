package main

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"leat/api"
	"leat/migrations/dbtest"
)

// One message after the other goes the way that the README tells under "Follow
// one message".
func TestFollowOneMessage(t *testing.T) {
	t.Parallel()
	pool, database := dbtest.NewURL(t)
	broker := serveProcess(t, "--database-url", database, "--durable-views")

	// A queue is declared; the same again is fine, another mode is a conflict.
	declared := value[api.Channel](broker, "channel", "declare", "orders", "--mode", "fifo", "--lease", "1m")
	require.Equal(t, "fifo", declared.Mode)
	broker.leat("channel", "declare", "orders", "--mode", "fifo", "--lease", "1m")
	refused := broker.exits(exitFailed, "", "channel", "declare", "orders")
	require.Contains(t, refused.errs, "channel_conflict")

	// Messages enter it by command line and by HTTP.
	broker.leat("publish", "orders", `{"order": 4711}`, "--key", "customer-1", "--header", "traceId=a1")
	post(t, broker.url+"/v1/channels/orders/messages", `{"messages":[{"routingKey":"customer-1","payload":{"order":4712}}]}`)
	broker.leat("publish", "orders", `{"order": 4713}`, "--key", "customer-2")
	listed := value[api.ChannelList](broker, "channel", "list")
	require.EqualValues(t, 3, listed.Channels[0].Counts.Ready)
	require.Contains(t, broker.leat("peek", "orders"), "customer-2")

	// The first is taken under a lease, refused, and found among the dead letters.
	first := take(broker)
	require.JSONEq(t, `{"order": 4711}`, string(first.Payload))
	require.JSONEq(t, `{"traceId": "a1"}`, string(first.Headers))
	broker.leat("nack", "orders", first.Receipt, "--action", "deadLetter", "--reason", "no such customer")
	require.Contains(t, broker.leat("dlq", "list", "orders"), "rejected: no such customer")
	dead := value[api.DeadLetterPage](broker, "dlq", "list", "orders").DeadLetters
	require.Len(t, dead, 2, "the rest of its key follows")
	require.Equal(t, first.MessageID, dead[0].MessageID)
	require.Equal(t, "circuit_open", dead[1].Reason)

	// Its key goes on without it.
	require.Contains(t, broker.leat("circuit", "list"), "customer-1")
	require.Regexp(t, `open circuits +1\n`, broker.leat("channel", "get", "orders"))
	require.Regexp(t, `open circuits +1: leat circuit list`, broker.leat("status"))
	require.Regexp(t, `dead letters kept +for ever`, broker.leat("channel", "get", "orders"))
	broker.leat("circuit", "close", "orders", "customer-1")
	broker.leat("dlq", "recover", "orders", "--reason", "circuit_open")
	require.NotContains(t, broker.leat("circuit", "list"), "customer-1")

	// Another is settled. Its receipt is worth nothing afterwards.
	second := take(broker)
	require.Contains(t, broker.leat("ack", "orders", second.Receipt), "1 settled")
	require.Contains(t, broker.leat("ack", "orders", second.Receipt), "1 had been before")
	stale := broker.exits(exitRefused, "", "nack", "orders", second.Receipt)
	require.Contains(t, stale.out, "already_settled")

	// The log has all of it.
	require.Equal(t, []string{"published", "dead-lettered", "recovered", "delivered", "acked"}, whatHappened(broker, second.Receipt))
	require.Equal(t, []string{"published", "delivered", "dead-lettered", "opened"}, whatHappened(broker, first.MessageID.String()))
	require.Equal(t, "acked", value[api.StoredMessage](broker, "message", second.MessageID.String()).State)
	require.Equal(t, 12, strings.Count(broker.leat("replay", "--channel", "orders"), "\n"))
	require.Contains(t, broker.leat("replay", "--kind", "message.dead_lettered", "-o", "table"), "no such customer")

	// The views are what the log says, before and after they are made anew.
	status := value[api.Status](broker, "status")
	require.True(t, status.ViewsAlive)
	require.Equal(t, status.LastPosition, status.SettledPosition)
	require.Contains(t, broker.leat("status"), status.DatabaseURL)
	require.True(t, value[api.VerifyResult](broker, "verify").Equal)
	require.EqualValues(t, 2, value[api.RebuildResult](broker, "rebuild").Messages)
	onDatabase := command(t.Context(), "", "verify", "--database-url", database)
	require.Equal(t, exitOK, onDatabase.code, onDatabase.errs)
	var persistence string
	require.NoError(t, pool.QueryRow(t.Context(),
		`select string_agg(distinct relpersistence::text, '') from pg_class where relname in ('queue_runs', 'lanes', 'views_alive')`).Scan(&persistence))
	require.Equal(t, "p", persistence, "--durable-views")

	// A view that differs is found, by the broker and on the database.
	_, err := pool.Exec(t.Context(), `update leat.queue_runs set deliveries = 77 where state = 3`)
	require.NoError(t, err)
	require.Contains(t, broker.exits(exitDifferent, "", "verify").out, "77")
	onDatabase = command(t.Context(), "", "verify", "--database-url", database, "-o", "json")
	require.Equal(t, exitDifferent, onDatabase.code, onDatabase.errs)
	onDatabase = command(t.Context(), "", "rebuild", "--database-url", database)
	require.Contains(t, onDatabase.out, "2 messages rebuilt", onDatabase.errs)
	broker.leat("verify")
	require.Equal(t, exitOK, broker.stop(stopSignal))
}

// take polls for one message.
func take(p *process) api.Delivery {
	p.t.Helper()
	polled := value[api.PollResult](p, "poll", "orders", "--wait", "30s")
	require.Len(p.t, polled.Deliveries, 1)
	return polled.Deliveries[0]
}

// whatHappened is the column of `leat trace` that says so, a word each.
func whatHappened(p *process, id string) (words []string) {
	p.t.Helper()
	lines := bufio.NewScanner(strings.NewReader(p.leat("trace", id)))
	lines.Scan() // the head
	for lines.Scan() {
		require.Regexp(p.t, `tester|127\.0\.0\.1`, lines.Text())
		words = append(words, strings.Fields(lines.Text())[2])
	}
	return words
}

func post(t *testing.T, url, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	transport := &http.Transport{DisableKeepAlives: true}
	response, err := (&http.Client{Transport: transport}).Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Less(t, response.StatusCode, 300)
	var answered map[string]any
	require.NoError(t, json.NewDecoder(response.Body).Decode(&answered))
}
