package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"leat/api"
	"leat/eventstore"
	"leat/migrations/dbtest"
)

// What is wrong before anything is tried says so, and how it would be right.
func TestWrongUsage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"nope", exitUsage, `unknown command "nope"`},
		{"verfy", exitUsage, "do you mean verify"},
		{"channel nope", exitUsage, `unknown command "nope" for "leat channel"`},
		{"status extra", exitUsage, `does not take "extra"`},
		{"status --nope", exitUsage, "unknown flag: --nope"},
		{"status -o yaml", exitUsage, "must be table or json"},
		{"status --url localhost:8080", exitUsage, "http://host:port"},
		{"channel get", exitUsage, "needs <channel>"},
		{"channel declare q --lease 30q", exitUsage, "--lease"},
		{"channel declare q --max-deliveries many", exitUsage, "--max-deliveries"},
		{"channel alter q", exitUsage, "nothing to alter"},
		{"publish", exitUsage, "needs <channel>"},
		{"publish q x --file y", exitUsage, "given twice"},
		{"publish q x --partial", exitUsage, "--ndjson"},
		{"publish q --ndjson --key k", exitUsage, "--key does not go with --ndjson"},
		{"publish q x --header novalue", exitUsage, "name=value"},
		{"publish q x --header a=1 --header a=2", exitUsage, "given twice"},
		{"publish q x --header a=1 --headers {}", exitUsage, "not both"},
		{"publish q x --headers {", exitUsage, "not JSON"},
		{"publish q x --expires-at tomorrow", exitUsage, "2006-01-02T15:04:05Z"},
		{"publish q --file /does/not/exist", exitFailed, "/does/not/exist"},
		{"poll", exitUsage, "needs <queue>"},
		{"poll q --wait long", exitUsage, "--wait"},
		{"ack q", exitUsage, "needs <receipt>"},
		{"nack", exitUsage, "needs <queue>"},
		{"extend q 1:1 --lease x", exitUsage, "--lease"},
		{"peek q --limit 0", exitUsage, "1 to 1000"},
		{"dlq list q --limit 1001", exitUsage, "1 to 1000"},
		{"purge q", exitUsage, "--yes"},
		{"dlq recover q", exitUsage, "say which"},
		{"dlq recover q --all --id 7", exitUsage, "say which"},
		{"dlq recover q --id 0", exitUsage, "greater than 0"},
		{"dlq recover q --id 7,x", exitUsage, `message id "x"`},
		{"dlq recover q --all --ttl -1s", exitUsage, "--ttl"},
		{"dlq purge q --all", exitUsage, "--yes"},
		{"relay declare r", exitUsage, "give --topic or --table, and --to"},
		{"relay skip r x", exitUsage, "is not an offset"},
		{"point create s", exitUsage, "needs <point>"},
		{"point commit s p", exitUsage, "needs <offset>"},
		{"tail", exitUsage, "needs <stream>"},
		{"tail s --member m", exitUsage, "--point"},
		{"tail s --point p --partitions 1", exitUsage, "2 to 64"},
		{"tail s -n 0", exitUsage, "at least 1"},
		{"tail s --url http://127.0.0.1:1", exitFailed, "no broker answers"},
		{"consume q --no-ack --exec true", exitUsage, "--exec"},
		{"consume q --concurrency 2", exitUsage, "--exec"},
		{"consume q --prefetch 1001", exitUsage, "1 to 1000"},
		{"consume q --url http://127.0.0.1:1", exitFailed, "no broker answers"},
		{"trace first", exitUsage, "message id"},
		{"trace 1 --limit 0", exitUsage, "1 to 1000"},
		{"message 0", exitUsage, "message id"},
		{"replay --from 0", exitUsage, "at least 1"},
		{"replay --kind message.lost", exitUsage, "message.acked"},
		{"replay --since yesterday", exitUsage, "1h30m"},
		{"verify --limit 0", exitUsage, "1 to 1000"},
		{"verify --chain --expect 4711", exitUsage, "64 hexadecimal digits"},
		{"archive", exitUsage, "--to"},
		{"replay --archive /does/not/exist --reverse", exitUsage, "--reverse"},
		{"replay --archive /does/not/exist", exitFailed, "there is no archive"},
		{"serve --seal -1s", exitUsage, "--seal"},
		{"serve --log-retention 30d", exitUsage, "--log-retention"},
		{"verify --url http://127.0.0.1:1 --database-url postgres://x", exitUsage, "not both"},
		{"verify --database-url nonsense", exitFailed, "database URL"},
		{"verify --database-url postgres://127.0.0.1:1/x", exitFailed, "connect to database"},
		{"migrate", exitUsage, "--database-url"},
		{"serve --listen 0.0.0.0:8080", exitFailed, "loopback only"},
		{"serve --listen nowhere", exitFailed, "listen address"},
		{"status --url http://127.0.0.1:1", exitFailed, "no broker answers at http://127.0.0.1:1"},
		{"rebuild --url http://127.0.0.1:1", exitFailed, "leat serve"},
	} {
		t.Run(c.args, func(t *testing.T) {
			t.Parallel()
			got := command(t.Context(), "", strings.Fields(c.args)...)
			require.Equal(t, c.code, got.code, got.errs)
			require.Contains(t, got.errs, c.says)
			require.Empty(t, got.out)
		})
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"--help"}, {"channel"}, {"publish", "--help"}, {"--version"}} {
		got := command(t.Context(), "", args...)
		require.Equal(t, exitOK, got.code)
		require.NotEmpty(t, got.out)
	}
	require.Contains(t, command(t.Context(), "").out, "Exit codes:")
	for _, c := range root(&cli{}).Commands() {
		require.NotEmpty(t, c.Short, c.Name())
	}
}

// Every command that talks to a broker, on one.
func TestCommands(t *testing.T) {
	t.Parallel()
	pool, database := dbtest.NewURL(t)
	broker := serveProcess(t, "--database-url", database)
	broker.leat("channel", "declare", "jobs", "--lease", "10m", "--base-delay", "1h", "--max-delay", "1h", "--non-retryable", "bad")

	broker.sub("channel", broker.channel)
	broker.sub("link", broker.link)
	broker.sub("circuit", broker.circuit)
	broker.sub("point", broker.point)
	broker.sub("relay", func(t *testing.T) { broker.relay(t, pool) })
	broker.sub("publish", broker.publish)
	broker.sub("publish lines", broker.publishLines)
	broker.sub("streams", broker.streams)
	broker.sub("settle", broker.settle)
	broker.sub("look", broker.look)
	broker.sub("trace", broker.trace)
	broker.sub("numbers", broker.numbers)
	broker.sub("replay", broker.replay)
	t.Run("interrupted", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		got := command(ctx, "", "poll", "jobs", "--wait", "30s", "--url", broker.url)
		require.Equal(t, exitInterrupted, got.code)
		require.Empty(t, got.errs)
	})
	t.Run("not a broker", func(t *testing.T) {
		got := command(t.Context(), "", "status", "--url", broker.url+"/elsewhere")
		require.Equal(t, exitNothing, got.code)
		require.Contains(t, got.errs, "not_found")
	})
}

// sub runs a part of the test.
func (p *process) sub(name string, part func(t *testing.T)) {
	outer := p.t
	outer.Run(name, func(t *testing.T) {
		p.t = t
		defer func() { p.t = outer }()
		part(t)
	})
}

func (p *process) channel(t *testing.T) {
	altered := value[api.Channel](p, "channel", "alter", "jobs", "--max-deliveries", "9", "--jitter", "0")
	require.Equal(t, 9, altered.Policy.MaxDeliveries)
	require.Equal(t, []string{"bad"}, altered.Policy.NonRetryable, "what was not named stays")
	require.Contains(t, p.leat("channel", "get", "jobs"), "max deliveries       9")
	require.Contains(t, p.exits(exitNothing, "", "channel", "get", "none").errs, "channel_not_found")

	refused := p.exits(exitFailed, "", "channel", "declare", "bad/name", "-o", "json")
	var problem api.Problem
	require.NoError(t, json.Unmarshal([]byte(refused.errs), &problem))
	require.Equal(t, "name", problem.Errors[0].Field)
	require.Empty(t, refused.out)

	p.leat("channel", "declare", "gone")
	p.leat("publish", "gone", "x")
	require.Contains(t, p.exits(exitFailed, "", "channel", "delete", "gone").errs, "channel_not_empty")
	require.Contains(t, p.leat("channel", "delete", "gone", "--force"), "deleted")
	p.leat("channel", "declare", "gone")
	require.JSONEq(t, `{}`, p.leat("channel", "delete", "gone", "-o", "json"))
}

// G5 through the command line.
func (p *process) circuit(t *testing.T) {
	p.leat("channel", "declare", "keyed", "--mode", "fifo")
	p.leat("publish", "keyed", "1", "--key", "k")
	require.Contains(t, p.leat("circuit", "open", "keyed", "k"), "open; 1 messages went to the dead letters")
	require.Contains(t, p.leat("circuit", "open", "keyed", "k"), "it was open before")
	require.Equal(t, api.CircuitResult{Changed: true}, value[api.CircuitResult](p, "circuit", "open", "keyed", ""))
	require.Regexp(t, `keyed +k +open +- +by hand`, p.leat("circuit", "list", "--queue", "keyed", "--key", "k"))
	require.Len(t, value[api.CircuitPage](p, "circuit", "list", "--state", "open").Circuits, 2)
	require.Contains(t, p.leat("circuit", "close", "keyed", "k", "--recover"), "closed; 1 messages recovered")
	require.Contains(t, p.leat("circuit", "close", "keyed", ""), "closed; 0 messages recovered")
	require.Contains(t, p.leat("circuit", "close", "keyed", ""), "it was closed before")
	require.Contains(t, p.exits(exitFailed, "", "circuit", "open", "jobs", "k").errs, "not a FIFO queue")
	require.Contains(t, p.exits(exitUsage, "", "circuit", "open", "keyed").errs, "needs <routing-key>")
	require.Contains(t, p.exits(exitUsage, "", "circuit", "list", "--limit", "0").errs, "--limit")
}

func (p *process) link(t *testing.T) {
	exchange := value[api.Channel](p, "channel", "declare", "topics", "--kind", "exchange", "--type", "topic")
	require.Equal(t, "topic", exchange.Type)
	require.Nil(t, exchange.Policy)
	require.Regexp(t, `topics +topic exchange +-`, p.leat("channel", "list"))
	require.Contains(t, p.leat("channel", "get", "topics"), "type         topic")
	require.Contains(t, p.exits(exitFailed, "", "channel", "alter", "topics", "--lease", "1s").errs, "policy is of queues")
	fifo := value[api.Channel](p, "channel", "declare", "ordered", "--mode", "fifo", "--dead-letter-to", "topics",
		"--dead-letter-retention", "24h", "--circuit-cool-down", "1m", "--circuit-threshold", "2")
	require.Equal(t, "topics", fifo.Policy.DeadLetterTo)
	require.Equal(t, api.Circuit{Enabled: true, CoolDown: api.Duration(time.Minute), Threshold: 2}, *fifo.Policy.Circuit)
	require.Contains(t, p.leat("channel", "alter", "ordered", "--circuit=false"), "circuit              false")
	require.Contains(t, p.exits(exitFailed, "", "channel", "declare", "jobs", "--circuit").errs, "policy.circuit is of FIFO queues")

	link := value[api.Link](p, "link", "declare", "topics", "jobs", "--pattern", "a.#", "--rewrite-key", "")
	require.Equal(t, "a.#", *link.Match.Pattern)
	require.Empty(t, *link.RewriteKey)
	id := link.ID.String()
	require.Contains(t, p.leat("link", "list", "--source", "topics"), "topic a.#")
	require.Contains(t, p.leat("link", "list", "--target", "topics"), "LINK")
	require.Contains(t, p.leat("link", "show", id), "topics")
	require.Regexp(t, `enabled +false`, p.leat("link", "disable", id))
	require.Regexp(t, `enabled +true`, p.leat("link", "enable", id))
	require.Regexp(t, `rewrite key +"a b\\x1b"`, p.leat("link", "alter", id, "--rewrite-key", "a b\x1b"))
	require.Regexp(t, `rewrite key +-`, p.leat("link", "alter", id, "--keep-key"))
	p.exits(exitUsage, "", "link", "alter", id)
	p.exits(exitUsage, "", "link", "show", "first")
	p.exits(exitUsage, "", "link", "declare", "jobs", "ordered", "--match", "headers", "--headers", "{")
	require.Contains(t, p.exits(exitFailed, "", "link", "declare", "topics", "ordered", "-p", "#").errs,
		"ordered -> (dead letters) topics -> ordered")
	require.Contains(t, p.leat("link", "declare", "ordered", "jobs", "--match", "headers", "--headers", `{"a":1}`, "--disabled"),
		`all of headers {"a":1}`)
	require.Contains(t, p.leat("link", "delete", id), "deleted")
	require.Contains(t, p.exits(exitNothing, "", "link", "show", id).errs, "link_not_found")
	require.Contains(t, p.exits(exitFailed, "", "channel", "delete", "topics").errs, "channel_in_use")
	p.leat("channel", "delete", "topics", "--force")
	p.leat("channel", "delete", "ordered")
	require.Empty(t, value[api.LinkPage](p, "link", "list").Links)
}

func (p *process) publish(t *testing.T) {
	require.Contains(t, p.leat("publish", "jobs", "{\"n\": 1e400}", "--dedup-id", "one"), "published")
	require.Contains(t, p.leat("publish", "jobs", "{\"n\": 1e400}", "--dedup-id", "one"), "before")
	require.Contains(t, p.exits(exitFailed, "", "publish", "jobs", "other", "--dedup-id", "one").errs, "dedup_conflict")
	require.Contains(t, p.exits(exitFailed, "", "publish", "jobs", "x", "--priority", "10").errs, "priority")
	require.Contains(t, p.exits(exitNothing, "", "publish", "none", "x").errs, "channel_not_found")

	file := filepath.Join(t.TempDir(), "payload")
	require.NoError(t, os.WriteFile(file, []byte("\x00\xff"), 0o600))
	p.leat("publish", "jobs", "--file", file)
	p.exits(exitOK, "text of stdin\n", "publish", "jobs", "-")
	p.exits(exitOK, "", "publish", "jobs")
	p.leat("publish", "jobs", "x", "--content-type", "text/x", "--headers", `{"traceId":"a", "n":1}`, "--ttl", "1h", "--priority", "3",
		"--deliver-at", "2030-01-01T00:00:00Z", "--key", "")

	var payloads, types []string
	for _, m := range value[api.MessagePage](p, "peek", "jobs").Messages {
		payloads, types = append(payloads, string(m.Bytes())), append(types, m.ContentType)
	}
	require.Equal(t, []string{"{\"n\": 1e400}", "\x00\xff", "text of stdin\n", "", "x"}, payloads, "the bytes as they were")
	text := "text/plain; charset=utf-8"
	require.Equal(t, []string{"application/json", "application/octet-stream", text, text, "text/x"}, types)
	require.Contains(t, p.leat("peek", "jobs", "--state", "delayed"), "due 20")
	require.Contains(t, p.leat("purge", "jobs", "--yes"), "5 messages removed")
}

func (p *process) streams(t *testing.T) {
	require := require.New(t)
	channel := value[api.Channel](p, "channel", "declare", "log", "--kind", "stream",
		"--retention-age", "1h", "--retention-bytes", "1000000", "--retention-messages", "1000")
	require.Equal(api.Retention{Age: api.Duration(time.Hour), Bytes: 1_000_000, Messages: 1000}, *channel.Policy.Retention)
	value[api.Channel](p, "channel", "alter", "log", "--retention-age", "2h")
	require.Contains(p.leat("publish", "log", "one", "--key", "a.b"), "at offset 0")
	require.Contains(p.leat("publish", "log", "two", "--key", "c"), "at offset 1")
	require.Contains(p.exits(exitFailed, "", "publish", "log", "x", "--ttl", "1h").errs, "ttl")
	shown := p.leat("channel", "get", "log")
	for _, text := range []string{"stream", "next offset", "2h0m0s", "1000000"} {
		require.Contains(shown, text)
	}
	require.Regexp(`log +stream +2 `, p.leat("channel", "list"))
	page := value[api.StreamPage](p, "peek", "log", "--from", "0", "-k", "*.b")
	require.Len(page.Messages, 1)
	require.Contains(p.leat("peek", "log", "--from", "earliest", "-n", "1"), "--from 1")
	require.Contains(p.exits(exitUsage, "", "peek", "log", "--from", "0", "--state", "ready").errs, "--state")
	require.Contains(p.exits(exitNothing, "", "poll", "log").errs, "it is a stream")
	require.Contains(p.leat("message", page.Messages[0].MessageID.String()), "streamed")
}

func (p *process) publishLines(t *testing.T) {
	lines := "{\"payload\":1}\n\n{\"payload\":2,\"routingKey\":\"k\"}\n"
	require.Contains(t, p.exits(exitOK, lines, "publish", "jobs", "--ndjson").out, "published 2 messages")
	bad := lines + "{\"payload\":3,\"priority\":99}\n{\"payload\":4,\"ttl\":\"-1s\"}\n"
	refused := p.exits(exitFailed, bad, "publish", "jobs", "--ndjson")
	require.Contains(t, refused.errs, "Line 4: priority")
	require.Contains(t, refused.errs, "line 5: ttl: invalid_field")
	partly := p.exits(exitRefused, bad, "publish", "jobs", "--ndjson", "--partial")
	require.Contains(t, partly.out, "published 2 messages")
	require.Contains(t, partly.errs, "line 4: priority")

	// More than a batch: each is a line of answer, and places count on.
	many := strings.Repeat("{\"payload\":0}\n", batchLines)
	answers := p.exits(exitOK, many+lines, "publish", "jobs", "--ndjson", "-o", "json").out
	require.Equal(t, 2, strings.Count(answers, "\n"))
	refused = p.exits(exitFailed, many+"{}\n", "publish", "jobs", "--ndjson")
	require.Contains(t, refused.errs, "after 1000 messages were published")
	require.Contains(t, refused.errs, "Line 1001")
	require.Contains(t, p.leat("purge", "jobs", "-y"), "2006 messages removed")
	p.exits(exitNothing, "", "poll", "jobs")
	require.JSONEq(t, `{"deliveries":[]}`, p.exits(exitNothing, "", "poll", "jobs", "-o", "json").out)
}

func (p *process) settle(t *testing.T) {
	p.exits(exitOK, strings.Repeat("{\"payload\":0,\"routingKey\":\"k\"}\n", 6), "publish", "jobs", "--ndjson")
	require.Contains(t, p.leat("poll", "jobs", "--key", "k", "--lease", "5m"), "RECEIPT")
	var receipts []string
	for _, d := range value[api.PollResult](p, "poll", "jobs", "-n", "5", "--key", "k", "--key", "").Deliveries {
		receipts = append(receipts, d.Receipt)
	}
	require.Len(t, receipts, 5)
	require.Contains(t, p.leat("extend", "jobs", receipts[0], "--lease", "1h"), "1 extended until")
	require.Contains(t, p.exits(exitOK, receipts[0]+"\n"+receipts[1], "release", "jobs", "-").out, "2 settled")
	require.Contains(t, p.leat("nack", "jobs", receipts[2], "--reason", "not now"), "1 settled")
	require.Contains(t, p.leat("nack", "jobs", receipts[3], "--error-class", "bad", "--reason", "no\nway"), "1 settled")
	refused := p.exits(exitRefused, "", "ack", "jobs", receipts[4], receipts[0], "1:999999")
	require.Contains(t, refused.out, "1 settled")
	require.Contains(t, refused.out, "receipt_unknown")
	require.Contains(t, p.exits(exitFailed, "", "ack", "jobs", "first").errs, "receipt_malformed")
	require.Contains(t, p.exits(exitFailed, "", "nack", "jobs", receipts[2], "--action", "drop").errs, "action")

	dead := p.leat("dlq", "list", "jobs", "--key", "k", "--reason", "non_retryable")
	require.Contains(t, dead, `non_retryable: "no\nway" [bad]`, "what others wrote cannot break a line")
	history := p.leat("trace", receipts[2], "--client", "reader")
	require.Contains(t, history, "failed, due again")
	require.Contains(t, history, "not now")
	receipt, err := eventstore.ParseReceipt(receipts[2])
	require.NoError(t, err)
	family := value[api.Lineage](p, "trace", receipts[2])
	require.Equal(t, receipt.Message, family.OriginMessageID)
	require.Len(t, family.Messages, 1)
	require.Contains(t, p.exits(exitNothing, "", "trace", "999999").errs, "message_not_found")
}

func (p *process) look(t *testing.T) {
	first := value[api.MessagePage](p, "peek", "jobs", "--limit", "2", "--no-payload")
	require.Len(t, first.Messages, 2)
	require.Nil(t, first.Messages[0].Bytes())
	require.Contains(t, p.leat("peek", "jobs", "--limit", "2"), "--cursor "+first.NextCursor)
	second := value[api.MessagePage](p, "peek", "jobs", "--limit", "2", "--cursor", first.NextCursor)
	require.Greater(t, second.Messages[0].MessageID, first.Messages[1].MessageID)
	require.Contains(t, p.exits(exitNothing, "", "message", "999999").errs, "message_not_found")
	require.Contains(t, p.leat("message", first.Messages[0].MessageID.String()), "state")
	require.Contains(t, p.leat("status"), "settled position")
}

// numbers follow the log behind its commits.
func (p *process) numbers(t *testing.T) {
	p.leat("publish", "jobs", "1", "--key", "failing")
	receipt := value[api.PollResult](p, "poll", "jobs", "--key", "failing").Deliveries[0].Receipt
	p.leat("nack", "jobs", receipt, "--reason", "no stock")
	last := value[api.Status](p, "status").LastPosition
	require.Eventually(t, func() bool {
		list := value[api.ProjectionList](p, "projection", "list").Projections
		return len(list) == 3 && !slices.ContainsFunc(list, func(one api.Projection) bool { return one.Position < last })
	}, patience, 50*time.Millisecond)
	require.Contains(t, p.leat("stats", "jobs"), "FIRST DELIVERY P50")
	require.Positive(t, value[api.StatisticsList](p, "stats", "jobs", "--since", "90m", "--step", "5m").Statistics[0].Published)
	require.NotEmpty(t, value[api.ConsumerList](p, "consumers", "-n", "1").Consumers)
	require.Contains(t, p.leat("consumers", "jobs"), "LAST SEEN")
	require.Contains(t, p.leat("failures", "jobs"), "no stock")
	require.Contains(t, p.exits(exitNothing, "", "stats", "nope").errs, "channel_not_found")
	require.Contains(t, p.leat("projection", "stop", "consumers"), "stopped")
	require.Contains(t, p.leat("projection", "stop", "consumers"), "it was stopped before")
	require.Contains(t, p.leat("status"), "consumers live: stopped")
	require.Contains(t, p.leat("projection", "start", "consumers"), "started")
	require.Contains(t, p.leat("projection", "retry", "consumers"), "it has not failed")
	require.Contains(t, p.leat("projection", "skip", "consumers"), "it has not failed")
	require.Contains(t, p.leat("projection", "rebuild", "consumers"), "being rebuilt")
	require.Eventually(t, func() bool {
		list := value[api.ProjectionList](p, "projection", "list").Projections
		return len(list) == 3 && list[0].Generation == 2 && list[0].State == "live"
	}, patience, 50*time.Millisecond)
	require.Contains(t, p.exits(exitNothing, "", "projection", "stop", "nope").errs, "projection_not_found")
	p.exits(exitUsage, "", "stats", "--step", "90s")
	p.exits(exitUsage, "", "consumers", "-n", "0")
}

func (p *process) replay(t *testing.T) {
	// More than a page, each event once, in order.
	var last eventstore.Position
	n := 0
	for line := range strings.Lines(p.leat("replay")) {
		var event api.Event
		require.NoError(t, json.Unmarshal([]byte(line), &event))
		require.Greater(t, event.Position, last)
		last = event.Position
		n++
	}
	require.Greater(t, n, 2000)
	require.Equal(t, 1, strings.Count(p.leat("replay", "--kind", "message.purged", "--since", "1h", "-n", "1"), "\n"))
	require.Empty(t, p.leat("replay", "--until", "2020-01-01T00:00:00Z"))
	require.Contains(t, p.leat("replay", "--reverse", "-n", "1"), fmt.Sprintf(`{"position":%d,`, last))
	following := p.goOn("replay", "--follow", "--from", last.String())
	require.Eventually(t, func() bool { return strings.Contains(following.text(), "\n") }, patience, 10*time.Millisecond)
	p.leat("channel", "declare", "followed")
	require.Eventually(t, func() bool { return strings.Count(following.text(), "\n") == 2 }, patience, 10*time.Millisecond)
	require.Equal(t, exitInterrupted, following.stop())
	require.Contains(t, following.text(), `"channel":"followed"`)
	p.asOf(t)
	require.Contains(t, p.exits(exitFailed, "", "replay", "--from", "99999999").errs, "position_ahead")
	require.Contains(t, p.leat("replay", "--kind", "channel.altered", "--actor", "tester", "-o", "table"), "channel.altered jobs")
	p.leat("publish", "jobs", "x", "--key", "read again")
	require.Equal(t, 1, strings.Count(p.leat("replay", "--key", "read again"), "\n"))
	require.NotContains(t, p.exits(exitFailed, "", "replay", "--cursor", "x").errs, "go on with")
	require.Contains(t, p.exits(exitNothing, "", "replay", "--channel", "none").errs, "channel_not_found")
}

// asOf looks at a queue before and after something came.
func (p *process) asOf(t *testing.T) {
	p.leat("channel", "declare", "past", "--mode", "fifo")
	id := value[api.PublishResult](p, "publish", "past", "x", "--key", "k").Messages[0].MessageID.String()
	receipt := value[api.PollResult](p, "poll", "past").Deliveries[0].Receipt
	p.leat("nack", "past", receipt, "--action", "deadLetter", "--reason", "gone")

	require.EqualValues(t, 1, value[api.Channel](p, "channel", "get", "past", "--as-of", id).Counts.Ready)
	require.EqualValues(t, 1, value[api.Channel](p, "channel", "get", "past", "--as-of", "1us").Counts.Dead)
	require.Regexp(t, `(?m)^past +fifo +1 `, p.leat("channel", "list", "--as-of", id))
	require.Contains(t, p.leat("peek", "past", "--as-of", id), "ready")
	require.Contains(t, p.leat("message", id, "--as-of", id), "ready")
	require.NotContains(t, p.leat("dlq", "list", "past", "--as-of", id), "gone")
	require.Contains(t, p.leat("dlq", "list", "past", "--as-of", time.Now().Format(time.RFC3339Nano)), "gone")
	require.Empty(t, value[api.CircuitPage](p, "circuit", "list", "--queue", "past", "--as-of", id).Circuits)
	require.Len(t, value[api.CircuitPage](p, "circuit", "list", "--queue", "past", "--as-of", "1us").Circuits, 1)
	require.Contains(t, p.exits(exitNothing, "", "peek", "past", "--as-of", "24h").errs, "channel_not_found")
	require.Contains(t, p.exits(exitUsage, "", "peek", "past", "--as-of", "then").errs, "nor an age")
	require.Contains(t, p.exits(exitUsage, "", "peek", "past", "--as-of", "1", "--from", "1").errs, "--from")
	require.Contains(t, p.exits(exitFailed, "", "channel", "list", "--as-of", "99999999").errs, "position_ahead")
}
