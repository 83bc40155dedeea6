package commands_test

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"leat/commands"
	"leat/eventstore"
)

// refused is the refusal of a link, whose fields the caller checks.
func (b broker) refused(code eventstore.Code, spec commands.LinkSpec) eventstore.Error {
	b.t.Helper()
	_, _, err := b.DeclareLink(ctx, "", spec)
	e := refusal(b.t, err)
	require.Equal(b.t, code, e.Code, e.Message)
	return *e
}

// linkEvents are the events of links, in order, with what they say.
func (b broker) linkEvents() (list []map[string]any) {
	b.t.Helper()
	for _, text := range texts(b.t.(*testing.T), b.pool, `
		select (e.data || jsonb_build_object('kind', e.kind, 'channel', c.name, 'actor', e.actor))::text
		from leat.events e
		join leat.channels c on c.id = e.channel_id
		where e.kind::text like 'link.%'
		order by e.position`) {
		var event map[string]any
		require.NoError(b.t, json.Unmarshal([]byte(text), &event))
		list = append(list, event)
	}
	return list
}

func TestLinks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exchange("e", commands.Headers)
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	spec := commands.LinkSpec{
		Source: "e", Target: "q", RewriteKey: new("r"),
		Match: commands.Match{Headers: json.RawMessage(`{"a": null, "n": 1}`)},
	}
	link, created, err := b.DeclareLink(ctx, "me", spec)
	require.NoError(t, err)
	require.True(t, created)
	require.Equal(t, commands.MatchHeaders, link.Match.Type)
	require.Equal(t, commands.AllHeaders, link.Match.Mode)
	require.JSONEq(t, `{"a":null,"n":1}`, string(link.Match.Headers))
	require.True(t, link.Enabled)
	again := func(spec commands.LinkSpec) (commands.Link, error) {
		l, created, err := b.DeclareLink(ctx, "me", spec)
		require.False(t, created)
		return l, err
	}
	same, err := again(spec)
	require.NoError(t, err)
	require.Equal(t, link, same)
	spec.RewriteKey = nil
	same, err = again(spec)
	require.NoError(t, err, "what is not given is not compared")
	require.Equal(t, link, same)
	spec.RewriteKey = new("s")
	_, err = again(spec)
	require.Equal(t, eventstore.LinkConflict, refusal(t, err).Code)
	require.Equal(t, "rewriteKey", refusal(t, err).Field)
	spec.RewriteKey, spec.Enabled = nil, new(false)
	_, err = again(spec)
	require.Equal(t, "enabled", refusal(t, err).Field)

	altered, err := b.AlterLink(ctx, "me", link.ID, commands.LinkPatch{Enabled: new(false), KeepKey: true})
	require.NoError(t, err)
	require.False(t, altered.Enabled)
	require.Nil(t, altered.RewriteKey)
	_, err = b.AlterLink(ctx, "me", link.ID, commands.LinkPatch{Enabled: new(false)})
	require.NoError(t, err, "nothing changes, and nothing is logged")
	_, err = b.AlterLink(ctx, "me", link.ID, commands.LinkPatch{RewriteKey: new("x"), KeepKey: true})
	require.Equal(t, "rewriteKey", refusal(t, err).Field)
	_, err = b.AlterLink(ctx, "me", link.ID, commands.LinkPatch{RewriteKey: new(strings.Repeat("x", 256))})
	require.Equal(t, eventstore.KeyTooLong, refusal(t, err).Code)
	require.NoError(t, b.DeleteLink(ctx, "me", link.ID))
	err = b.DeleteLink(ctx, "me", link.ID)
	require.Equal(t, eventstore.LinkNotFound, refusal(t, err).Code)
	_, err = b.AlterLink(ctx, "me", link.ID, commands.LinkPatch{})
	require.Equal(t, eventstore.LinkNotFound, refusal(t, err).Code)
	fresh, created, err := b.DeclareLink(ctx, "me", spec)
	require.NoError(t, err)
	require.True(t, created)
	require.Greater(t, fresh.ID, link.ID)

	b.exchange("wide", commands.Headers)
	text := make([]string, 500) // does not compress
	for i := range text {
		text[i] = rand.Text()
	}
	wide := commands.Match{Headers: json.RawMessage(`{"a":"` + strings.Join(text, "") + `"}`)}
	b.link("wide", "q", wide)
	_, created, err = b.DeclareLink(ctx, "", commands.LinkSpec{Source: "wide", Target: "q", Match: wide})
	require.NoError(t, err)
	require.False(t, created)

	events := b.linkEvents()
	require.Len(t, events, 5)
	declared := events[0]
	require.NotEmpty(t, declared["declared_at"])
	require.NotZero(t, declared["source_id"])
	require.NotZero(t, declared["target_id"])
	for _, field := range []string{"declared_at", "source_id", "target_id"} {
		delete(declared, field)
	}
	require.Equal(t, map[string]any{
		"kind": "link.declared", "channel": "e", "actor": "me", "id": float64(link.ID), "source": "e", "target": "q",
		"match": "headers", "headers": map[string]any{"a": nil, "n": 1.0}, "header_mode": "all", "rewrite_key": "r", "enabled": true,
	}, declared)
	require.Equal(t, "link.altered", events[1]["kind"])
	require.Equal(t, false, events[1]["enabled"])
	require.NotContains(t, events[1], "rewrite_key")
	require.Equal(t, "link.deleted", events[2]["kind"])
	require.Equal(t, "q", events[2]["target"])
}

func TestLinksRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exchange("direct", commands.Direct)
	b.exchange("fanout", commands.Fanout)
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	b.declare("r", commands.Standard, commands.PolicyPatch{})
	headers := func(text, mode string) commands.Match {
		return commands.Match{Type: commands.MatchHeaders, Headers: json.RawMessage(text), Mode: mode}
	}
	for field, specs := range map[string][]commands.LinkSpec{
		"source": {{Source: "no/name", Target: "q"}},
		"match.type": {
			{Source: "direct", Target: "q", Match: topic("a")},
			{Source: "fanout", Target: "q", Match: topic("a")},
			{Source: "q", Target: "r", Match: commands.Match{Type: "regex"}},
		},
		"match.pattern": {
			{Source: "direct", Target: "q"},
			{Source: "fanout", Target: "q", Match: commands.Match{Pattern: new("a")}},
			{Source: "q", Target: "r", Match: commands.Match{Type: commands.MatchTopic}},
			{Source: "q", Target: "r", Match: commands.Match{Pattern: new("a")}},
			{Source: "q", Target: "r", Match: topic("a\x00")},
		},
		"match.headers": {
			{Source: "q", Target: "r", Match: commands.Match{Type: commands.MatchHeaders}},
			{Source: "q", Target: "r", Match: headers(`{}`, "")},
			{Source: "q", Target: "r", Match: headers(`{"a":[1]}`, "")},
			{Source: "q", Target: "r", Match: headers(`{"a":1,"a":2}`, "")},
			{Source: "q", Target: "r", Match: headers(`[1]`, "")},
			{Source: "q", Target: "r", Match: headers(`{`, "")},
			{Source: "q", Target: "r", Match: commands.Match{Headers: json.RawMessage(`{"a":1}`)}},
		},
		"match.mode": {
			{Source: "q", Target: "r", Match: headers(`{"a":1}`, "some")},
			{Source: "q", Target: "r", Match: commands.Match{Mode: commands.AnyHeader}},
		},
	} {
		for _, spec := range specs {
			require.Equal(t, field, b.refused(eventstore.InvalidField, spec).Field, "%+v", spec)
		}
	}
	b.refused(eventstore.KeyTooLong, commands.LinkSpec{Source: "q", Target: "r", RewriteKey: new(strings.Repeat("x", 256))})
	b.refused(eventstore.KeyTooLong, commands.LinkSpec{Source: "q", Target: "r", Match: topic(strings.Repeat("x", 256))})
	require.Equal(t, "source", b.refused(eventstore.ChannelNotFound, commands.LinkSpec{Source: "nope", Target: "q"}).Field)
	require.Equal(t, "target", b.refused(eventstore.ChannelNotFound, commands.LinkSpec{Source: "q", Target: "nope"}).Field)
	require.Empty(t, b.linkEvents())

	// What psql may say is checked by the database.
	for _, c := range []struct{ call, field string }{
		{`leat.declare_link('q', 'r', match => 'headers', headers => '[1]')`, "match.headers"},
		{`leat.declare_link('q', 'r', match => 'headers', headers => '{"a": {"b": 1}}')`, "match.headers"},
		{`leat.declare_link('q', 'r', match => 'topic', pattern => repeat('x', 256))`, "match.pattern"},
		{`leat.declare_link('q', 'r', rewrite_key => repeat('x', 256))`, "rewriteKey"},
		{`leat.declare_link(null, 'r')`, "source"},
		{`leat.alter_link((select (d.link).id from leat.declare_link('q', 'r') d), '{}')`, ""},
		{`leat.alter_link(max(l.id), '{"enabled": null}') from leat.links l`, "patch"},
		{`leat.alter_link(max(l.id), '{"rewrite_key": 1}') from leat.links l`, "patch"},
		{`leat.alter_link(max(l.id), '{"target": "q"}') from leat.links l`, "patch"},
		{`leat.alter_link(max(l.id), null) from leat.links l`, "patch"},
		{`leat.delete_link(max(l.id)) from leat.links l`, ""},
	} {
		_, err := b.pool.Exec(ctx, "select "+c.call)
		if c.field == "" {
			require.NoError(t, err)
			continue
		}
		require.Equal(t, c.field, refusal(t, eventstore.FromPg(err)).Field, c.call)
	}
	require.Equal(t, "sql:leat", b.linkEvents()[0]["actor"])
}

// F12: a cycle of links is refused, with the way, also through a disabled link.
func TestLinkCyclesF12(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, q := range []string{"a", "b", "c"} {
		b.declare(q, commands.Standard, commands.PolicyPatch{})
	}
	b.exchange("e", commands.Fanout)
	e := b.refused(eventstore.LinkCycle, commands.LinkSpec{Source: "a", Target: "a"})
	require.Equal(t, "target", e.Field)
	require.Contains(t, e.Message, "a -> a")
	b.link("a", "b", commands.Match{})
	require.Contains(t, b.refused(eventstore.LinkCycle, commands.LinkSpec{Source: "b", Target: "a"}).Message, "b -> a -> b")
	link, _, err := b.DeclareLink(ctx, "", commands.LinkSpec{Source: "b", Target: "e", Enabled: new(false)})
	require.NoError(t, err)
	b.link("e", "c", commands.Match{})
	spec := commands.LinkSpec{Source: "c", Target: "a", Match: topic("never")}
	require.Contains(t, b.refused(eventstore.LinkCycle, spec).Message, "c -> a -> b -> e -> c")
	require.NoError(t, b.DeleteLink(ctx, "", link.ID))
	_, _, err = b.DeclareLink(ctx, "", spec)
	require.NoError(t, err)
}

// What has no order never comes to a FIFO queue.
func TestLinksKeepOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("s", commands.Standard, commands.PolicyPatch{})
	b.declare("f", commands.FIFO, commands.PolicyPatch{})
	b.declare("g", commands.FIFO, commands.PolicyPatch{})
	b.exchange("x", commands.Fanout)
	b.exchange("y", commands.Fanout)
	e := b.refused(eventstore.OrderLost, commands.LinkSpec{Source: "s", Target: "f"})
	require.Equal(t, "target", e.Field)
	require.Contains(t, e.Message, "s -> f")
	b.link("f", "g", commands.Match{})
	b.link("y", "f", commands.Match{})
	b.link("x", "y", commands.Match{})
	require.Contains(t, b.refused(eventstore.OrderLost, commands.LinkSpec{Source: "s", Target: "x", Enabled: new(false)}).Message,
		"s -> x -> y -> f")
	b.declare("t", commands.Standard, commands.PolicyPatch{})
	b.exchange("z", commands.Fanout)
	b.link("t", "z", commands.Match{})
	require.Contains(t, b.refused(eventstore.OrderLost, commands.LinkSpec{Source: "z", Target: "x"}).Message, "t -> z -> x -> y -> f")

	// Dead letters have none.
	to := func(name string) commands.PolicyPatch { return commands.PolicyPatch{DeadLetterTo: &name} }
	for target, way := range map[string]string{"f": "(dead letters) f", "x": "(dead letters) x -> y -> f", "g": "(dead letters) g"} {
		_, err := b.AlterChannel(ctx, "", "s", to(target))
		require.Equal(t, eventstore.OrderLost, refusal(t, err).Code)
		require.Equal(t, "deadLetterTo", refusal(t, err).Field)
		require.Contains(t, refusal(t, err).Message, way)
	}
	b.exchange("dead", commands.Fanout)
	b.declare("u", commands.FIFO, to("dead"))
	require.Contains(t, b.refused(eventstore.OrderLost, commands.LinkSpec{Source: "dead", Target: "y"}).Message,
		"u -> (dead letters) dead -> y -> f")
	b.link("dead", "s", commands.Match{})
}

// Two declarations at once that make a cycle together: one is refused.
func TestLinkRaces(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const channels = 6
	name := func(i int) string { return fmt.Sprint("q", i%channels) }
	for i := range channels {
		b.declare(name(i), commands.Standard, commands.PolicyPatch{})
	}
	var (
		wait    sync.WaitGroup
		errs    = make([]error, channels)
		created = make([]bool, 20)
	)
	for i := range channels {
		wait.Go(func() {
			_, _, errs[i] = b.DeclareLink(ctx, "", commands.LinkSpec{Source: name(i), Target: name(i + 1)})
		})
	}
	wait.Wait()
	refusals := 0
	for _, err := range errs {
		if err != nil {
			refusals++
			require.Equal(t, eventstore.LinkCycle, refusal(t, err).Code)
		}
	}
	require.Equal(t, 1, refusals)

	b.exchange("e", commands.Topic)
	for i := range created {
		wait.Go(func() {
			var err error
			_, created[i], err = b.DeclareLink(ctx, "", commands.LinkSpec{Source: "e", Target: "q0", Match: topic("a.b")})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	n := 0
	for _, c := range created {
		if c {
			n++
		}
	}
	require.Equal(t, 1, n, "of twenty at once one makes the link")
}

// Whoever holds a change of links open makes others come back, not wait for ever.
func TestLinkChangeHeldOpen(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	b.declare("r", commands.Standard, commands.PolicyPatch{})
	tx, err := b.pool.Begin(ctx)
	require.NoError(t, err)
	link, _, err := b.DeclareLinkTx(ctx, tx, "", commands.LinkSpec{Source: "q", Target: "r"})
	require.NoError(t, err)
	start := time.Now()
	b.refused(eventstore.Busy, commands.LinkSpec{Source: "r", Target: "q"})
	require.Less(t, time.Since(start), patience)
	_, err = b.AlterLinkTx(ctx, tx, "", link.ID, commands.LinkPatch{Enabled: new(false)})
	require.NoError(t, err)
	require.NoError(t, b.DeleteLinkTx(ctx, tx, "", link.ID))
	require.NoError(t, tx.Rollback(ctx))
	b.link("r", "q", commands.Match{})
}
