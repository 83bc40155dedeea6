package replication_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"leat/eventstore"
	"leat/replication"
)

// taken is what a sink was given: a message or a row of copies, as text.
type taken struct {
	Channel eventstore.ChannelID
	Offset  eventstore.Offset
	Copies  int // 0 of a message
	Text    string
}

// sink keeps what a tail gives it, as long as it is flushed.
type sink struct {
	wanted map[eventstore.ChannelID]bool // nil: all

	mu        sync.Mutex
	live      bool
	lives     int
	unflushed []taken
	flushed   []taken
	hold      chan struct{} // the next messages wait for it, unless it is nil
}

func (s *sink) Live() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live = true
	s.lives++
}

func (s *sink) Interrupted() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live = false
}

func (s *sink) Wants(channel eventstore.ChannelID, _ eventstore.Offset) bool {
	return s.wanted == nil || s.wanted[channel]
}

func (s *sink) Message(channel eventstore.ChannelID, m *eventstore.StreamMessage) {
	s.take(taken{Channel: channel, Offset: m.Offset, Text: fmt.Sprintf("%d %d %q %q %s %s %q", m.MessageID, m.OriginMessageID,
		m.RoutingKey, m.ContentType, m.Headers, m.PublishedAt.Format(time.RFC3339Nano), m.Payload)})
}

func (s *sink) Batch(channel eventstore.ChannelID, first eventstore.Offset, n int) {
	s.take(taken{Channel: channel, Offset: first, Copies: n})
}

func (s *sink) take(t taken) {
	s.mu.Lock()
	hold := s.hold
	s.unflushed = append(s.unflushed, t)
	s.mu.Unlock()
	if hold != nil {
		<-hold
	}
}

func (s *sink) Flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flushed = append(s.flushed, s.unflushed...)
	s.unflushed = nil
}

func (s *sink) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.flushed)
}

// next waits for n messages or rows and takes them away.
func (s *sink) next(t *testing.T, n int) []taken {
	t.Helper()
	require.Eventually(t, func() bool { return s.count() >= n }, patience, 5*time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	got := s.flushed[:n:n]
	s.flushed = s.flushed[n:]
	return got
}

// tail is a tail that runs.
type tail struct {
	*replication.Tail
	sink  *sink
	heard wakes
	stop  func()
}

// startTail runs a tail on a database and waits for nothing.
func startTail(t *testing.T, pool *pgxpool.Pool, address string, change func(*replication.TailConfig)) *tail {
	t.Helper()
	s := &sink{}
	heard := make(wakes, 10_000)
	config := replication.TailConfig{
		URL: address, Pool: pool, Logger: quiet, Sink: s,
		Wake: func(channels ...eventstore.ChannelID) { heard <- channels },
	}
	if change != nil {
		change(&config)
	}
	tl := &tail{Tail: replication.NewTail(config), sink: s, heard: heard}
	tl.stop = run(t, tl.Run)
	return tl
}

// live waits until it has read n slots in all.
func (tl *tail) live(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		tl.sink.mu.Lock()
		defer tl.sink.mu.Unlock()
		return tl.sink.live && tl.sink.lives >= n
	}, patience, 5*time.Millisecond, "the tail is not live: %+v", tl.State())
}

// put appends a message of a stream to the log.
func put(t *testing.T, pool *pgxpool.Pool, channel eventstore.ChannelID, offset eventstore.Offset) {
	t.Helper()
	_, err := pool.Exec(ctx, `
		insert into leat.events (kind, channel_id, stream_offset, routing_key, payload)
		values ('message.published', $1, $2, 'k', 'x')`, channel, offset)
	require.NoError(t, err)
}

func exec(t *testing.T, pool *pgxpool.Pool, sql string) {
	t.Helper()
	_, err := pool.Exec(ctx, sql)
	require.NoError(t, err)
}

func ask[T any](t *testing.T, pool *pgxpool.Pool, sql string, args ...any) T {
	t.Helper()
	rows, err := pool.Query(ctx, sql, args...)
	require.NoError(t, err)
	answer, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	require.NoError(t, err)
	return answer
}
