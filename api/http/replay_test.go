package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"leat/api"
)

// eventLines follows an answer without an end.
type eventLines struct {
	t    testing.TB
	text *bufio.Scanner
	stop func()
}

func (s site) follow(query string, headers ...header) eventLines {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/v1/events?"+query, http.NoBody)
	require.NoError(s.t, err)
	request.Header.Set("Accept", "application/x-ndjson")
	for _, h := range headers {
		for name, value := range h {
			request.Header.Set(name, value)
		}
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(s.t, err)
	require.Equal(s.t, http.StatusOK, response.StatusCode)
	stop := func() {
		cancel()
		_ = response.Body.Close()
	}
	s.t.Cleanup(stop)
	return eventLines{s.t, bufio.NewScanner(response.Body), stop}
}

// next is the next line that is no sign of life.
func (l eventLines) next() string {
	l.t.Helper()
	for l.text.Scan() {
		if text := l.text.Text(); text != "" {
			return text
		}
	}
	l.t.Fatalf("the answer ended: %v", l.text.Err())
	return ""
}

func (l eventLines) event() (e api.Event) {
	l.t.Helper()
	require.NoError(l.t, json.Unmarshal([]byte(l.next()), &e))
	return e
}

// Who follows the log gets what was there and what comes, each once and in order, and
// nothing above an append that is open (F26).
func TestF26FollowEvents(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.declare("q", "")
	s.publish("q", `{"payload":0}`)
	all := s.follow("follow=true")
	require.Equal(t, "channel.declared", all.event().Kind)
	last := all.event().Position

	tx, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	var late int64
	require.NoError(t, tx.QueryRow(t.Context(), `select leat.publish('q', '1')`).Scan(&late))
	s.publish("q", `{"payload":2}`)
	require.NoError(t, tx.Commit(t.Context()))
	require.EqualValues(t, late, all.event().Position)
	e := all.event()
	require.Greater(t, e.Position, last)
	require.JSONEq(t, "2", string(e.Payload))

	// The browser's way, which goes on by itself.
	events := s.follow("channel=q", header{"Accept": "text/event-stream", "Last-Event-ID": strconv.FormatInt(late, 10)})
	require.Equal(t, "id: "+e.Position.String(), events.next())
	require.Equal(t, "event: message", events.next())
	require.Contains(t, events.next(), `data: {"position":`+e.Position.String())
	s.publish("q", `{"payload":3}`)
	require.Contains(t, events.next(), "id: ")

	// One that is to end does.
	to := s.follow(fmt.Sprintf("follow=true&from=%d&to=%d", e.Position, e.Position+2))
	to.event()
	to.event()
	s.publish("q", `{"payload":4}`)
	require.JSONEq(t, "4", string(to.event().Payload))
	require.False(t, to.text.Scan())
	two := s.follow("follow=true&limit=2")
	two.event()
	two.event()
	require.False(t, two.text.Scan())
}

// A stop of the broker tells those who follow, and does not wait for them.
func TestFollowEndsWithTheBroker(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.declare("q", "")
	l := s.follow("follow=true")
	l.event()
	s.stop()
	require.Contains(t, l.next(), `{"error":{"type":"urn:leat:problem:shutting_down"`)
	require.False(t, l.text.Scan())
}

// What cannot go on after its beginning says so in its last line: no answer that broke
// off looks like a complete one.
func TestReplayBreaksOff(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.declare("q", "")
	lines := s.follow("follow=true")
	require.Equal(t, "channel.declared", lines.event().Kind)
	tx, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	for _, sql := range []string{`select leat.publish('q', '1')`, `alter table leat.events rename column actor to lost`} {
		_, err := tx.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	require.NoError(t, tx.Commit(t.Context()))
	require.Contains(t, lines.next(), `{"error":{"type":"urn:leat:problem:internal"`)
	require.False(t, lines.text.Scan())
	require.NoError(t, lines.text.Err())
}

// A HEAD tells of the answer, without its lines.
func TestHeadOfReplay(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.declare("q", "")
	require.Empty(t, s.must(http.StatusOK, http.MethodHead, "/v1/events", "", header{"Accept": "application/x-ndjson"}).body)
	s.must(http.StatusConflict, http.MethodHead, "/v1/events?from=99999999", "", header{"Accept": "application/x-ndjson"})
}

func TestEventsBackwards(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.declare("q", "")
	s.publish("q", `{"payload":0},{"payload":1},{"payload":2}`)
	var seen []string
	cursor := ""
	for {
		page := read[api.EventPage](s.must(200, "GET", "/v1/events?order=desc&limit=2&cursor="+cursor, ""))
		for _, e := range page.Events {
			seen = append(seen, string(e.Payload))
		}
		if cursor = page.NextCursor; cursor == "" {
			break
		}
	}
	require.Equal(t, []string{"2", "1", "0", ""}, seen)
	body := string(s.must(200, "GET", "/v1/events?order=desc", "", header{"Accept": "application/x-ndjson"}).body)
	require.Equal(t, 4, strings.Count(body, "\n"))
	require.Greater(t, strings.Index(body, "channel.declared"), strings.Index(body, `"payload":0`))
}
