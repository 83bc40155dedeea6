package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"leat/api"
	"leat/eventstore"
)

// bury makes dead letters of new messages under a key of q.
func (s site) bury(key string, n int) []eventstore.MessageID {
	s.t.Helper()
	var ids []eventstore.MessageID
	for range n {
		ids = append(ids, s.publish("q", `{"routingKey":"`+key+`","payload":1}`))
	}
	deliveries := s.poll("q", n)
	s.must(http.StatusOK, http.MethodPost, "/v1/queues/q/nack", `{"action":"deadLetter","receipts":`+receipts(deliveries...)+`}`)
	return ids
}

func (s site) recover(body string) api.RecoverResult {
	s.t.Helper()
	return read[api.RecoverResult](s.must(http.StatusOK, http.MethodPost, "/v1/queues/q/dead-letters/recover", body))
}

func TestRecoverDeadLetters(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.declare("q", `{}`)
	s.declare("other", `{}`)
	ids := s.bury("k", 6)

	res := s.recover(fmt.Sprintf(`{"ids":[%d,%d,999999]}`, ids[0], ids[0]))
	require.EqualValues(t, 1, res.Recovered)
	require.Equal(t, eventstore.MessageNotFound, res.Failed[0].Code)
	require.EqualValues(t, 999999, res.Failed[0].ID)
	require.NotZero(t, res.Position)
	require.Equal(t, eventstore.MessageNotDead, s.recover(fmt.Sprintf(`{"ids":[%d]}`, ids[0])).Failed[0].Code)

	require.Zero(t, s.recover(`{"filter":{"reason":"expired"}}`).Recovered)
	require.Zero(t, s.recover(`{"filter":{"diedBefore":"2020-01-01T00:00:00Z"}}`).Recovered)
	require.EqualValues(t, 1, s.recover(fmt.Sprintf(`{"filter":{"fromId":%d,"toId":%d}}`, ids[1], ids[1])).Recovered)
	require.EqualValues(t, 1, s.recover(fmt.Sprintf(`{"ids":[%d],"to":"other"}`, ids[2])).Recovered)

	// Step by step, when Accept asks for it.
	r := s.must(http.StatusOK, http.MethodPost, "/v1/queues/q/dead-letters/recover", `{"all":true,"ttl":"1h"}`,
		header{"Accept": "application/x-ndjson"})
	lines := strings.Split(strings.TrimSpace(string(r.body)), "\n")
	require.Len(t, lines, 2)
	require.Contains(t, lines[1], `"recovered":3`)
	require.Zero(t, s.recover(`{"all":true}`).Recovered)
	s.poll("q", 5)
	s.poll("other", 1)
}

func TestPurgeDeadLetters(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.declare("q", `{}`)
	ids := s.bury("k", 3)
	purge := func(body string) api.PurgeDeadLettersResult {
		return read[api.PurgeDeadLettersResult](s.must(http.StatusOK, http.MethodPost, "/v1/queues/q/dead-letters/purge", body))
	}
	require.EqualValues(t, 1, purge(fmt.Sprintf(`{"ids":[%d]}`, ids[1])).Purged)
	require.EqualValues(t, 2, purge(`{"filter":{"routingKey":"k"}}`).Purged)
	require.Zero(t, purge(`{"all":true}`).Purged)
}

func TestDeadLettersByTime(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.declare("q", `{}`)
	s.bury("k", 2)
	list := func(query string) int {
		return len(read[api.DeadLetterPage](s.must(http.StatusOK, http.MethodGet, "/v1/queues/q/dead-letters?"+query, "")).DeadLetters)
	}
	now := time.Now().UTC()
	past, future := now.Add(-time.Hour).Format(time.RFC3339), now.Add(time.Hour).Format(time.RFC3339)
	require.Equal(t, 2, list("diedAfter="+past+"&diedBefore="+future))
	require.Zero(t, list("diedAfter="+future))
	require.Zero(t, list("diedBefore="+past))
	require.Zero(t, list("reason=circuit_open"))
}

func TestRecoverRefusals(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.declare("q", `{}`)
	many := strings.Repeat("7,", 1000) + "7"
	for _, verb := range []string{"recover", "purge"} {
		for body, want := range map[string]struct {
			code  eventstore.Code
			field string
		}{
			`{}`:                            {eventstore.InvalidRequest, ""},
			`{"all":true,"ids":[1]}`:        {eventstore.InvalidRequest, ""},
			`{"all":false}`:                 {eventstore.InvalidRequest, ""},
			`{"ids":[]}`:                    {eventstore.BatchEmpty, ""},
			`{"ids":[` + many + `]}`:        {eventstore.BatchTooLarge, ""},
			`{"ids":["1"]}`:                 {eventstore.InvalidField, "ids"},
			`{"ids":[0]}`:                   {eventstore.InvalidField, "ids"},
			`{"ids":[1.5]}`:                 {eventstore.InvalidField, "ids"},
			`{"ids":[9223372036854775808]}`: {eventstore.InvalidField, "ids"},
			`{"filter":{}}`:                 {eventstore.InvalidField, "filter"},
			`{"filter":{"reason":"bad"}}`:   {eventstore.InvalidField, "filter.reason"},
			`{"filter":{"reason":""}}`:      {eventstore.InvalidField, "filter.reason"},
			`{"filter":{"diedAfter":"x"}}`:  {eventstore.InvalidField, "filter.diedAfter"},
			`{"filter":{"key":"k"}}`:        {eventstore.UnknownField, "filter.key"},
		} {
			p := s.call(http.MethodPost, "/v1/queues/q/dead-letters/"+verb, body).problem()
			require.Equal(t, want.code, p.Code, "%s %s", verb, body)
			if want.field != "" {
				require.Equal(t, want.field, p.Errors[0].Field, "%s %s", verb, body)
			}
		}
		require.Equal(t, eventstore.ChannelNotFound,
			s.call(http.MethodPost, "/v1/queues/no/dead-letters/"+verb, `{"all":true}`).problem().Code)
	}
	no := s.call(http.MethodPost, "/v1/queues/q/dead-letters/recover", `{"all":true,"to":"no"}`).problem()
	require.Equal(t, eventstore.ChannelNotFound, no.Code)
	require.Equal(t, "to", no.Errors[0].Field)
	require.Equal(t, "to", s.call(http.MethodPost, "/v1/queues/q/dead-letters/recover", `{"all":true,"to":""}`).problem().Errors[0].Field)
	require.Equal(t, "ttl", s.call(http.MethodPost, "/v1/queues/q/dead-letters/recover", `{"all":true,"ttl":"-1s"}`).problem().Errors[0].Field)
}
