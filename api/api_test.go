package api_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"leat/api"
	"leat/eventstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fill gives every field of a wire type a value.
func fill(v reflect.Value) {
	switch v.Type() {
	case reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Date(2030, 1, 2, 3, 4, 5, 678_000_000, time.UTC)))
		return
	case reflect.TypeFor[json.RawMessage]():
		v.SetBytes([]byte(`{"a":1}`))
		return
	case reflect.TypeFor[[]byte]():
		v.SetBytes([]byte("bytes"))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for _, field := range v.Fields() {
			fill(field)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0))
		fill(v.Index(1))
	case reflect.String:
		v.SetString("text \"é\" <>")
	case reflect.Int, reflect.Int64, reflect.Int32:
		v.SetInt(7)
	case reflect.Bool:
		v.SetBool(true)
	}
}

func TestAppendJSONMatchesEncodingJSON(t *testing.T) {
	t.Parallel()
	for _, v := range []api.Appender{
		&api.Delivery{}, &api.PollResult{}, &api.StoredMessage{}, &api.MessagePage{}, &api.DeadLetterPage{},
		&api.Event{}, &api.EventPage{}, &api.History{}, &api.Lineage{}, &api.Message{}, &api.PublishRequest{},
	} {
		zero := reflect.ValueOf(v).Elem().Type()
		for _, filled := range []bool{false, true} {
			if filled {
				fill(reflect.ValueOf(v).Elem())
			}
			value := reflect.ValueOf(v).Elem().Interface()
			if m, ok := value.(api.Message); ok && filled {
				m.PayloadBase64 = nil // one of two
				value = m
			}
			if r, ok := value.(api.PublishRequest); ok {
				for i := range r.Messages {
					r.Messages[i].PayloadBase64 = nil
				}
			}
			want, err := json.Marshal(value)
			require.NoError(t, err)
			got, err := api.Marshal(value)
			require.NoError(t, err)
			// A nil list is [] on the wire, never null.
			require.JSONEq(t, strings.ReplaceAll(string(want), ":null", ":[]"), string(got), "%s", zero)
		}
	}
}

func TestMarshalEscapesNothingForHTML(t *testing.T) {
	t.Parallel()
	for _, v := range []any{api.Problem{Detail: "ä <a> & b"}, api.Event{Actor: "ä <a> & b"}} {
		text, err := api.Marshal(v)
		require.NoError(t, err)
		require.Contains(t, string(text), `"ä <a> & b"`)
	}
}

func TestContentIsExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		payload := rapid.OneOf(
			rapid.SliceOf(rapid.Byte()),
			rapid.Map(rapid.SampledFrom([]string{
				`{"a":1}`, ` 1`, "1\n", "{\n}", `"<&>"`, "\"\xff\"", `1e400`, `{"k":1,"k":2}`, ``, `{`, `null`,
			}), func(s string) []byte { return []byte(s) }),
		).Draw(t, "payload")
		contentType := rapid.SampledFrom([]string{"", "application/json", "application/x+json; a=b", "text/plain", ";"}).Draw(t, "type")
		content := api.NewContent(payload, contentType, nil)
		require.Equal(t, string(payload), string(content.Bytes()))

		// Through the wire, as an answer and as a line.
		event := api.Event{Content: content}
		for _, text := range [][]byte{event.AppendJSON(nil), event.AppendLine(nil)} {
			var back api.Event
			require.NoError(t, json.Unmarshal(text, &back))
			require.Equal(t, string(payload), string(back.Bytes()))
		}
		line := event.AppendLine(nil)
		require.Equal(t, 1, strings.Count(string(line), "\n"))
		require.NotContains(t, string(line), "\r")
	})
}

func TestEveryCodeHasAStatus(t *testing.T) {
	t.Parallel()
	for code, s := range api.Codes() {
		require.GreaterOrEqual(t, s.Status, 400, code)
		require.NotEmpty(t, s.Title, code)
		require.Equal(t, s.Status, api.NewProblem(code, "detail").Status)
	}
	require.Equal(t, 500, api.StatusOf(eventstore.Code("never heard of")).Status)
	for _, code := range eventstore.Codes() {
		require.Contains(t, api.Codes(), code)
	}
	require.Len(t, api.Codes(), len(eventstore.Codes())+3, "and what only HTTP needs")
}

func TestDuration(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(api.Duration(90 * time.Second))
	require.NoError(t, err)
	require.Equal(t, `"1m30s"`, string(text))
	var d api.Duration
	require.NoError(t, json.Unmarshal([]byte(`"250ms"`), &d))
	require.Equal(t, 250*time.Millisecond, time.Duration(d))
	require.Error(t, json.Unmarshal([]byte(`"5"`), &d))
}
