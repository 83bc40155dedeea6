package client_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"leat/api"
	"leat/api/client"
	"leat/eventstore"
)

// What the server writes is read by hand, and as encoding/json would read it.
func TestDecodeMessages(t *testing.T) {
	t.Parallel()
	var messages []*eventstore.StreamMessage
	for i, payload := range []string{
		`1`, `-1.5e7`, `"text"`, `"a \"quoted\\\" one\\"`, `{}`, `[]`, `{"a":[1,{"b":"]}\\"}],"c":null}`, `true`, "not JSON", "", `{"ü":"\u00e9"}`, ` 1 `,
		"\x00\xff binary", strings.Repeat("\xfe", 1000),
	} {
		messages = append(messages, &eventstore.StreamMessage{
			Offset: eventstore.Offset(i), MessageID: 7, OriginMessageID: 5, RoutingKey: []string{"", "eu.fr", `a"b`, "ü"}[i%4],
			Payload: []byte(payload), ContentType: []string{api.ContentJSON, "text/plain"}[i/9%2],
			Headers: []byte([]string{``, `{"a":"b, c"}`}[i%2]), PublishedAt: time.Now(),
		})
	}
	for n, m := range messages {
		one := api.AppendMessagesFrame(nil, messages[n:n+1], 20)
		requireSame(t, one)
		require.Equal(t, m.RoutingKey != `a"b`, client.ReadsByHand(one), "%s", one)
	}
	for n := range len(messages) + 1 {
		requireSame(t, api.AppendMessagesFrame(nil, messages[:n], eventstore.Offset(n)))
	}
	frame := string(api.AppendMessagesFrame(nil, messages, 20))
	for n := range len(frame) {
		requireSame(t, []byte(frame[:n]))
	}
	requireSame(t, []byte(strings.ReplaceAll(frame, `,"`, `, "`)))
	requireSame(t, []byte(strings.ReplaceAll(frame, `AP8g`, `A*8g`)))
	requireSame(t, []byte(strings.ReplaceAll(frame, `AP8g`, `AP8\u0067`)))
	requireSame(t, []byte(`{"next":3,"later":true,"type":"messages","messages":[]}`))
}

func requireSame(t *testing.T, data []byte) {
	t.Helper()
	var want api.MessagesFrame
	wantErr := json.Unmarshal(data, &want)
	got, err := client.DecodeMessages(data)
	require.Equal(t, wantErr == nil, err == nil, "%s: %v", data, err)
	if err == nil {
		require.Len(t, got.Messages, len(want.Messages))
		got.Messages, want.Messages = append([]api.StreamMessage{}, got.Messages...), append([]api.StreamMessage{}, want.Messages...)
		require.Equal(t, want, got, "%s", data)
	}
}

func FuzzDecodeMessages(f *testing.F) {
	f.Add([]byte(`{"type":"messages","messages":[{"offset":1,"messageId":2,"originMessageId":2,"routingKey":"k","payload":{"a":1},"contentType":"a/b","headers":{},"publishedAt":"2026-01-02T03:04:05Z"}],"next":2}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if json.Valid(data) {
			var want api.MessagesFrame
			if json.Unmarshal(data, &want) == nil {
				requireSame(t, data)
			}
			return
		}
		_, _ = client.DecodeMessages(data) // only that it ends
	})
}

func BenchmarkDecodeMessages(b *testing.B) {
	var messages []*eventstore.StreamMessage
	for i := range 100 {
		messages = append(messages, &eventstore.StreamMessage{
			Offset: eventstore.Offset(i), MessageID: 7, OriginMessageID: 7, RoutingKey: "key-0", Payload: []byte(`"` + strings.Repeat("x", 254) + `"`),
			ContentType: api.ContentJSON, PublishedAt: time.Now(),
		})
	}
	data := api.AppendMessagesFrame(nil, messages, 100)
	b.Run("hand", func(b *testing.B) {
		for b.Loop() {
			if _, err := client.DecodeMessages(data); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("json", func(b *testing.B) {
		for b.Loop() {
			var frame api.MessagesFrame
			if err := json.Unmarshal(data, &frame); err != nil {
				b.Fatal(err)
			}
		}
	})
}
