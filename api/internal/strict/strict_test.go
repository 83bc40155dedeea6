package strict_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"leat/api"
	"leat/api/internal/strict"
	"leat/eventstore"
)

type inner struct {
	Name string `json:"name"`
	List []int  `json:"list"`
}

type outer struct {
	Text   string            `json:"text"`
	Number int               `json:"number"`
	Float  float64           `json:"float"`
	Flag   *bool             `json:"flag"`
	Raw    json.RawMessage   `json:"raw"`
	Raws   []json.RawMessage `json:"raws"`
	Bytes  []byte            `json:"bytes"`
	Wait   api.Duration      `json:"wait"`
	At     *time.Time        `json:"at"`
	Inner  inner             `json:"inner"`
}

func TestDecode(t *testing.T) {
	t.Parallel()
	text := ` { "text" : "a\u00e9\n\ud83d\udd11" , "number":-7,"float":1.5e1,"flag":true,"raw": {"a":[1, "]}\""] } ,
		"raws":[1,{"x":null},[ ] ],"bytes":"AAE=","wait":"1m30s","at":"2030-01-02T03:04:05.6Z","inner":{"name":"n","list":[1,2]}} `
	var got outer
	require.NoError(t, strict.Decode([]byte(text), &got))
	yes := true
	at := time.Date(2030, 1, 2, 3, 4, 5, 600_000_000, time.UTC)
	require.Equal(t, outer{
		Text: "aé\n🔑", Number: -7, Float: 15, Flag: &yes, Raw: json.RawMessage(`{"a":[1, "]}\""] }`),
		Raws:  []json.RawMessage{json.RawMessage(`1`), json.RawMessage(`{"x":null}`), json.RawMessage(`[ ]`)},
		Bytes: []byte{0, 1}, Wait: api.Duration(90 * time.Second), At: &at, Inner: inner{"n", []int{1, 2}},
	}, got)

	var empty outer
	require.NoError(t, strict.Decode([]byte(`{"text":null,"flag":null,"at":null,"inner":null,"raw":null}`), &empty))
	require.Equal(t, outer{Raw: json.RawMessage(`null`)}, empty)
}

func TestRefuse(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		text  string
		code  eventstore.Code
		field string
	}{
		{``, eventstore.InvalidRequest, ""},
		{`{`, eventstore.InvalidRequest, ""},
		{`{}{}`, eventstore.InvalidRequest, ""},
		{"{\"text\":\"\xc3\"}", eventstore.InvalidRequest, ""},
		{strings.Repeat(`{"inner":`, 20_000), eventstore.InvalidRequest, ""},
		{`[]`, eventstore.InvalidField, ""},
		{`{"Text":""}`, eventstore.UnknownField, "Text"},
		{`{"inner":{"nam":""}}`, eventstore.UnknownField, "inner.nam"},
		{`{"text":"","text":""}`, eventstore.InvalidRequest, "text"},
		{`{"text":"","te\u0078t":""}`, eventstore.InvalidRequest, "text"},
		{`{"text":"\udd11"}`, eventstore.InvalidField, "text"},
		{`{"text":"\\ufffd\ud83d"}`, eventstore.InvalidField, "text"},
		{`{"number":1e2}`, eventstore.InvalidField, "number"},
		{`{"number":9223372036854775808}`, eventstore.InvalidField, "number"},
		{`{"number":true}`, eventstore.InvalidField, "number"},
		{`{"float":1e400}`, eventstore.InvalidField, "float"},
		{`{"float":"1"}`, eventstore.InvalidField, "float"},
		{`{"flag":"true"}`, eventstore.InvalidField, "flag"},
		{`{"bytes":"AA\nE="}`, eventstore.InvalidField, "bytes"},
		{`{"bytes":"AAF="}`, eventstore.InvalidField, "bytes"},
		{`{"bytes":[1]}`, eventstore.InvalidField, "bytes"},
		{`{"wait":"soon"}`, eventstore.InvalidField, "wait"},
		{`{"at":"2030-01-02"}`, eventstore.InvalidField, "at"},
		{`{"inner":[]}`, eventstore.InvalidField, "inner"},
		{`{"inner":{"list":{}}}`, eventstore.InvalidField, "inner.list"},
	} {
		err := strict.Decode([]byte(test.text), &outer{})
		e, ok := errors.AsType[*eventstore.Error](err)
		require.True(t, ok, "%.60s: %v", test.text, err)
		require.Equal(t, test.code, e.Code, "%.60s: %v", test.text, err)
		require.Equal(t, test.field, e.Field, "%.60s: %v", test.text, err)
	}
}

// A replacement character that somebody means is a character like others.
func TestReplacementCharacter(t *testing.T) {
	t.Parallel()
	var got outer
	require.NoError(t, strict.Decode([]byte("{\"text\":\"\uFFFD\\ufffd\\uFFFD\\\\ufffd\\n\"}"), &got))
	require.Equal(t, "\uFFFD\uFFFD\uFFFD\\ufffd\n", got.Text)
}

// What the strict decoder takes, encoding/json takes too, and sees the same.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"text":"a\"\\","number":1,"raw":{"a":[{}]},"raws":[1,[],"]"],"inner":{"list":[1]},"flag":null}`,
		`{"bytes":"AAE=","wait":"5s","at":"2030-01-02T03:04:05Z","float":-0.5e-3}`,
		`{"text":"\ud83d\udd11\ufffd"}`,
		` {"raw" : "x" } `,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var got, want outer
		if err := strict.Decode(data, &got); err != nil {
			if _, ok := errors.AsType[*eventstore.Error](err); !ok {
				t.Fatalf("not a refusal: %v", err)
			}
			return
		}
		if err := json.Unmarshal(data, &want); err != nil {
			t.Fatalf("encoding/json refuses %q: %v", data, err)
		}
		// encoding/json makes null a nil list and keeps a null raw value.
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%q: got %+v, want %+v", data, got, want)
		}
	})
}
