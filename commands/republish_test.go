package commands_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"leat/commands"
	"leat/eventstore"
)

// republish runs a replay that must come to its end.
func (b broker) republish(req commands.RepublishRequest) eventstore.Replay {
	b.t.Helper()
	r, err := b.Republish(ctx, req)
	require.NoError(b.t, err)
	require.True(b.t, r.Finished)
	return r
}

// inTurns are messages of some keys in turns, numbered.
func inTurns(n, keys int) []commands.Message {
	out := make([]commands.Message, n)
	for i := range out {
		out[i] = message(fmt.Sprintf("k.%d", i%keys), fmt.Sprint(i))
	}
	return out
}

// What was in a channel once, acked or not, comes again as new messages of another one,
// in order, with the same origins.
func TestRepublish(t *testing.T) {
	t.Parallel()
	for _, source := range []string{commands.Standard, commands.FIFO, commands.Stream} {
		for _, target := range []string{commands.Standard, commands.FIFO, commands.Stream} {
			t.Run(source+" to "+target, func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				b.declareAny("from", source)
				b.declareAny("to", target)
				b.declare("other", commands.Standard, commands.PolicyPatch{})
				ids := b.publish("from", inTurns(10, 3)...)
				b.publishTexts("other", "k.0", "no")
				if source != commands.Stream {
					b.ack("from", b.receive("from", 1)...)
				}
				dry := b.republish(commands.RepublishRequest{Source: "from", Target: "to", DryRun: true})
				require.EqualValues(t, 10, dry.Messages)
				require.EqualValues(t, 10, dry.Bytes)
				require.Zero(t, dry.ID)
				done := b.republish(commands.RepublishRequest{Source: "from", Target: "to", Actor: "auditor"})
				require.EqualValues(t, 10, done.Messages)
				require.EqualValues(t, 10, done.Copies)
				require.InDelta(t, 1, done.Done, 0)
				require.Equal(t, numbered(10), b.contents())
				require.Equal(t, ids, b.origins())
				b.verify()
			})
		}
	}
}

// declareAny makes a queue of a mode, or a stream.
func (b broker) declareAny(name, what string) {
	b.t.Helper()
	if what == commands.Stream {
		b.stream(name, commands.PolicyPatch{})
		return
	}
	b.declare(name, what, commands.PolicyPatch{})
}

const copiesSQL = `
	from leat.channels c
	join leat.events e on e.channel_id = c.id and e.kind = 'message.copied'
	cross join lateral unnest(e.message_ids, e.origin_ids) with ordinality i (id, origin, n)
	join leat.events o on o.position = i.origin
	where c.name = 'to'
	order by e.stream_offset + i.n, i.id`

// contents are the payloads of the copies in the channel to, in order.
func (b broker) contents() []string {
	b.t.Helper()
	return texts(b.t.(*testing.T), b.pool, `select convert_from(o.payload, 'UTF8')`+copiesSQL)
}

// origins are those of the copies in the channel to.
func (b broker) origins() []eventstore.MessageID {
	b.t.Helper()
	var ids []eventstore.MessageID
	for _, text := range texts(b.t.(*testing.T), b.pool, `select i.origin::text`+copiesSQL) {
		id, err := eventstore.ParseMessageID(text)
		require.NoError(b.t, err)
		ids = append(ids, id)
	}
	return ids
}

// whole is a replay of all that a channel held.
func whole(source, target string) commands.RepublishRequest {
	return commands.RepublishRequest{Source: source, Target: target, Actor: "auditor"}
}

// A range is narrowed by positions, times, offsets and a pattern of keys.
func TestRepublishRange(t *testing.T) {
	t.Parallel()
	for _, source := range []string{commands.Standard, commands.Stream} {
		t.Run(source, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.declareAny("from", source)
			b.stream("to", commands.PolicyPatch{})
			old := b.publish("from", inTurns(4, 2)...)
			var between time.Time
			require.NoError(t, b.pool.QueryRow(ctx, `select clock_timestamp()`).Scan(&between))
			ids := b.publish("from", message("k.0", "4"), message("", "5"), message("k.1.x", "6"), message("k.1", "7"))
			pattern := func(text string) eventstore.Pattern {
				p, err := eventstore.ParsePattern(text)
				require.NoError(t, err)
				return p
			}
			for name, test := range map[string]struct {
				req  commands.RepublishRequest
				want string
			}{
				"from":       {commands.RepublishRequest{From: eventstore.Position(ids[1])}, "5 6 7"},
				"to":         {commands.RepublishRequest{To: eventstore.Position(old[2])}, "0 1 2"},
				"both":       {commands.RepublishRequest{From: eventstore.Position(old[3]), To: eventstore.Position(ids[0])}, "3 4"},
				"empty":      {commands.RepublishRequest{Until: time.Unix(1, 0)}, ""},
				"since":      {commands.RepublishRequest{Since: between}, "4 5 6 7"},
				"until":      {commands.RepublishRequest{Until: between}, "0 1 2 3"},
				"key":        {commands.RepublishRequest{Pattern: pattern("k.1")}, "1 3 7"},
				"keys":       {commands.RepublishRequest{Pattern: pattern("*.1.#")}, "1 3 6 7"},
				"empty key":  {commands.RepublishRequest{Pattern: pattern("")}, "5"},
				"no such":    {commands.RepublishRequest{Pattern: pattern("K.1")}, ""},
				"key, since": {commands.RepublishRequest{Pattern: pattern("k.0"), Since: between}, "4"},
			} {
				test.req.Source, test.req.Target, test.req.DryRun = "from", "to", true
				dry := b.republish(test.req)
				require.Len(t, strings.Fields(test.want), int(dry.Messages), name)
				test.req.DryRun = false
				before := len(b.contents())
				require.Equal(t, dry.Messages, b.republish(test.req).Messages, name)
				require.Equal(t, test.want, strings.Join(b.contents()[before:], " "), name)
			}
			if source == commands.Stream {
				before := len(b.contents())
				req := whole("from", "to")
				req.FromOffset, req.ToOffset = new(eventstore.Offset(2)), new(eventstore.Offset(5))
				require.EqualValues(t, 4, b.republish(req).Messages)
				require.Equal(t, "2 3 4 5", strings.Join(b.contents()[before:], " "))
			}
			b.verify()
		})
	}
}

// What cannot be is refused, with the field.
func TestRepublishRefusals(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	b.stream("s", commands.PolicyPatch{})
	for name, test := range map[string]struct {
		req   commands.RepublishRequest
		code  eventstore.Code
		field string
	}{
		"no source":      {whole("nowhere", "q"), eventstore.ChannelNotFound, "source"},
		"no target":      {whole("q", "nowhere"), eventstore.ChannelNotFound, "target"},
		"bad name":       {whole("?", "q"), eventstore.InvalidField, "source"},
		"ahead":          {commands.RepublishRequest{Source: "q", Target: "q", From: 1 << 40}, eventstore.PositionAhead, "from"},
		"to come":        {commands.RepublishRequest{Source: "q", Target: "q", Since: time.Now().Add(time.Hour)}, eventstore.PositionAhead, "since"},
		"ends early":     {commands.RepublishRequest{Source: "q", Target: "q", From: 2, To: 1}, eventstore.InvalidField, "to"},
		"offset early":   {commands.RepublishRequest{Source: "s", Target: "q", FromOffset: new(eventstore.Offset(2)), ToOffset: new(eventstore.Offset(1))}, eventstore.InvalidField, "toOffset"},
		"over too soon":  {commands.RepublishRequest{Source: "q", Target: "q", Since: time.Unix(2, 0), Until: time.Unix(1, 0)}, eventstore.InvalidField, "until"},
		"negative":       {commands.RepublishRequest{Source: "q", Target: "q", From: -1}, eventstore.InvalidField, "from"},
		"too fast":       {commands.RepublishRequest{Source: "q", Target: "q", Rate: 1 << 30}, eventstore.InvalidField, "rate"},
		"no stream":      {commands.RepublishRequest{Source: "q", Target: "q", ToOffset: new(eventstore.Offset(1))}, eventstore.InvalidField, "toOffset"},
		"offset ahead":   {commands.RepublishRequest{Source: "s", Target: "q", FromOffset: new(eventstore.Offset(1))}, eventstore.OffsetAhead, "fromOffset"},
		"bad, in dryrun": {commands.RepublishRequest{Source: "q", Target: "nowhere", DryRun: true}, eventstore.ChannelNotFound, "target"},
	} {
		_, err := b.Republish(ctx, test.req)
		require.Equal(t, test.code, refusal(t, err).Code, name)
		require.Equal(t, test.field, refusal(t, err).Field, name)
	}
	_, err := b.ResumeReplay(ctx, commands.ResumeRequest{ID: 4711})
	require.Equal(t, eventstore.ReplayNotFound, refusal(t, err).Code)
	require.Empty(t, texts(t, b.pool, `select r::text from leat.replays r`))
}

// The source may have been deleted, and may be the target: what is published again is
// not met again. A target that is deleted is not taken for another one of its name.
func TestRepublishOfDeletedChannels(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.FIFO, commands.PolicyPatch{})
	b.publish("q", inTurns(3, 1)...)
	require.EqualValues(t, 3, b.republish(whole("q", "q")).Messages)
	require.Equal(t, "ready:6", b.states("q"))
	require.NoError(t, b.DeleteChannel(ctx, "test", "q", true))
	b.declare("to", commands.Standard, commands.PolicyPatch{})
	require.EqualValues(t, 6, b.republish(whole("q", "to")).Messages)
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	require.Zero(t, b.republish(whole("q", "to")).Messages, "the one that has the name now")

	stopped, cancel := context.WithCancel(ctx)
	req := whole("to", "q")
	req.Progress = func(eventstore.Replay) { cancel() }
	left, err := b.Republish(stopped, req)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, b.DeleteChannel(ctx, "test", "q", true))
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	_, err = b.ResumeReplay(ctx, commands.ResumeRequest{ID: left.ID})
	require.Equal(t, eventstore.ChannelNotFound, refusal(t, err).Code)
	require.Empty(t, b.states("q"))
	b.verify()
}

// Into an exchange it goes along links, and what has no way is left out and counted;
// behind an open circuit it is dead.
func TestRepublishThroughLinks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("q", commands.Standard, commands.PolicyPatch{})
	b.declare("f", commands.FIFO, commands.PolicyPatch{})
	b.stream("s", commands.PolicyPatch{})
	_, _, err := b.DeclareChannel(ctx, "test", commands.ChannelSpec{Name: "x", Kind: commands.Exchange, Type: commands.Topic})
	require.NoError(t, err)
	for _, target := range []string{"f", "s"} {
		_, _, err = b.DeclareLink(ctx, "test", commands.LinkSpec{Source: "x", Target: target, Match: commands.Match{Pattern: new("k.0")}})
		require.NoError(t, err)
	}
	b.publish("q", inTurns(9, 3)...)
	b.publish("x", message("none", "lost"))
	_, err = b.OpenCircuit(ctx, commands.CircuitRequest{Queue: "f", RoutingKey: "k.0"})
	require.NoError(t, err)
	dry := whole("q", "x")
	dry.DryRun = true
	for _, r := range []eventstore.Replay{b.republish(dry), b.republish(whole("q", "x"))} {
		require.EqualValues(t, 3, r.Messages)
		require.EqualValues(t, 6, r.Copies)
		require.EqualValues(t, 6, r.Unroutable)
	}
	require.Equal(t, "dead:3", b.states("f"))
	require.Equal(t, []string{"0 0 k.0", "1 3 k.0", "2 6 k.0"}, b.streamed("s"))
	require.EqualValues(t, 1, b.republish(whole("x", "q")).Messages, "what was published to an exchange")
	b.verify()
}

// What several clients published through an exchange, in one transaction, comes in the
// order of each key, wherever a page ends: its copies are listed by other events.
func TestRepublishKeepsTheOrderOfKeys(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, _, err := b.DeclareChannel(ctx, "test", commands.ChannelSpec{Name: "x", Kind: commands.Exchange, Type: commands.Fanout})
	require.NoError(t, err)
	b.declare("f", commands.FIFO, commands.PolicyPatch{})
	_, _, err = b.DeclareLink(ctx, "test", commands.LinkSpec{Source: "x", Target: "f"})
	require.NoError(t, err)
	for round := range 3 {
		n := 12
		var keys, payloads, actors []string
		for i := range n {
			keys, payloads, actors = append(keys, fmt.Sprint(i%2)), append(payloads, fmt.Sprint(round*n+i)), append(actors, fmt.Sprint(i*7%3))
		}
		exec(t, b.pool, `
			select leat.publish_many(array(select n from generate_series(1, cardinality($1::text[])) n), array_fill(c.id, array[cardinality($1)]), $1,
				array(select convert_to(p, 'UTF8') from unnest($2::text[]) with ordinality u (p, n) order by n),
				null, null, null, null, null, null, null, null, $3::text[], true)
			from leat.channels c where c.name = 'x'`, keys, payloads, actors)
	}
	for size := 1; size <= 13; size += 3 {
		name := fmt.Sprint("to", size)
		b.stream(name, commands.PolicyPatch{})
		b.steps("f", name, size)
		for key := range 2 {
			var want, got []string
			for i := key; i < 36; i += 2 {
				want = append(want, fmt.Sprint(i))
			}
			for _, line := range b.streamed(name) {
				if fields := strings.Fields(line); fields[2] == fmt.Sprint(key) {
					got = append(got, fields[1])
				}
			}
			require.Equal(t, want, got, "key %d in steps of %d", key, size)
		}
	}
	b.verify()
}

// steps runs a replay in pages of a size.
func (b broker) steps(source, target string, size int) {
	b.t.Helper()
	t := b.t.(*testing.T)
	id := texts(t, b.pool, `select r.id::text from leat.start_replay(leat.plan_replay($1, $2, null, null, null, null, null, null, null, 0, 'test')) r`, source, target)[0]
	for finished := "false"; finished != "true"; {
		finished = texts(t, b.pool, `select r.finished::text from leat.republish($1::bigint, 1, 'test', $2, 0) r`, id, size)[0]
	}
}

// A copy outlives the log that held its payload; it is left out, and counted.
func TestRepublishOfWhatHasLeftTheLog(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("a", commands.Standard, commands.PolicyPatch{})
	b.declare("b", commands.Standard, commands.PolicyPatch{})
	b.stream("to", commands.PolicyPatch{})
	_, _, err := b.DeclareLink(ctx, "test", commands.LinkSpec{Source: "a", Target: "b"})
	require.NoError(t, err)
	ids := b.publish("a", inTurns(3, 1)...)
	exec(t, b.pool, `alter table leat.events disable trigger all`)
	exec(t, b.pool, `delete from leat.events where position = $1`, ids[1])
	r := b.republish(whole("b", "to"))
	require.EqualValues(t, 2, r.Messages)
	require.EqualValues(t, 1, r.Gone)
	require.Equal(t, []string{"0", "2"}, b.contents())

	// And what has left it wholly cannot be asked for.
	exec(t, b.pool, `delete from leat.events where position <= $1`, ids[2])
	exec(t, b.pool, `insert into leat.log_begin (first_position, event) values ($1::bigint + 1, $1)`, ids[2])
	r = b.republish(whole("b", "to"))
	require.EqualValues(t, 3, r.Gone)
	require.EqualValues(t, ids[2]+1, r.From)
	req := whole("b", "to")
	req.From = eventstore.Position(ids[2])
	_, err = b.Republish(ctx, req)
	require.Equal(t, eventstore.EventsGone, refusal(t, err).Code)
	require.EqualValues(t, ids[2]+1, refusal(t, err).First)
	_, err = b.Republish(ctx, commands.RepublishRequest{Source: "to", Target: "a", FromOffset: new(eventstore.Offset(0)), DryRun: true})
	require.NoError(t, err)
	b.publishTexts("to", "", "later")
	exec(t, b.pool, `delete from leat.events where stream_offset = 0`)
	_, err = b.Republish(ctx, commands.RepublishRequest{Source: "to", Target: "a", FromOffset: new(eventstore.Offset(0)), DryRun: true})
	require.Equal(t, eventstore.EventsGone, refusal(t, err).Code)
}

// SQL and Go agree on what a pattern chooses.
func TestRepublishPatterns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	words := []string{"", "a", "b", "*", "#", `\`, "(", "[x]", "ä", "a\nb"}
	draw := func() string {
		var list []string
		for range rand.IntN(5) {
			list = append(list, words[rand.IntN(len(words))])
		}
		return strings.Join(list, ".")
	}
	var patterns, keys []string
	for range 2000 {
		patterns, keys = append(patterns, draw()), append(keys, draw())
	}
	rows, err := b.pool.Query(ctx, `select leat.key_matches(k, leat.pattern_regex(p)) from unnest($1::text[], $2::text[]) with ordinality u (p, k, n) order by n`,
		patterns, keys)
	require.NoError(t, err)
	defer rows.Close()
	for i := 0; rows.Next(); i++ {
		var got bool
		require.NoError(t, rows.Scan(&got))
		pattern, err := eventstore.ParsePattern(patterns[i])
		require.NoError(t, err)
		require.Equal(t, pattern.Match(keys[i]), got, "%q and %q", patterns[i], keys[i])
	}
	require.NoError(t, rows.Err())
}
