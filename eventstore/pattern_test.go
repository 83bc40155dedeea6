package eventstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"leat/eventstore"
)

func parsePattern(t require.TestingT, text string) eventstore.Pattern {
	p, err := eventstore.ParsePattern(text)
	require.NoError(t, err)
	require.Equal(t, text, p.String())
	return p
}

// The cases are those of the links (TestTopicsF19, in commands).
func TestPatternF19(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, key string
		want         bool
	}{
		{"#", "", true},
		{"#", "a.b", true},
		{"", "", true},
		{"", "a", false},
		{"", ".", false},
		{"*", "", false},
		{"*", "a", true},
		{"*", "a.b", false},
		{"a.#", "a", true},
		{"a.#", "a.b.c", true},
		{"a.#", "ab", false},
		{"a.#.b", "a.b", true},
		{"a.#.b", "ab", false},
		{"a.#.b", "a.x.y.b", true},
		{"a.#.b", "a.b.b", true},
		{"a.*", "a.b.c", false},
		{"a.*", "a.", true},
		{"a.*", "a", false},
		{"a.*.c", "a.b.x.c", false},
		{"a.*.c", "a.b.c", true},
		{"a.*.c.#", "a.b.c", true},
		{"#.#", "a", true},
		{"#.#", "", true},
		{"*.#.*", "a", false},
		{"*.#.*", "a.b", true},
		{"*.#.*", ".", true},
		{"a..b", "a..b", true},
		{"a..b", "a.b", false},
		{".", ".", true},
		{".", "", false},
		{"a.", "a.", true},
		{"a.", "a", false},
		{"a+.b", "a+.b", true},
		{"a+.b", "aa.b", false},
		{"a%._", "a%._", true},
		{"a%._", "ab.c", false},
		{`[a-z]\.(x|y)$`, `[a-z]\.(x|y)$`, true},
		{`[a-z]\.(x|y)$`, "a.x", false},
		{"a#.b*", "a#.b*", true},
		{"a#.b*", "ax.bx", false},
		{"*", "#", true},
		{"a", "*", false},
		{"a", "#", false},
		{"ключ.*", "ключ.🔑", true},
		{"\u00e9", "e\u0301", false}, // one character or two
		{"A.b", "a.b", false},
		{strings.Repeat("x", 255), strings.Repeat("x", 255), true},
		{strings.Repeat("*.", 127) + "*", strings.Repeat(".", 127), true},
	} {
		require.Equal(t, c.want, parsePattern(t, c.pattern).Match(c.key), "%q %q", c.pattern, c.key)
	}
	require.True(t, eventstore.Pattern{}.Match(""))
	require.True(t, eventstore.Pattern{}.Match("a.b"))
}

// naiveMatch is what the words of a pattern say, tried in every way.
func naiveMatch(pattern, key []string) bool {
	switch {
	case len(pattern) == 0:
		return len(key) == 0
	case pattern[0] == "#":
		return naiveMatch(pattern[1:], key) || (len(key) > 0 && naiveMatch(pattern, key[1:]))
	default:
		return len(key) > 0 && (pattern[0] == "*" || pattern[0] == key[0]) && naiveMatch(pattern[1:], key[1:])
	}
}

func TestPatternAsNaiveF19(t *testing.T) {
	t.Parallel()
	split := func(text string) []string {
		if text == "" {
			return nil
		}
		return strings.Split(text, ".")
	}
	rapid.Check(t, func(t *rapid.T) {
		pattern := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "", "*", "#", "#"}), 0, 7).Draw(t, "pattern"), ".")
		key := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "", "*", "#"}), 0, 8).Draw(t, "key"), ".")
		require.Equal(t, naiveMatch(split(pattern), split(key)), parsePattern(t, pattern).Match(key), "%q %q", pattern, key)
	})
}

// Many # and a long key end fast.
func TestPatternManyHashesF19(t *testing.T) {
	t.Parallel()
	few := parsePattern(t, "#.#.#.#.#.x")
	many := parsePattern(t, strings.Repeat("#.a.", 60)+"#")
	start := time.Now()
	for range 1000 {
		require.False(t, few.Match(strings.Repeat("b.", 59)+"b"))
		require.True(t, few.Match(strings.Repeat("a.", 59)+"x"))
		require.True(t, many.Match(strings.Repeat("a.", 127)+"a"))
		require.False(t, many.Match(strings.Repeat("a.", 58)+"a"))
	}
	require.Less(t, time.Since(start), 10*time.Second)
}

// Not parallel: it counts what is allocated meanwhile.
func TestPatternAllocates(t *testing.T) {
	p := parsePattern(t, "a.#.*.c")
	require.Zero(t, testing.AllocsPerRun(10, func() { p.Match("a.b.x.c") }))
}

func TestPatternBadInput(t *testing.T) {
	t.Parallel()
	for text, code := range map[string]eventstore.Code{
		strings.Repeat("x", 256): eventstore.KeyTooLong,
		"a\x00b":                 eventstore.InvalidField,
		"a\xff":                  eventstore.InvalidField,
	} {
		_, err := eventstore.ParsePattern(text)
		var refused *eventstore.Error
		require.ErrorAs(t, err, &refused, "%q", text)
		require.Equal(t, code, refused.Code)
	}
}
