package commands_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"leat/commands"
)

// exchange makes an exchange.
func (b broker) exchange(name, kind string) commands.Channel {
	b.t.Helper()
	c, created, err := b.DeclareChannel(ctx, "test", commands.ChannelSpec{Name: name, Kind: commands.Exchange, Type: kind})
	require.NoError(b.t, err)
	require.True(b.t, created)
	return c
}

// link makes a link.
func (b broker) link(source, target string, match commands.Match) commands.Link {
	b.t.Helper()
	l, created, err := b.DeclareLink(ctx, "test", commands.LinkSpec{Source: source, Target: target, Match: match})
	require.NoError(b.t, err)
	require.True(b.t, created)
	return l
}

func topic(pattern string) commands.Match {
	return commands.Match{Type: commands.MatchTopic, Pattern: &pattern}
}

// letter is a message on its way to leat.routes_of.
type letter struct{ channel, key, headers string }

// copied is a queue that gets a copy, and under which key.
type copied struct{ target, key string }

// routes asks where letters go, in the settings of those who publish.
func (b broker) routes(letters ...letter) [][]copied {
	b.t.Helper()
	got := make([][]copied, len(letters))
	require.NoError(b.t, pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `set local enable_seqscan = off; set local enable_bitmapscan = off; set local jit = off;
			set local plan_cache_mode = force_generic_plan; set local search_path = ''`)
		require.NoError(b.t, err)
		var channels, keys []string
		var headers []*string
		for i, l := range letters {
			channels, keys, headers = append(channels, l.channel), append(keys, l.key), append(headers, nil)
			if l.headers != "" {
				headers[i] = &letters[i].headers
			}
		}
		rows, err := tx.Query(ctx, `
			select r.n, c.name, r.routing_key
			from leat.routes_of(
				array(select c.id from unnest($1::text[]) with ordinality u (name, n) join leat.channels c on c.name = u.name order by u.n),
				$2, $3::text[]::jsonb[]) r
			join leat.channels c on c.id = r.target_id
			order by r.n, c.name`, channels, keys, headers)
		require.NoError(b.t, err)
		var n int
		var c copied
		_, err = pgx.ForEachRow(rows, []any{&n, &c.target, &c.key}, func() error {
			got[n-1] = append(got[n-1], c)
			return nil
		})
		return err
	}))
	return got
}

// reaches says whether a letter gets from one channel to another.
func (b broker) reaches(channel, key, target string) bool {
	b.t.Helper()
	return slices.ContainsFunc(b.routes(letter{channel, key, ""})[0], func(c copied) bool { return c.target == target })
}

// matches is the naive matcher: what the words of a pattern say, tried in every way.
func matches(pattern, key []string) bool {
	switch {
	case len(pattern) == 0:
		return len(key) == 0
	case pattern[0] == "#":
		return matches(pattern[1:], key) || (len(key) > 0 && matches(pattern, key[1:]))
	default:
		return len(key) > 0 && (pattern[0] == "*" || pattern[0] == key[0]) && matches(pattern[1:], key[1:])
	}
}

func words(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ".")
}

func TestTopicsF19(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exchange("e", commands.Topic)
	for i, c := range []struct {
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
		target := fmt.Sprint("q", i)
		b.declare(target, commands.Standard, commands.PolicyPatch{})
		b.link("e", target, topic(c.pattern))
		require.Equal(t, c.want, b.reaches("e", c.key, target), "%q %q", c.pattern, c.key)
		require.Equal(t, c.want, matches(words(c.pattern), words(c.key)), "naive: %q %q", c.pattern, c.key)
	}
}

// A queue that overlapping patterns lead to gets one copy.
func TestOneCopyF19(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exchange("e", commands.Topic)
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	for _, pattern := range []string{"#", "a.#", "a.b", "*.b", "a.*"} {
		b.link("e", "q", topic(pattern))
	}
	require.Equal(t, [][]copied{{{"q", "a.b"}}}, b.routes(letter{"e", "a.b", ""}))
}

// Many # and a long key end fast: of all ways to match, each place is looked at once.
func TestManyHashesF19(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exchange("e", commands.Topic)
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	b.declare("r", commands.Standard, commands.PolicyPatch{})
	b.link("e", "q", topic("#.#.#.#.#.x"))
	b.link("e", "r", topic(strings.Repeat("#.a.", 60)+"#"))
	start := time.Now()
	require.Nil(t, b.routes(letter{"e", strings.Repeat("b.", 59) + "b", ""})[0])
	require.Equal(t, []copied{{"q", strings.Repeat("a.", 59) + "x"}}, b.routes(letter{"e", strings.Repeat("a.", 59) + "x", ""})[0])
	require.Equal(t, "r", b.routes(letter{"e", strings.Repeat("a.", 127) + "a", ""})[0][0].target)
	require.Less(t, time.Since(start), 5*time.Second)
}

// An exchange has its own patterns, and no others.
func TestEmptyKeyF18(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i, name := range []string{"first", "second"} {
		b.exchange(name, commands.Topic)
		for j, pattern := range []string{"", "*", "#", ".", "a..b", "a."} {
			target := fmt.Sprint(name, j)
			b.declare(target, commands.Standard, commands.PolicyPatch{})
			if i == 1 || pattern != "" {
				b.link(name, target, topic(pattern))
			}
		}
	}
	targets := func(exchange, key string) (list []string) {
		for _, c := range b.routes(letter{exchange, key, ""})[0] {
			list = append(list, c.target)
		}
		return list
	}
	require.Equal(t, []string{"first2"}, targets("first", ""))
	require.Equal(t, []string{"second0", "second2"}, targets("second", ""))
	require.Equal(t, []string{"first2", "first3"}, targets("first", "."))
	require.Equal(t, []string{"second2", "second4"}, targets("second", "a..b"))
	require.Equal(t, []string{"second2", "second5"}, targets("second", "a."))

	long := strings.Repeat("é", 127) + "x"
	b.declare("long", commands.Standard, commands.PolicyPatch{})
	b.link("first", "long", topic(long))
	require.Contains(t, targets("first", long), "long")
	_, _, err := b.DeclareLink(ctx, "", commands.LinkSpec{Source: "first", Target: "long", Match: topic(long + "x")})
	require.Equal(t, "match.pattern", refusal(t, err).Field)
}

func TestRoutesByHeaders(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exchange("e", commands.Headers)
	for i, c := range []struct {
		mode, wanted, have string
		want               bool
	}{
		{"all", `{"a":1,"b":"x"}`, `{"a":1,"b":"x","c":null}`, true},
		{"all", `{"a":1,"b":"x"}`, `{"a":1}`, false},
		{"any", `{"a":1,"b":"x"}`, `{"a":1}`, true},
		{"any", `{"a":1,"b":"x"}`, `{"a":"1","B":"x"}`, false},
		{"any", `{"a":1,"b":"x"}`, ``, false},
		{"all", `{"a":1}`, `{"a":1.0}`, true},
		{"all", `{"a":1}`, `{"a":"1"}`, false},
		{"all", `{"a":true}`, `{"a":"true"}`, false},
		{"all", `{"a":true}`, `{"a":true}`, true},
		{"all", `{"a":false}`, `{}`, false},
		{"all", `{"a":null}`, `{"a":null}`, true},
		{"any", `{"a":null}`, `{"a":0}`, false},
		{"any", `{"a":null}`, `{}`, false},
	} {
		target := fmt.Sprint("q", i)
		b.declare(target, commands.Standard, commands.PolicyPatch{})
		b.link("e", target, commands.Match{Headers: json.RawMessage(c.wanted), Mode: c.mode})
		got := b.routes(letter{"e", "k", c.have})[0]
		require.Equal(t, c.want, slices.Contains(got, copied{target, "k"}), "%s %s %s", c.mode, c.wanted, c.have)
	}
}

// The first way wins: fewest hops, then the link that was made first.
func TestRoutesRewrite(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, q := range []string{"a", "b", "c"} {
		b.declare(q, commands.Standard, commands.PolicyPatch{})
	}
	b.exchange("x", commands.Fanout)
	b.exchange("y", commands.Direct)
	declare := func(source, target, rewrite string, match commands.Match) commands.Link {
		l, _, err := b.DeclareLink(ctx, "", commands.LinkSpec{Source: source, Target: target, Match: match, RewriteKey: &rewrite})
		require.NoError(t, err)
		return l
	}
	k := "k"
	declare("x", "y", "far", commands.Match{})
	declare("y", "c", "too far", commands.Match{Pattern: new("far")})
	first := declare("a", "c", "first", commands.Match{Type: commands.MatchExact, Pattern: &k})
	declare("a", "c", "second", topic("#"))
	declare("a", "b", "", commands.Match{})
	declare("b", "x", "on", commands.Match{Type: commands.MatchExact, Pattern: new("")})

	require.Equal(t, []copied{{"b", ""}, {"c", "first"}}, b.routes(letter{"a", "k", ""})[0])
	require.Equal(t, []copied{{"b", ""}, {"c", "second"}}, b.routes(letter{"a", "other", ""})[0])
	require.Equal(t, []copied{{"c", "too far"}}, b.routes(letter{"x", "k", ""})[0])
	disabled := false
	_, err := b.AlterLink(ctx, "", first.ID, commands.LinkPatch{Enabled: &disabled})
	require.NoError(t, err)
	require.Equal(t, [][]copied{{{"b", ""}, {"c", "second"}}, {{"c", "too far"}}, nil},
		b.routes(letter{"a", "k", ""}, letter{"x", "", ""}, letter{"c", "k", ""}))
}

// naive follows links one by one, as leat.routes_of says it does.
func naive(kinds map[string]string, links []commands.Link, l letter) []copied {
	slices.SortFunc(links, func(a, b commands.Link) int { return int(a.ID - b.ID) })
	seen := map[string]bool{}
	front := []copied{{l.channel, l.key}}
	found := []copied{}
	for len(front) > 0 {
		var next []copied
		for _, link := range links {
			for _, at := range front {
				if link.Source != at.target || seen[link.Target] || !link.Enabled || !admits(link.Match, at.key, l.headers) {
					continue
				}
				seen[link.Target] = true
				key := at.key
				if link.RewriteKey != nil {
					key = *link.RewriteKey
				}
				next = append(next, copied{link.Target, key})
			}
		}
		for _, c := range next {
			if kinds[c.target] == commands.Queue {
				found = append(found, c)
			}
		}
		front = next
	}
	slices.SortFunc(found, func(a, b copied) int { return strings.Compare(a.target, b.target) })
	return found
}

func admits(m commands.Match, key, headers string) bool {
	switch m.Type {
	case commands.MatchAll:
		return true
	case commands.MatchExact:
		return key == *m.Pattern
	case commands.MatchTopic:
		return matches(words(*m.Pattern), words(key))
	}
	have, wanted := map[string]any{}, map[string]any{}
	if headers != "" && json.Unmarshal([]byte(headers), &have) != nil || json.Unmarshal(m.Headers, &wanted) != nil {
		panic("no headers")
	}
	hits := 0
	for name, value := range wanted {
		if got, ok := have[name]; ok && got == value {
			hits++
		}
	}
	if m.Mode == commands.AnyHeader {
		return hits > 0
	}
	return hits == len(wanted)
}

// Any topology: where letters go is what the naive matcher says.
func TestRoutesMatchNaively(t *testing.T) {
	t.Parallel()
	b := setup(t)
	kinds := map[string]string{}
	var names []string
	for i := range 4 {
		b.declare(fmt.Sprint("q", i), commands.Standard, commands.PolicyPatch{})
		kinds[fmt.Sprint("q", i)] = commands.Queue
		names = append(names, fmt.Sprint("q", i))
	}
	for _, kind := range []string{commands.Direct, commands.Fanout, commands.Topic, commands.Headers} {
		b.exchange(kind, kind)
		kinds[kind] = commands.Exchange
		names = append(names, kind)
	}
	word := rapid.SampledFrom([]string{"", "a", "b", "*", "#", "a+", ".*", "%", "_", `\`, "é", "🔑", "A"})
	text := rapid.Custom(func(t *rapid.T) string {
		list := rapid.SliceOfN(word, 0, 6).Draw(t, "words")
		if rapid.IntRange(0, 19).Draw(t, "long") == 0 {
			list = slices.Repeat(append(list, "a"), 255)
		}
		s := strings.Join(list, ".")
		for len(s) > 255 {
			s = s[:strings.LastIndexByte(s, '.')]
		}
		return s
	})
	pairs := rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "c"}), rapid.SampledFrom([]any{1, "1", true, nil, "x"}), 1, 3)
	object := rapid.Custom(func(t *rapid.T) string {
		data, err := json.Marshal(pairs.Draw(t, "headers"))
		require.NoError(t, err)
		return string(data)
	})
	rapid.Check(t, func(rt *rapid.T) {
		_, err := b.pool.Exec(ctx, "delete from leat.links; delete from leat.topic_nodes; update leat.channels set linked = false")
		require.NoError(rt, err) // after a failure
		var links []commands.Link
		name := rapid.SampledFrom(names)
		for range rapid.IntRange(1, 12).Draw(rt, "links") {
			spec := commands.LinkSpec{
				Source:     name.Draw(rt, "source"),
				Target:     name.Draw(rt, "target"),
				RewriteKey: rapid.Ptr(text, true).Draw(rt, "rewrite"),
				Enabled:    new(rapid.IntRange(0, 4).Draw(rt, "enabled") > 0),
			}
			rule := rapid.SampledFrom([]string{commands.MatchAll, commands.MatchExact, commands.MatchTopic, commands.MatchHeaders}).Draw(rt, "rule")
			switch spec.Source {
			case commands.Direct:
				rule = commands.MatchExact
			case commands.Fanout:
				rule = commands.MatchAll
			case commands.Topic, commands.Headers:
				rule = spec.Source
			}
			spec.Match.Type = rule
			switch rule {
			case commands.MatchExact, commands.MatchTopic:
				spec.Match.Pattern = new(text.Draw(rt, "pattern"))
			case commands.MatchHeaders:
				spec.Match.Headers = json.RawMessage(object.Draw(rt, "pairs"))
				spec.Match.Mode = rapid.SampledFrom([]string{"", commands.AllHeaders, commands.AnyHeader}).Draw(rt, "mode")
			}
			if link, created, err := b.DeclareLink(ctx, "", spec); err == nil && created {
				links = append(links, link)
			}
		}
		letters := make([]letter, rapid.IntRange(1, 8).Draw(rt, "letters"))
		for i := range letters {
			letters[i] = letter{name.Draw(rt, "channel"), text.Draw(rt, "key"), rapid.OneOf(rapid.Just(""), object).Draw(rt, "of")}
		}
		for i, got := range b.routes(letters...) {
			require.ElementsMatch(rt, naive(kinds, links, letters[i]), got, "%+v by %+v", letters[i], links)
		}
		for _, l := range links {
			require.NoError(rt, b.DeleteLink(ctx, "", l.ID))
		}
		var left int
		require.NoError(rt, b.pool.QueryRow(ctx, `
			select (select count(*) from leat.topic_nodes) + (select count(*) from leat.channels where linked)`).Scan(&left))
		require.Zero(rt, left)
	})
}
