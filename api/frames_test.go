package api_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"leat/api"
	"leat/eventstore"
)

// What is shared by all subscribers is what encoding/json makes of the wire
// type, with the bytes of the payload.
func TestMessagesFrameIsExact(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 2, 3, 4, 5, 6, 7000, time.FixedZone("", 3600))
	payloads := []string{`{"n":1234567890123456789, "m":1e400,"k":1,"k":2,"h":"<&>"}`, "", "\xff\x00", " 7", "{\n}"}
	var messages []*eventstore.StreamMessage
	for i, payload := range payloads {
		messages = append(messages, &eventstore.StreamMessage{
			Offset: eventstore.Offset(i), MessageID: 7, OriginMessageID: 5, RoutingKey: "k\"", Payload: []byte(payload),
			ContentType: api.ContentJSON, PublishedAt: at,
		})
	}
	messages[0].Headers = json.RawMessage(`{"a": "<b>"}`)
	data := api.AppendMessagesFrame(nil, messages, 9)
	require.Contains(t, string(data), payloads[0])
	require.Contains(t, string(data), `"headers":{"a": "<b>"}`)
	require.Contains(t, string(data), `"publishedAt":"2026-02-03T03:05:06.000007Z"`)

	var frame api.MessagesFrame
	require.NoError(t, json.Unmarshal(data, &frame))
	require.Equal(t, api.FrameMessages, frame.Type)
	require.Equal(t, eventstore.Offset(9), frame.Next)
	require.Len(t, frame.Messages, len(payloads))
	for i, m := range frame.Messages {
		require.Equal(t, eventstore.Offset(i), m.Offset)
		require.Equal(t, payloads[i], string(m.Bytes()))
	}
	require.JSONEq(t, `{}`, string(frame.Messages[1].Headers))
	require.Equal(t, string(data), string(frame.AppendJSON(nil)))
	require.JSONEq(t, `{"type":"messages","messages":[],"next":0}`, string(api.AppendMessagesFrame(nil, nil, 0)))
}

// A line of NDJSON, or of an event stream, has no line break inside.
func TestStreamLineIsOneLine(t *testing.T) {
	t.Parallel()
	for _, payload := range []string{"{\n}", "[1,\r2]", `{"a":"\n"}`, "a\nb"} {
		m := &eventstore.StreamMessage{Payload: []byte(payload), ContentType: api.ContentJSON}
		line := string(api.AppendStreamLine([]byte("data: "), m))
		require.NotContains(t, line, "\n")
		require.NotContains(t, line, "\r")
		var wire api.StreamMessage
		require.NoError(t, json.Unmarshal([]byte(strings.TrimPrefix(line, "data: ")), &wire))
		require.Equal(t, payload, string(wire.Bytes()))
	}
	m := &eventstore.StreamMessage{Payload: []byte(`{"a":1}`), ContentType: "text/plain"}
	require.Contains(t, string(api.AppendStreamLine(nil, m)), base64.StdEncoding.EncodeToString(m.Payload))
}

// Every close code has a meaning, and every problem has a close code.
func TestCloseCodes(t *testing.T) {
	t.Parallel()
	var known []api.CloseCode
	for _, c := range api.CloseCodes() {
		known = append(known, c.Code)
		require.NotEmpty(t, c.Meaning)
		require.Equal(t, c.Code < 4500, c.Code.Reconnect(), c.Code)
	}
	require.True(t, slices.IsSorted(known))
	require.Len(t, slices.Compact(slices.Clone(known)), len(known))
	for code := range api.Codes() {
		require.Contains(t, known, api.CloseCodeOf(code), code)
	}
	for code, want := range map[eventstore.Code]api.CloseCode{
		eventstore.ShuttingDown: 1001, eventstore.DatabaseUnavailable: 4000, api.NoPong: 4001, api.TooSlow: 4002,
		eventstore.InvalidField: 4500, eventstore.UnknownField: 4500, eventstore.PointConflict: 4500, eventstore.PointTaken: 4501,
		eventstore.ChannelNotFound: 4502, eventstore.EpochChanged: 4503, eventstore.OffsetGone: 4504, eventstore.OffsetAhead: 4505,
		eventstore.PointNotFound: 4506, eventstore.Internal: 4507, "never heard of": 4507,
	} {
		require.Equal(t, want, api.CloseCodeOf(code), code)
	}
	require.True(t, api.CloseCode(1006).Reconnect(), "the connection broke")
	require.False(t, api.CloseCode(1000).Reconnect())
}

// A problem says where a stream can be read on.
func TestProblemTellsResume(t *testing.T) {
	t.Parallel()
	e := eventstore.NewError(eventstore.OffsetGone, "Offset 3 is gone.")
	e.Resume = &eventstore.StreamPosition{Epoch: 4, Offset: 17}
	p, _ := api.ProblemOf(e)
	require.Equal(t, &api.StreamPosition{Epoch: 4, Offset: 17}, p.Resume)
}

// The README has the table of close codes.
func TestREADMEHasCloseCodes(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	for _, c := range api.CloseCodes() {
		require.Contains(t, string(readme), fmt.Sprintf("\n| %d | %s |\n", c.Code, c.Meaning))
	}
}

// A member of a group that has no partition yet is one all the same.
func TestSubscribedWithoutPartitions(t *testing.T) {
	t.Parallel()
	for _, partitions := range [][]int{nil, {}, {3}} {
		data, err := json.Marshal(api.SubscribedFrame{Type: api.FrameSubscribed, Partitions: partitions})
		require.NoError(t, err)
		var frame api.SubscribedFrame
		require.NoError(t, json.Unmarshal(data, &frame))
		require.Equal(t, partitions, frame.Partitions)
	}
}
