package replication_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"leat/eventstore"
	"leat/migrations/dbtest"
	"leat/replication"
)

// partitioned is a stream over many partitions of the log, with messages and rows
// of copies by turns.
func partitioned(t *testing.T) *stream {
	t.Helper()
	pool := dbtest.New(t)
	s := newStream(t, pool, "s")
	for i := range 40 {
		_, err := pool.Exec(ctx, `select leat.make_partitions(400)`)
		require.NoError(t, err)
		s.append(100)
		s.copies(20 + i)
	}
	_, err := pool.Exec(ctx, `vacuum analyze leat.events`)
	require.NoError(t, err)
	return s
}

// A page has what was published and what was copied, from any offset on, whatever
// part of the log it looks at first and however little it may hold.
func TestReader(t *testing.T) {
	t.Parallel()
	s := partitioned(t)
	for _, test := range []struct {
		span  int64
		bytes int
		pages int // at the least
	}{{8 << 20, 4 << 20, 4}, {100, 4 << 20, 4}, {1, 4 << 20, 4}, {8 << 20, 2000, 20}, {50, 1, 0}} {
		for _, from := range []eventstore.Offset{0, 99, 100, 110, s.next - 160, s.next - 1, s.next} {
			if test.bytes == 1 && s.next-from > 200 {
				continue // a page for each message
			}
			messages, pages, err := replication.ReadPages(ctx, s.pool, s.channel, from, s.next, test.span, test.bytes)
			require.NoError(t, err)
			require.Len(t, messages, int(s.next-from))
			if from == 0 {
				require.GreaterOrEqual(t, pages, test.pages)
			}
			for i, m := range messages {
				checkMessage(t, m, from+eventstore.Offset(i))
			}
		}
	}
	messages, _, err := replication.ReadPages(ctx, s.pool, s.channel, s.next, s.next+5, 0, 1000)
	require.NoError(t, err)
	require.Empty(t, messages, "not there yet")
	messages, _, err = replication.ReadPages(ctx, s.pool, s.channel, 5, 110, 0, 1<<20)
	require.NoError(t, err)
	require.Len(t, messages, 105, "up to the middle of a row")
}

// checkMessage checks a message as newStream's statements write them.
func checkMessage(t *testing.T, m *eventstore.StreamMessage, n eventstore.Offset) {
	t.Helper()
	require.Equal(t, n, m.Offset)
	require.Equal(t, payload(n), string(m.Payload))
	require.Equal(t, key(n), m.RoutingKey)
	require.Positive(t, m.MessageID)
	require.Positive(t, m.OriginMessageID)
	contentType := "application/json"
	if n%5 == 0 {
		contentType = "text/plain"
	}
	require.Equal(t, contentType, m.ContentType)
	var headers map[string]int
	if m.Headers != nil {
		require.NoError(t, json.Unmarshal(m.Headers, &headers))
	}
	want := map[string]int{}
	if n%3 == 0 {
		want["own"], want["both"] = 1, 1
	}
	if m.OriginMessageID != m.MessageID && headers["both"] == 2 {
		want["both"] = 2 // of a row whose copies have headers of their own
	}
	require.Len(t, headers, len(want), "%d", n)
	for name, value := range want {
		require.Equal(t, value, headers[name], "%d: %s", n, name)
	}
	require.False(t, m.PublishedAt.IsZero())
}

// A page opens the partitions that it looks at, and finds its rows by their
// offsets; a row is located by the same index of each partition.
func TestReaderPlans(t *testing.T) {
	t.Parallel()
	s := partitioned(t)
	var (
		position int64
		dense    int
	)
	require.NoError(t, s.pool.QueryRow(ctx, `select position from leat.events where channel_id = $1 and stream_offset = 2000`, s.channel).Scan(&position))
	pages := s.scans(replication.PageSQL, fmt.Sprintf("%d, 2000, 2020, %d, %d, 4000000", s.channel, position-100, position+600))
	for _, node := range pages {
		require.Contains(t, node.Index, "channel_id_stream_offset", "%+v", node)
	}
	require.LessOrEqual(t, len(pages), 4)
	for _, node := range s.scans(replication.DenseSQL, fmt.Sprintf("array[%d, %d], array[null, null], 1000, %[1]d, %[2]d", position, position+2)) {
		require.Contains(t, node.Index, "_pkey", "%+v", node)
		dense++
	}
	require.LessOrEqual(t, dense, 2, "partitions")
	for _, node := range s.scans(replication.LocateSQL, fmt.Sprintf("%d, 2000", s.channel)) {
		require.Contains(t, node.Index, "channel_id_stream_offset", "%+v", node)
	}
}

// planNode is a step of a plan, as EXPLAIN has it.
type planNode struct {
	Index    string     `json:"Index Name"`
	Relation string     `json:"Relation Name"`
	Plans    []planNode `json:"Plans"`
}

// scans are the steps of a statement's plan that read full partitions of the log.
func (s *stream) scans(sql, args string) (found []planNode) {
	s.t.Helper()
	var text []byte
	require.NoError(s.t, pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		for _, sql := range []string{"set local plan_cache_mode = force_custom_plan", "prepare planned as " + sql} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		if err := tx.QueryRow(ctx, "explain (format json) execute planned("+args+")").Scan(&text); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "deallocate planned")
		return err
	}))
	var plans []struct{ Plan planNode }
	require.NoError(s.t, json.Unmarshal(text, &plans))
	queue := []planNode{plans[0].Plan}
	for len(queue) > 0 {
		node := queue[0]
		queue = append(queue[1:], node.Plans...)
		if strings.HasPrefix(node.Relation, "events_") && node.Relation != "events_default" && node.full(s) {
			found = append(found, node)
		}
	}
	require.NotEmpty(s.t, found)
	return found
}

// full reports whether a partition has rows: of one that is ahead it does not matter
// how it is read.
func (n planNode) full(s *stream) (full bool) {
	require.NoError(s.t, s.pool.QueryRow(ctx, `select exists (select from leat.`+n.Relation+`)`).Scan(&full))
	return full
}
