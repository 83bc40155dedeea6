package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"leat/api"
	"leat/migrations/dbtest"
)

// live is a command that runs until it is stopped.
type live struct {
	mu        sync.Mutex
	out, errs bytes.Buffer
	cancel    context.CancelFunc
	done      chan int
}

type liveWriter struct {
	l  *live
	to *bytes.Buffer
}

func (w liveWriter) Write(p []byte) (int, error) {
	w.l.mu.Lock()
	defer w.l.mu.Unlock()
	return w.to.Write(p)
}

// goOn runs a command on the broker.
func (p *process) goOn(args ...string) *live {
	ctx, cancel := context.WithCancel(p.t.Context())
	l := &live{cancel: cancel, done: make(chan int, 1)}
	args = append(args, "--url", p.url, "--client", "tester")
	go func() { l.done <- run(ctx, args, strings.NewReader(""), liveWriter{l, &l.out}, liveWriter{l, &l.errs}) }()
	p.t.Cleanup(cancel)
	return l
}

func (l *live) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.String()
}

func (l *live) complaints() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.errs.String()
}

func (l *live) stop() int {
	l.cancel()
	return <-l.done
}

func TestTail(t *testing.T) {
	t.Parallel()
	_, database := dbtest.NewURL(t)
	broker := serveProcess(t, "--database-url", database)
	broker.leat("channel", "declare", "prices", "--kind", "stream")
	for n := range 3 {
		broker.leat("publish", "prices", fmt.Sprintf(`{"n":%d}`, n), "--key", fmt.Sprintf("eu.%d", n))
	}

	require.Regexp(t, `(?m)^1 .* eu\.1  "?\{.*n.*:1\}"?\n\z`, broker.exits(exitOK, "", "tail", "prices", "--from", "1", "-n", "1").out)
	one := broker.exits(exitOK, "", "tail", "prices", "--from", "1h", "--key", "*.2", "-n", "1", "-o", "json").out
	var message api.StreamMessage
	require.NoError(t, json.Unmarshal([]byte(one), &message))
	require.EqualValues(t, 2, message.Offset)
	require.JSONEq(t, `{"n":2}`, string(message.Payload))
	require.Contains(t, broker.exits(exitNothing, "", "tail", "none").errs, "channel_not_found")
	require.Contains(t, broker.exits(exitFailed, "", "tail", "prices", "--from", "99").errs, "offset 3 of epoch")

	// With a point it goes on, and what is not printed is not committed.
	first := []string{"tail", "prices", "--point", "p", "--from", "earliest"}
	require.Equal(t, 2, strings.Count(broker.exits(exitOK, "", append(first, "-n", "2")...).out, "\n"))
	tailing := broker.goOn("tail", "prices", "--point", "p", "-o", "json")
	require.Eventually(t, func() bool { return strings.Contains(tailing.text(), `"offset":2`) }, patience, time.Millisecond)
	broker.leat("publish", "prices", "two\nlines", "--content-type", "text/plain")
	require.Eventually(t, func() bool { return strings.Contains(tailing.text(), `"offset":3`) }, patience, time.Millisecond)
	require.Equal(t, exitInterrupted, tailing.stop())
	require.Equal(t, 2, strings.Count(tailing.text(), "\n"))
	require.Empty(t, tailing.complaints())

	// Whoever reads the output may go at any time.
	in, out := io.Pipe()
	require.NoError(t, in.Close())
	var errs bytes.Buffer
	code := run(t.Context(), []string{"tail", "prices", "--from", "earliest", "--url", broker.url}, nil, out, &errs)
	require.Equal(t, exitOK, code, errs.String())
	require.Empty(t, errs.String())
}

// The broker is killed and comes back: the tail goes on, and says so.
func TestTailReconnects(t *testing.T) {
	t.Parallel()
	_, database := dbtest.NewURL(t)
	broker := serveProcess(t, "--database-url", database)
	broker.leat("channel", "declare", "prices", "--kind", "stream")
	tailing := broker.goOn("tail", "prices", "--from", "earliest")
	broker.leat("publish", "prices", "0")
	require.Eventually(t, func() bool { return strings.HasPrefix(tailing.text(), "0 ") }, patience, time.Millisecond)

	broker.stop(syscall.SIGKILL)
	require.Eventually(t, func() bool { return strings.Contains(tailing.complaints(), "connecting again") }, patience, time.Millisecond)
	again := serveProcess(t, "--database-url", database, "--listen", strings.TrimPrefix(broker.url, "http://"))
	again.leat("publish", "prices", "1")
	require.Eventually(t, func() bool { return strings.Contains(tailing.text(), "\n1 ") }, patience, time.Millisecond)
	require.Contains(t, tailing.complaints(), "connected again, at offset 1")
	require.Equal(t, exitInterrupted, tailing.stop())
	require.Equal(t, 2, strings.Count(tailing.text(), "\n"))
}

func TestConsumeCommand(t *testing.T) {
	t.Parallel()
	_, database := dbtest.NewURL(t)
	broker := serveProcess(t, "--database-url", database)
	broker.leat("channel", "declare", "jobs", "--base-delay", "0s", "--max-delay", "0s", "--max-deliveries", "2")
	broker.exits(exitOK, "{\"payload\":1,\"routingKey\":\"k\"}\n{\"payload\":2}\n{\"payload\":3}\n", "publish", "jobs", "--ndjson")

	// Looking takes nothing.
	looked := broker.exits(exitOK, "", "consume", "jobs", "--no-ack", "-n", "3", "-o", "json").out
	require.Equal(t, 3, strings.Count(looked, `"attempt":1`), looked)
	require.Eventually(t, func() bool { return value[api.Channel](broker, "channel", "get", "jobs").Counts.Ready == 3 }, patience, 10*time.Millisecond)

	require.Regexp(t, `(?m)^\d+  k  1  1\n\z`, broker.exits(exitOK, "", "consume", "jobs", "--key", "k", "-n", "1").out)
	live := broker.goOn("consume", "jobs")
	require.Eventually(t, func() bool { return strings.Count(live.text(), "\n") == 2 }, patience, time.Millisecond)
	require.Equal(t, exitInterrupted, live.stop())
	require.Eventually(t, func() bool {
		counts := value[api.Channel](broker, "channel", "get", "jobs").Counts
		return counts.Ready+counts.InFlight+counts.Dead == 0
	}, patience, 10*time.Millisecond)

	// A command gets the payload, and its exit code settles the message.
	made := filepath.Join(t.TempDir(), "made")
	broker.leat("publish", "jobs", `"good"`, "--key", "k1", "--header", "a=b")
	broker.leat("publish", "jobs", `"bad"`)
	ran := broker.exits(exitOK, "", "consume", "jobs", "-n", "3", "--exec",
		`payload=$(cat); echo "$LEAT_QUEUE $LEAT_ROUTING_KEY $LEAT_ATTEMPT $LEAT_HEADERS $payload" >>`+made+`; echo ran; [ "$payload" = '"good"' ]`)
	require.Equal(t, "ran\nran\nran\n", ran.out)
	require.Contains(t, ran.errs, "exit status 1")
	require.EqualValues(t, 1, value[api.Channel](broker, "channel", "get", "jobs").Counts.Dead)
	lines := readFile(t, made)
	require.Contains(t, lines, `jobs k1 1 {"a": "b"} "good"`)
	require.Contains(t, lines, `jobs  2 {} "bad"`)
	require.Contains(t, broker.exits(exitNothing, "", "consume", "none").errs, "channel_not_found")
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(text)
}
