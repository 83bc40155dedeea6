package httpapi_test

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"leat/api"
)

func TestChannels(t *testing.T) {
	t.Parallel()
	s := setup(t)

	created := s.must(201, http.MethodPut, "/v1/channels/orders", `{"mode":"fifo","policy":{"lease":"10s","retry":{"jitter":0}}}`)
	channel := read[api.Channel](created)
	require.Equal(t, "fifo", channel.Mode)
	require.Equal(t, "10s", channel.Policy.Lease.String())
	require.Zero(t, channel.Policy.Retry.Jitter)
	require.Equal(t, 5, channel.Policy.MaxDeliveries)
	require.NotZero(t, channel.Epoch)

	again := s.must(200, http.MethodPut, "/v1/channels/orders", `{"mode":"fifo","policy":{"lease":"10s","retry":{"jitter":0}}}`)
	require.JSONEq(t, string(created.body), string(again.body))

	differing := s.must(409, http.MethodPut, "/v1/channels/orders", `{"mode":"fifo","policy":{"lease":"11s","retry":{"jitter":0}}}`)
	p := differing.problem()
	require.Equal(t, "channel_conflict", string(p.Code))
	require.Equal(t, "policy.lease", p.Errors[0].Field)
	require.Regexp(t, "^channel orders exists with lease ", p.Detail)

	altered := s.must(200, http.MethodPatch, "/v1/channels/orders", `{"policy":{"maxDeliveries":2,"nonRetryable":["Fatal"]}}`)
	require.Equal(t, []string{"Fatal"}, read[api.Channel](altered).Policy.NonRetryable)

	s.must(201, http.MethodPut, "/v1/channels/default", "")
	s.publish("default", `{"payload":1}`)
	list := read[api.ChannelList](s.must(200, http.MethodGet, "/v1/channels", ""))
	require.Len(t, list.Channels, 2)
	require.Equal(t, "default", list.Channels[0].Name)
	require.EqualValues(t, 1, list.Channels[0].Counts.Ready)
	one := read[api.Channel](s.must(200, http.MethodGet, "/v1/channels/default", ""))
	require.EqualValues(t, 1, one.Counts.Ready)
	require.NotZero(t, one.Counts.OldestReadyAge)

	require.Equal(t, "channel_not_empty", string(s.must(409, http.MethodDelete, "/v1/channels/default", "").problem().Code))
	s.must(204, http.MethodDelete, "/v1/channels/default?force=true", "")
	s.must(404, http.MethodGet, "/v1/channels/default", "").problem()
}

func TestPublishPollSettle(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.declare("q", `{"policy":{"maxDeliveries":3,"retry":{"strategy":"fixed","baseDelay":"1ms","jitter":0}}}`)

	r := s.must(201, http.MethodPost, "/v1/channels/q/messages", `{"messages":[
		{"routingKey":"a","payload":{"n":1},"headers":{"traceId":"x"},"priority":3,"ttl":"1h"},
		{"routingKey":"b","payload":2,"dedupId":"two"}]}`, header{"Leat-Client": "producer"})
	published := read[api.PublishResult](r)
	require.Len(t, published.Messages, 2)
	require.NotZero(t, published.Position)
	require.Equal(t, published.Messages[0].MessageID, published.Messages[0].OriginMessageID)

	again := read[api.PublishResult](s.must(201, http.MethodPost, "/v1/channels/q/messages",
		`{"messages":[{"routingKey":"b","payload":2,"dedupId":"two"}]}`))
	require.True(t, again.Messages[0].Duplicate)
	require.Equal(t, published.Messages[1].MessageID, again.Messages[0].MessageID)
	require.Equal(t, "dedup_conflict", string(s.must(409, http.MethodPost, "/v1/channels/q/messages",
		`{"messages":[{"routingKey":"b","payload":3,"dedupId":"two"}]}`).problem().Code))

	peeked := read[api.MessagePage](s.must(200, http.MethodGet, "/v1/queues/q/messages?state=ready", ""))
	require.Len(t, peeked.Messages, 2)
	require.JSONEq(t, `{"n":1}`, string(peeked.Messages[0].Payload))

	filtered := read[api.PollResult](s.must(200, http.MethodPost, "/v1/queues/q/poll",
		`{"routingKeys":["b"],"consumer":"worker-1","lease":"30s"}`)).Deliveries
	require.Len(t, filtered, 1)
	d := filtered[0]
	require.Equal(t, "b", d.RoutingKey)
	require.Equal(t, 1, d.Attempt)
	require.Equal(t, "q", d.Channel)

	extended := read[api.SettleResult](s.must(200, http.MethodPost, "/v1/queues/q/extend",
		`{"receipts":`+receipts(d)+`,"lease":"60s"}`))
	require.Equal(t, 1, extended.Settled)
	require.True(t, extended.LeaseUntil.After(d.LeaseUntil))

	require.Equal(t, 1, read[api.SettleResult](s.must(200, http.MethodPost, "/v1/queues/q/ack", `{"receipts":`+receipts(d)+`}`)).Settled)
	twice := read[api.SettleResult](s.must(200, http.MethodPost, "/v1/queues/q/ack", `{"receipts":`+receipts(d)+`}`))
	require.Equal(t, 1, twice.AlreadySettled)
	other := read[api.SettleResult](s.must(200, http.MethodPost, "/v1/queues/q/release", `{"receipts":`+receipts(d)+`}`))
	require.Equal(t, "already_settled", string(other.Failed[0].Code))

	d = s.poll("q", 1)[0]
	require.Equal(t, 1, read[api.SettleResult](s.must(200, http.MethodPost, "/v1/queues/q/release", `{"receipts":`+receipts(d)+`}`)).Settled)
	d = s.poll("q", 1)[0]
	require.Equal(t, 1, d.Attempt, "release does not count")
	s.must(200, http.MethodPost, "/v1/queues/q/nack", `{"receipts":`+receipts(d)+`,"reason":"later"}`)
	d = s.poll("q", 1)[0]
	require.Equal(t, 2, d.Attempt)
	s.must(200, http.MethodPost, "/v1/queues/q/nack",
		`{"receipts":`+receipts(d)+`,"action":"deadLetter","reason":"no such customer","errorClass":"NotFound"}`)

	dead := read[api.DeadLetterPage](s.must(200, http.MethodGet, "/v1/queues/q/dead-letters", "")).DeadLetters
	require.Len(t, dead, 1)
	require.Equal(t, "rejected", dead[0].Reason)
	require.Equal(t, "no such customer", dead[0].Detail)
	require.Equal(t, "NotFound", dead[0].ErrorClass)
	require.NotNil(t, dead[0].DiedAt)

	checkHistory(t, s, published.Messages[0].MessageID.String())
	checkEvents(t, s)
}

func checkHistory(t *testing.T, s site, id string) {
	t.Helper()
	history := read[api.History](s.must(200, http.MethodGet, "/v1/messages/"+id+"/history", ""))
	var kinds []string
	for _, e := range history.Events {
		kinds = append(kinds, strings.TrimPrefix(e.Kind, "message."))
	}
	require.Equal(t, []string{
		"published", "delivered", "released", "delivered", "retried", "delivered", "dead_lettered",
	}, kinds)
	require.Equal(t, "producer", history.Events[0].Actor)
	now := read[api.StoredMessage](s.must(200, http.MethodGet, "/v1/messages/"+id, ""))
	require.Equal(t, "dead", now.State)
	require.Equal(t, "no such customer", now.Detail)
	require.Equal(t, 2, now.Attempts)
	s.must(404, http.MethodGet, "/v1/messages/999999", "").problem()
}

func checkEvents(t *testing.T, s site) {
	t.Helper()
	all := read[api.EventPage](s.must(200, http.MethodGet, "/v1/events?limit=1000", "")).Events
	lines := s.must(200, http.MethodGet, "/v1/events", "", header{"Accept": "application/x-ndjson"})
	require.Equal(t, "application/x-ndjson", lines.header.Get("Content-Type"))
	decoder := json.NewDecoder(strings.NewReader(string(lines.body)))
	for i := range all {
		var e api.Event
		require.NoError(t, decoder.Decode(&e))
		require.Equal(t, all[i].Position, e.Position)
	}
	require.Len(t, strings.Split(strings.TrimSpace(string(lines.body)), "\n"), len(all))

	// Page by page it is the same.
	var positions []string
	path := "/v1/events?limit=2"
	for range len(all) {
		page := read[api.EventPage](s.must(200, http.MethodGet, path, ""))
		for _, e := range page.Events {
			positions = append(positions, e.Position.String())
		}
		if page.NextCursor == "" {
			break
		}
		path = "/v1/events?limit=2&cursor=" + page.NextCursor
	}
	require.Len(t, positions, len(all))

	filtered := read[api.EventPage](s.must(200, http.MethodGet,
		"/v1/events?kind=message.acked,message.retried&channel=q&from=1&since=2020-01-01T00:00:00Z&until=2100-01-01T00:00:00Z", "")).Events
	require.Len(t, filtered, 2)
	require.Empty(t, read[api.EventPage](s.must(200, http.MethodGet, "/v1/events?until=2020-01-01T00:00:00Z", "")).Events)
	require.Len(t, read[api.EventPage](s.must(200, http.MethodGet, "/v1/events?actor=producer", "")).Events, 2)
}

func TestPurgeVerifyRebuildStatus(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.declare("q", "")
	s.publish("q", `{"payload":1}`)
	s.publish("q", `{"payload":2,"delay":"1h"}`)
	require.True(t, read[api.VerifyResult](s.must(200, http.MethodPost, "/v1/projections/verify", "")).Equal)
	require.EqualValues(t, 2, read[api.RebuildResult](s.must(200, http.MethodPost, "/v1/projections/rebuild", "{}")).Messages)
	require.EqualValues(t, 2, read[api.PurgeResult](s.must(200, http.MethodPost, "/v1/queues/q/purge", "")).Purged)
	status := read[api.Status](s.must(200, http.MethodGet, "/v1/status", ""))
	require.True(t, status.ViewsAlive)
	require.NotEmpty(t, status.Database.ServerVersion)
	require.NotEmpty(t, status.Sessions)
	require.LessOrEqual(t, status.SettledPosition, status.LastPosition)
}

func TestPartial(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.declare("q", "")
	body := `{"messages":[{"payload":0,"priority":11},{"payload":1},{"payload":2,"prioritiy":1},{"payload":3,"dedupId":"x"},{"payload":4,"dedupId":"x"}]}`
	before := s.events()
	p := s.must(422, http.MethodPost, "/v1/channels/q/messages", `{"messages":[{"payload":0},{"payload":1,"priority":11}]}`).problem()
	require.Equal(t, 1, *p.Errors[0].Index)
	require.Equal(t, before, s.events(), "nothing is stored")

	result := read[api.PublishResult](s.must(201, http.MethodPost, "/v1/channels/q/messages?partial=true", body))
	require.Len(t, result.Messages, 5)
	require.Equal(t, "priority", result.Messages[0].Error.Field)
	require.NotZero(t, result.Messages[1].MessageID)
	require.Equal(t, "unknown_field", string(result.Messages[2].Error.Code))
	require.NotZero(t, result.Messages[3].MessageID)
	require.Equal(t, "dedup_conflict", string(result.Messages[4].Error.Code))
	for i, m := range result.Messages {
		if m.Error != nil {
			require.Equal(t, i, *m.Error.Index)
		}
	}
	require.Equal(t, before+2, s.events())

	// Nothing stored is no success.
	none := s.must(422, http.MethodPost, "/v1/channels/q/messages?partial=true", `{"messages":[{"payload":0,"priority":11}]}`)
	require.Equal(t, 0, *none.problem().Errors[0].Index)
}

func TestPublishLines(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.declare("q", "")
	ndjson := header{"Content-Type": "application/x-ndjson"}
	r := s.must(201, http.MethodPost, "/v1/channels/q/messages", "{\"payload\":1}\n\n{\"payload\":2}\r\n", ndjson)
	require.Len(t, read[api.PublishResult](r).Messages, 2)
	p := s.must(400, http.MethodPost, "/v1/channels/q/messages", "{\"payload\":1}\n{\"payload\":2\n", ndjson).problem()
	require.Equal(t, 1, *p.Errors[0].Index)
	require.Equal(t, "batch_empty", string(s.must(422, http.MethodPost, "/v1/channels/q/messages", "\n\n", ndjson).problem().Code))
	partial := s.must(201, http.MethodPost, "/v1/channels/q/messages?partial", "{\"payload\":1}\n{\"payload\":2\n", ndjson)
	require.Equal(t, "invalid_request", string(read[api.PublishResult](partial).Messages[1].Error.Code))
}

func TestPages(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.declare("q", `{"policy":{"maxDeliveries":1}}`)
	var messages []string
	for i := range 25 {
		messages = append(messages, `{"payload":`+strconv.Itoa(i)+`}`)
	}
	s.publish("q", strings.Join(messages, ","))
	require.Equal(t, 25, countPages[api.MessagePage](s, "/v1/queues/q/messages", func(p api.MessagePage) (int, string) {
		return len(p.Messages), p.NextCursor
	}))
	s.must(200, http.MethodPost, "/v1/queues/q/nack", `{"action":"deadLetter","receipts":`+receipts(s.poll("q", 25)...)+`}`)
	require.Equal(t, 25, countPages[api.DeadLetterPage](s, "/v1/queues/q/dead-letters", func(p api.DeadLetterPage) (int, string) {
		return len(p.DeadLetters), p.NextCursor
	}))
	bare := read[api.DeadLetterPage](s.must(200, http.MethodGet, "/v1/queues/q/dead-letters?payload=false&limit=1", ""))
	require.Nil(t, bare.DeadLetters[0].Payload)
	require.Nil(t, bare.DeadLetters[0].PayloadBase64)
}

func countPages[T any](s site, path string, look func(T) (int, string)) (total int) {
	s.t.Helper()
	query := "?limit=7"
	for {
		n, next := look(read[T](s.must(200, http.MethodGet, path+query, "")))
		total += n
		if next == "" {
			return total
		}
		require.Equal(s.t, 7, n)
		query = "?limit=7&cursor=" + next
	}
}
