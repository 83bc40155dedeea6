package strict_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"leat/api/internal/strict"
)

var documents = []string{
	``, ` `, `null`, `nul`, `nulll`, `true`, `tru`, `false`, `[]`, `[ ]`, `[,]`, `[1,]`, `[1 2]`, `[`, `]`, `{}`, `{ }`, `{,}`, `{"a"}`, `{"a":}`,
	`{"a":1,}`, `{"a":1 "b":2}`, `{"a" : [ { } , "x" , -0.5e+3 ] }`, `{1:2}`, `{"a":1}}`, ` 1 `, `0`, `-0`, `01`, `-`, `1.`, `.5`, `1.5`, `1e`,
	`1e+`, `1E-07`, `+1`, `0x1`, `1_0`, `"`, `""`, `"a`, `"\`, `"\"`, `"\""`, `"\x"`, `"\u12"`, `"\u12G4"`, `"\uAbCd"`, `"\u00@0"`, "\"\x00\"", "\"\x1f\"",
	"\"\x7f\"", "\"\xff\xfe\"", "\"longer than eight\nbytes\"", `"longer than eight \n bytes"`, `"1234567"`, `"12345678"`, "\"1234567\xe9\"", "\x00", "\v1",
	"\"\x80\x1f234567\"", "\"a\xc3\xa9b\xe2\x82\xac c\\\\\"", `"!!!!!!!!#######"`, `["\\","\"",{"\\\"":"]"}]`,
}

func TestValid(t *testing.T) {
	t.Parallel()
	for _, text := range documents {
		require.Equal(t, json.Valid([]byte(text)), strict.Valid([]byte(text)), "%q", text)
	}
	for _, depth := range []int{9_999, 10_000, 10_001} {
		for _, ends := range [][2]string{{"[", "]"}, {`{"a":`, "}"}} {
			text := []byte(strings.Repeat(ends[0], depth) + "1" + strings.Repeat(ends[1], depth))
			require.Equal(t, json.Valid(text), strict.Valid(text), "%d times %s", depth, ends[0])
		}
	}
	// Every byte at every place of a word, in a string and outside.
	for c := range 256 {
		for place := range 18 {
			text := []byte(`"abcdefghijklmnop"`)
			text[place] = byte(c)
			require.Equal(t, json.Valid(text), strict.Valid(text), "%q", text)
		}
	}
}

// Valid says what encoding/json says.
func FuzzValid(f *testing.F) {
	for _, text := range documents {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if got, want := strict.Valid(data), json.Valid(data); got != want {
			t.Fatalf("%q: %v, and encoding/json says %v", data, got, want)
		}
	})
}

func BenchmarkValid(b *testing.B) {
	text := []byte(`{"order":4711,"pad":"` + strings.Repeat("x", 150) + `"}`)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if !strict.Valid(text) {
			b.Fatal("it is not valid")
		}
	}
}
