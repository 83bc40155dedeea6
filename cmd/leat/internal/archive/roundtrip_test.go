package archive_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"leat/api"
	"leat/cmd/leat/internal/archive"
	"leat/eventstore"
)

// message is a message.published with a payload.
func message(payload []byte, contentType, headers string) api.Event {
	e := api.Event{Kind: string(eventstore.MessagePublished), Channel: "orders", Priority: new(0)}
	e.Content = api.NewContent(payload, contentType, json.RawMessage(headers))
	return e
}

// edges are events with every member, with none, and with values at the edges of both.
func edges() (events []api.Event) {
	for _, kind := range eventstore.Kinds() {
		events = append(events, api.Event{Kind: string(kind)})
	}
	late, early := time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC), time.Date(1, 1, 1, 0, 0, 0, 1000, time.UTC)
	events = append(events,
		api.Event{Kind: "of.a_later_version", At: early, DueAt: &early, ExpiresAt: &late},
		api.Event{Kind: "k", Channel: "Wähler/日本", Actor: "<ä> & \u2028 \" \\ \x7f", RoutingKey: new(""), Priority: new(9)},
		api.Event{Kind: "k", RoutingKey: new("é.👍"), Priority: new(-1), Offset: new(eventstore.Offset(0)), Delivery: math.MaxInt64},
		api.Event{Kind: "k", Offset: new(eventstore.Offset(math.MaxInt64)), Messages: []eventstore.MessageID{1}, Origins: []eventstore.MessageID{math.MaxInt64, 1}},
		api.Event{Kind: "k", Ranges: [][2]eventstore.MessageID{{1, 1}, {5, math.MaxInt64}}},
		api.Event{Kind: "k", Data: json.RawMessage(`null`), Content: api.Content{Headers: json.RawMessage(`{"of a copy": 1e400}`)}},
		api.Event{Kind: "k", Data: json.RawMessage(`{"b": [1.10, "\u00e4"], "a": {"b": 9007199254740993}}`)},
		message(nil, "", "{}"),
		message([]byte{}, "text/plain", `{"a":"b"}`),
		message([]byte(`null`), api.ContentJSON, "{}"),
		message([]byte(`{"a": 1.0,`+"\n"+` "b":"\u00e4"}`), api.ContentJSON, "{}"), // in base64, since it has a line feed
		message([]byte(` {"a":1} `), api.ContentJSON, "{}"),
		message([]byte(`{"a":`), api.ContentJSON, "{}"),
		message([]byte("\"\xff\""), api.ContentJSON, "{}"),
		message([]byte(`"ä< >&"`), "application/cloudevents+json; charset=utf-8", `{"ä": ["<>&"]}`),
		message([]byte{0, 0xff, '\n'}, "application/octet-stream", "{}"),
	)
	var many []eventstore.MessageID
	for i := range 10_000 {
		many = append(many, eventstore.MessageID(i*i+1))
	}
	return append(events, api.Event{Kind: "k", Messages: many, Origins: many}, api.Event{Kind: "k", Actor: "after many"})
}

// G8: what goes in comes out, byte for byte, of both formats.
func TestG8ArchiveGivesBackEveryByte(t *testing.T) {
	t.Parallel()
	want := logOf(edges()...)
	for _, format := range formats {
		dir := t.TempDir()
		m, err := write(t, want, dir, format)
		require.NoError(t, err)
		require.Equal(t, format, m.Files[0].Format)
		got, err := read(t, dir)
		require.NoError(t, err)
		equalLogs(t, want, got)
	}
}

// G8: so do payloads that are large, in more than one row group, and values of which
// there are too many for a dictionary.
func TestG8ArchiveOfManyAndOfLarge(t *testing.T) {
	t.Parallel()
	random := rand.NewChaCha8([32]byte{1})
	noise := make([]byte, 16<<20)
	_, _ = random.Read(noise) // never fails
	events := []api.Event{
		message(noise, "application/octet-stream", "{}"),
		message([]byte(`"`+strings.Repeat("ä", 6<<20)+`"`), api.ContentJSON, "{}"),
	}
	for i := range 30_000 {
		e := message([]byte("1"), api.ContentJSON, "{}")
		e.Channel, e.Actor = fmt.Sprintf("channel %d of very many, with a name that is not short", i), fmt.Sprint("actor ", i%1000)
		events = append(events, e)
	}
	want := logOf(events...)
	dir := t.TempDir()
	_, err := write(t, want, dir, archive.Parquet)
	require.NoError(t, err)
	got, err := read(t, dir)
	require.NoError(t, err)
	equalLogs(t, want, got)
}

// G8: whatever the events are.
func TestG8ArchiveOfAnything(t *testing.T) {
	t.Parallel()
	dirs := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		want := logOf(rapid.SliceOfN(anyEvent(), 1, 300).Draw(t, "events")...)
		format := rapid.SampledFrom(formats).Draw(t, "format")
		dir, err := os.MkdirTemp(dirs, "")
		require.NoError(t, err)
		_, err = write(t, want, dir, format)
		require.NoError(t, err)
		got, err := read(t, dir)
		require.NoError(t, err)
		equalLogs(t, want, got)
	})
}

func anyEvent() *rapid.Generator[api.Event] {
	text := rapid.OneOf(rapid.Just(""), rapid.SampledFrom([]string{"a", "b", "orders"}), rapid.String())
	ids := rapid.SliceOfN(rapid.Map(rapid.Int64Range(1, math.MaxInt64), func(id int64) eventstore.MessageID { return eventstore.MessageID(id) }), 0, 5)
	at := rapid.Map(rapid.Int64Range(-62_135_596_800_000_000, 253_402_300_799_999_999), func(micros int64) time.Time { return time.UnixMicro(micros).UTC() })
	document := rapid.Map(rapid.MapOf(rapid.String(), rapid.String()), func(m map[string]string) json.RawMessage {
		text, err := json.Marshal(m)
		if err != nil {
			panic(err) // a map of strings always has a JSON form
		}
		return text
	})
	payload := rapid.OneOf(rapid.SliceOf(rapid.Byte()), rapid.Map(document, func(d json.RawMessage) []byte { return d }))
	return rapid.Custom(func(t *rapid.T) api.Event {
		e := api.Event{
			At: at.Draw(t, "at"), Kind: string(rapid.SampledFrom(eventstore.Kinds()).Draw(t, "kind")),
			Channel: text.Draw(t, "channel"), Actor: text.Draw(t, "actor"), Messages: ids.Draw(t, "messages"), Origins: ids.Draw(t, "origins"),
			Delivery:   eventstore.Position(rapid.Int64Range(0, math.MaxInt64).Draw(t, "delivery")),
			DueAt:      rapid.Ptr(at, true).Draw(t, "due"),
			ExpiresAt:  rapid.Ptr(at, true).Draw(t, "expires"),
			RoutingKey: rapid.Ptr(text, true).Draw(t, "key"),
			Priority:   rapid.Ptr(rapid.IntRange(math.MinInt16, math.MaxInt16), true).Draw(t, "priority"),
		}
		for _, id := range ids.Draw(t, "ranges") {
			e.Ranges = append(e.Ranges, [2]eventstore.MessageID{id, id + 1})
		}
		if rapid.Bool().Draw(t, "in a stream") {
			e.Offset = new(eventstore.Offset(rapid.Int64Range(0, math.MaxInt64).Draw(t, "offset")))
		}
		if rapid.Bool().Draw(t, "with headers") {
			e.Headers = document.Draw(t, "headers")
		}
		if rapid.Bool().Draw(t, "with data") {
			e.Data = document.Draw(t, "data")
		}
		if rapid.Bool().Draw(t, "with a payload") {
			contentType := rapid.SampledFrom([]string{"", api.ContentJSON, "text/plain", "a/b+json", "no type"}).Draw(t, "type")
			e.Content = api.NewContent(payload.Draw(t, "payload"), contentType, e.Headers)
		}
		return e
	})
}

// What a table has no column for is not lost in silence.
func TestParquetOfWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		`{"position":1,"at":"2026-01-01T00:00:00Z","kind":"k","news":1}`,
		`{"position":1,"at":"2026-01-01T00:00:00.0000001Z","kind":"k"}`,
	} {
		dir := t.TempDir()
		_, err := write(t, log{[]byte(line + "\n")}, dir, archive.Parquet)
		require.ErrorContains(t, err, "position 1")
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, entries, 1, "the manifest")
	}
}

// An archive goes on in its format, and has both where that is asked for.
func TestFormatsOfAnArchive(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m, err := write(t, logOf(edges()...), dir, "")
	require.NoError(t, err)
	require.Equal(t, archive.NDJSON, m.Files[0].Format)

	// A manifest from before there was another.
	path := filepath.Join(dir, "manifest.json")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	old := bytes.Replace(text, []byte(`      "format": "ndjson",`+"\n"), nil, 1)
	require.NotEqual(t, text, old)
	require.NoError(t, os.WriteFile(path, old, 0o600))
	got, err := read(t, dir)
	require.NoError(t, err)
	equalLogs(t, logOf(edges()...), got)

	for wrong, says := range map[string]string{"parquet": "has a file", "csv": `parse format "csv"`} {
		text := bytes.Replace(text, []byte(`"format": "ndjson"`), fmt.Appendf(nil, `"format": %q`, wrong), 1)
		require.NoError(t, os.WriteFile(path, text, 0o600))
		_, err := read(t, dir)
		require.ErrorContains(t, err, says)
	}
}
