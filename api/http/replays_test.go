package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"leat/api"
	"leat/eventstore"
)

func (s site) republish(body string) api.Replay {
	s.t.Helper()
	return read[api.Replay](s.must(http.StatusOK, http.MethodPost, "/v1/replays", body))
}

// A range is published again in steps that a client may follow, counted without, and
// listed.
func TestRepublish(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.declare("q", `{}`)
	s.declare("to", `{}`)
	var ids []eventstore.MessageID
	for i := range 4 {
		ids = append(ids, s.publish("q", fmt.Sprintf(`{"routingKey":"k.%d","payload":%d}`, i%2, i)))
	}
	dry := s.republish(`{"source":"q","target":"to","key":"*.0","dryRun":true}`)
	require.EqualValues(t, 2, dry.Messages)
	require.Zero(t, dry.ID)
	require.Empty(t, read[api.ReplayPage](s.must(http.StatusOK, http.MethodGet, "/v1/replays", "")).Replays)

	r := s.must(http.StatusOK, http.MethodPost, "/v1/replays", fmt.Sprintf(`{"source":"q","target":"to","from":%d,"to":%d}`, ids[1], ids[2]),
		header{"Accept": "application/x-ndjson"})
	lines := strings.Split(strings.TrimSpace(string(r.body)), "\n")
	require.Len(t, lines, 3)
	require.Contains(t, lines[0], `"messages":0`)
	require.Contains(t, lines[0], `"id":`)
	require.Contains(t, lines[2], `"messages":2`)
	got := s.poll("to", 2)
	require.Equal(t, ids[1], got[0].OriginMessageID)
	require.Equal(t, ids[2], got[1].OriginMessageID)

	second := s.republish(`{"source":"q","target":"to"}`)
	page := read[api.ReplayPage](s.must(http.StatusOK, http.MethodGet, "/v1/replays?limit=1", ""))
	require.Equal(t, []api.Replay{second}, page.Replays)
	page = read[api.ReplayPage](s.must(http.StatusOK, http.MethodGet, "/v1/replays?cursor="+page.NextCursor, ""))
	require.Len(t, page.Replays, 1)
	require.EqualValues(t, 2, page.Replays[0].Messages)
	require.Empty(t, page.NextCursor)
	require.Equal(t, second, read[api.Replay](s.must(http.StatusOK, http.MethodPost, fmt.Sprintf("/v1/replays/%d/resume", second.ID), "")))

	for body, field := range map[string]string{
		`{"source":"q","target":"none"}`:                                        "target",
		`{"source":"q"}`:                                                        "target",
		`{"source":"q","target":"to","rate":-1}`:                                "rate",
		`{"source":"q","target":"to","fromOffset":1}`:                           "fromOffset",
		`{"source":"q","target":"to","from":99999999}`:                          "from",
		`{"source":"q","target":"to","key":"` + strings.Repeat("x", 256) + `"}`: "key",
	} {
		require.Equal(t, field, s.call(http.MethodPost, "/v1/replays", body).problem().Errors[0].Field, body)
	}
}
