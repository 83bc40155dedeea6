package commands_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"leat/commands"
	"leat/migrations/dbtest"
)

var goodHeaders = []string{
	``,
	`{}`,
	" {\t}\n",
	`{"a":1,"b":-0.5e3,"c":"x","d":true,"e":null}`,
	`{"traceId":"1","TRACEID":"2","x-é":"3","":""}`,
	`{"quote\"}":"a,\"b\\"}`,
	`{"emoji":"\ud83d\ude00","raw":"😀"}`,
	`{"n":1234567890123456789,"z":-0,"s":1e300,"t":1e-300}`,
}

var badHeaders = map[string]string{
	"not JSON":         `{`,
	"trailing text":    `{} x`,
	"array":            `[]`,
	"string":           `"x"`,
	"nested object":    `{"a":{}}`,
	"nested array":     `{"a":[1]}`,
	"NUL":              `{"a":"\u0000"}`,
	"NUL in a name":    `{"\u0000":1}`,
	"raw NUL":          "{\"a\":\"\x00\"}",
	"lone surrogate":   `{"a":"\ud800"}`,
	"lone low":         `{"a":"\udc00"}`,
	"two highs":        `{"a":"\ud800\ud800"}`,
	"invalid UTF-8":    "{\"a\":\"\xff\"}",
	"huge number":      `{"a":1e400}`,
	"huge exponent":    `{"a":0e999999999}`,
	"tiny number":      `{"a":1e-400}`,
	"long number":      `{"a":1.` + strings.Repeat("0", 1000) + `}`,
	"the same twice":   `{"a":1,"a":2}`,
	"twice by escapes": `{"a":1,"\u0061":2}`,
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	for _, raw := range goodHeaders {
		require.NoError(t, commands.CheckHeaders(json.RawMessage(raw)), raw)
	}
	for name, raw := range badHeaders {
		require.Error(t, commands.CheckHeaders(json.RawMessage(raw)), name)
	}
}

// FuzzHeaders compares with the one who has to store them.
func FuzzHeaders(f *testing.F) {
	for _, raw := range goodHeaders {
		f.Add(raw)
	}
	for _, raw := range badHeaders {
		f.Add(raw)
	}
	pool := dbtest.New(f)
	f.Fuzz(func(t *testing.T, raw string) {
		if raw == "" || commands.CheckHeaders(json.RawMessage(raw)) != nil {
			return
		}
		var back string
		require.NoError(t, pool.QueryRow(t.Context(), `select $1::text::jsonb::text`, raw).Scan(&back))
		var want, got map[string]any
		require.NoError(t, json.Unmarshal([]byte(raw), &want))
		require.NoError(t, json.Unmarshal([]byte(back), &got))
		require.Equal(t, want, got)
	})
}
