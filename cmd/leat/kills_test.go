package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"leat/api"
	"leat/api/client"
	"leat/migrations/dbtest"
	"leat/migrations/pgserver"
)

// theatre is what the test of the kills plays on: PostgreSQL, a broker, a
// publisher that never gives up, and `leat tail` with a point.
type theatre struct {
	*testing.T
	postgres *pgserver.Server
	pool     *pgxpool.Pool
	broker   *process
	address  string // of each broker after the first

	tail     *exec.Cmd
	output   string // file of all that all tails printed
	sessions []tailed
	sent     atomic.Int64
}

// tailed is one life of the consumer.
type tailed struct {
	from int64 // next of the point when it began, -1 before there was one
	size int64 // of the output when it began
}

// G2, G7: a consumer, its broker and PostgreSQL are killed a hundred times at
// random. Each time the stream goes on with the first message that was not
// committed: no offset is left out, and none comes again that was committed.
func TestG7AHundredKills(t *testing.T) {
	t.Parallel()
	rounds := 100
	if testing.Short() {
		rounds = 12
	}
	h := newTheatre(t)
	publishing, stop := context.WithCancel(t.Context())
	var publisher sync.WaitGroup
	publisher.Go(func() { h.publish(publishing) })
	h.startTail()
	for round := range rounds {
		h.progress()
		pauseFor(t.Context(), rand.N(20*time.Millisecond))
		switch {
		case round == 5 || round == 50 || round == 90:
			h.killPostgres()
		case round%5 == 0:
			h.killBroker()
		case round%11 == 0: // both at once
			h.killTail()
			h.killBroker()
			h.startTail()
		default:
			h.killTail()
			h.startTail()
		}
	}
	h.progress()
	stop()
	publisher.Wait()
	h.settle()
	h.check()
}

func newTheatre(t *testing.T) *theatre {
	t.Helper()
	h := &theatre{T: t, postgres: dbtest.Cluster(t, nil), output: filepath.Join(t.TempDir(), "printed")}
	var err error
	h.pool, err = pgxpool.New(t.Context(), h.postgres.URL())
	require.NoError(t, err)
	t.Cleanup(h.pool.Close)
	h.serve()
	h.address = strings.TrimPrefix(h.broker.url, "http://")
	h.broker.leat("channel", "declare", "events", "--kind", "stream")
	t.Cleanup(func() {
		if h.tail != nil {
			h.killTail()
		}
	})
	return h
}

// publish sends numbers, one after the other, and each until it is answered.
func (h *theatre) publish(ctx context.Context) {
	c, err := client.New("http://"+h.address, client.Options{})
	if err != nil {
		h.Error(err)
		return
	}
	defer c.Close()
	p := client.NewPublisher(c, "events", client.PublisherConfig{})
	for n := int64(0); ctx.Err() == nil; n++ {
		text := strconv.FormatInt(n, 10)
		// The context is the test's: what is begun is finished.
		if _, err := p.Publish(h.Context(), api.Message{Payload: []byte(text), DedupID: text}); err != nil {
			h.Errorf("publish %d: %v", n, err)
			break
		}
		h.sent.Store(n + 1)
		pauseFor(ctx, time.Millisecond)
	}
	if err := p.Close(h.Context()); err != nil {
		h.Error(err)
	}
}

func pauseFor(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// startTail notes where the point is while nobody reads with it.
func (h *theatre) startTail() {
	h.Helper()
	h.sessions = append(h.sessions, tailed{from: h.committed(), size: h.size()})
	out, err := os.OpenFile(h.output, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	require.NoError(h, err)
	defer out.Close()
	h.tail = exec.CommandContext(context.WithoutCancel(h.Context()), os.Args[0],
		"tail", "events", "--point", "p", "--from", "earliest", "-o", "json", "--url", "http://"+h.address)
	h.tail.Env = append(os.Environ(), mainEnv+"=1")
	h.tail.Stdout, h.tail.Stderr = out, os.Stderr
	require.NoError(h, h.tail.Start())
}

func (h *theatre) killTail() {
	h.Helper()
	require.NoError(h, h.tail.Process.Kill())
	_ = h.tail.Wait() // it was killed
	h.tail = nil
}

// killBroker also starts the next one. The tail may live on.
func (h *theatre) killBroker() {
	h.Helper()
	h.broker.stop(os.Kill)
	h.serve("--listen", h.address)
}

// serve starts a broker, without the projections: they follow the log, nothing here
// depends on them, and each start would cost as much again.
func (h *theatre) serve(args ...string) {
	h.Helper()
	h.broker = serveProcess(h.T, append([]string{"--database-url", h.postgres.URL(), "--projections=false"}, args...)...)
}

func (h *theatre) killPostgres() {
	h.Helper()
	h.postgres.Kill()
	require.NoError(h, h.postgres.Restart(h.Context()))
}

const pointSQL = `select next_offset from leat.point_positions where name = 'p'`

// committed is the next offset of the point, -1 while there is none. What a
// consumer that was killed had sent may still be committed after this.
func (h *theatre) committed() int64 {
	h.Helper()
	var next []int64
	require.Eventually(h, func() bool {
		rows, err := h.pool.Query(h.Context(), pointSQL)
		if err == nil {
			next, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		}
		return err == nil
	}, patience, time.Millisecond)
	if len(next) == 0 {
		return -1
	}
	return next[0]
}

func (h *theatre) size() int64 {
	info, err := os.Stat(h.output)
	if err != nil {
		return 0
	}
	return info.Size()
}

// progress waits for a message that is printed after this.
func (h *theatre) progress() {
	h.Helper()
	size := h.size()
	require.Eventually(h, func() bool { return h.size() > size }, patience, time.Millisecond, "it does not go on")
}

// settle waits until everything is printed and committed.
func (h *theatre) settle() {
	h.Helper()
	require.Eventually(h, func() bool { return h.committed() == h.sent.Load() }, patience, 10*time.Millisecond)
}

// check reads what was printed, life by life.
func (h *theatre) check() {
	h.Helper()
	text, err := os.ReadFile(h.output)
	require.NoError(h, err)
	next := int64(0) // behind all that was printed
	for i, life := range h.sessions {
		end := int64(len(text))
		if i+1 < len(h.sessions) {
			end = h.sessions[i+1].size
		}
		printed := text[life.size:end]
		printed = printed[:bytes.LastIndexByte(printed, '\n')+1] // a kill may tear the last line
		offsets := h.offsets(printed)
		if len(offsets) == 0 {
			continue
		}
		first := offsets[0]
		require.LessOrEqual(h, first, next, "life %d: a gap", i)
		require.GreaterOrEqual(h, first, max(0, life.from), "life %d: what was committed came again", i)
		for j, offset := range offsets {
			require.Equal(h, first+int64(j), offset, "life %d: the order", i)
		}
		next = max(next, offsets[len(offsets)-1]+1)
	}
	require.Equal(h, h.sent.Load(), next)
	h.Logf("%d messages, %d lives of the consumer", next, len(h.sessions))
}

// offsets reads lines. The payload of each message is its offset.
func (h *theatre) offsets(text []byte) (offsets []int64) {
	h.Helper()
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		var m api.StreamMessage
		require.NoError(h, json.Unmarshal(lines.Bytes(), &m), "%s", lines.Text())
		require.Equal(h, m.Offset.String(), string(m.Payload))
		offsets = append(offsets, int64(m.Offset))
	}
	return offsets
}
