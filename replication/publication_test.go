package replication_test

import (
	"bytes"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"leat/eventstore"
	"leat/migrations/dbtest"
	"leat/replication"
)

// logged are the lines of a log.
type logged struct {
	mu    sync.Mutex
	lines bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.String()
}

// newLog is a logger, and what it logged.
func newLog() (*slog.Logger, *logged) {
	l := &logged{}
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelInfo})), l
}

// whole tells whether the publication is as it should be, by what it publishes.
func whole(t *testing.T, pool *pgxpool.Pool) bool {
	t.Helper()
	return ask[bool](t, pool, `
		select p.pubinsert and not p.pubupdate and not p.pubdelete and not p.pubtruncate and p.pubviaroot
		   and t.attnames::text[] @> '{position,stream_offset,payload}' and t.rowfilter = '(stream_offset IS NOT NULL)'
		from (select) o
		left join pg_publication p on p.pubname = 'leat_streams'
		left join pg_publication_tables t on t.pubname = p.pubname`)
}

// F32: whatever somebody makes of the publication under a running tail is noticed
// within seconds, told, and mended; subscribers miss nothing.
func TestF32PublicationAltered(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, harm, told string }{
		{"dropped", `drop publication leat_streams`, "leat_streams is gone"},
		{"renamed", `alter publication leat_streams rename to others`, "leat_streams is gone"},
		{"table taken out", `alter publication leat_streams drop table leat.events`, "altered: the table leat.events is not in it"},
		{"made for all", `drop publication leat_streams; create publication leat_streams for all tables`, "altered: it is for all tables"},
		{"update", `alter publication leat_streams set (publish = 'update')`, "altered: it publishes update instead of insert"},
		{"nothing", `alter publication leat_streams set (publish = '')`, "altered: it publishes nothing instead of insert"},
		{
			"partitions", `drop publication leat_streams;
				create publication leat_streams for table leat.events with (publish = 'insert', publish_via_partition_root = false)`,
			"altered: publish_via_partition_root is false",
		},
		{
			"filter", `alter publication leat_streams set table
				leat.events (position, at, stream_offset, channel_id, routing_key, content_type, headers, message_ids, origin_ids, payload)
				where (stream_offset > 1000)`,
			"altered: its row filter is (stream_offset > 1000)",
		},
		{
			"columns", `alter publication leat_streams set table leat.events (position, at) where (stream_offset is not null)`,
			"altered: its list of columns lacks stream_offset, ",
		},
		{
			"made again", `drop publication leat_streams;
				create publication leat_streams for table
				leat.events (position, at, stream_offset, channel_id, routing_key, content_type, headers, message_ids, origin_ids, payload)
				where (stream_offset is not null) with (publish = 'insert', publish_via_partition_root = true)`,
			"was altered, or made again",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			pool, address := dbtest.NewURL(t)
			hub := startHub(t, replication.HubConfig{Pool: pool})
			s := newStream(t, pool, "s")
			logger, lines := newLog()
			tl := startTail(t, pool, address, func(config *replication.TailConfig) {
				config.Sink, config.Wanted, config.Logger, config.PublicationEvery = hub, hub.Reading, logger, 100*time.Millisecond
			})
			r := read(t, s.subscribe(hub, eventstore.SubscribeRequest{Stream: "s"}))
			require.Eventually(t, func() bool { return tl.State().Slot != "" }, patience, 5*time.Millisecond)
			first := tl.State().Slot
			exec(t, pool, c.harm)
			// Nobody publishes: it is not the messages that tell.
			require.Eventually(t, func() bool { slot := tl.State().Slot; return slot != "" && slot != first }, patience, 5*time.Millisecond)
			require.True(t, whole(t, pool))
			s.append(3)
			r.until(s.next)
			require.Contains(t, lines.String(), c.told)
			require.Regexp(t, `level=WARN .*leat_streams`, lines.String())
			require.Contains(t, lines.String(), "the tail of the write-ahead log is back")
		})
	}
}

// F32: messages that come while the publication is wrong are missed by the tail, and
// by nobody else.
func TestF32PublicationAlteredUnderLoad(t *testing.T) {
	t.Parallel()
	pool, address := dbtest.NewURL(t)
	hub := startHub(t, replication.HubConfig{Pool: pool})
	s := newStream(t, pool, "s")
	tl := startTail(t, pool, address, func(config *replication.TailConfig) {
		config.Sink, config.Wanted, config.PublicationEvery = hub, hub.Reading, 50*time.Millisecond
	})
	r := read(t, s.subscribe(hub, eventstore.SubscribeRequest{Stream: "s"}))
	for i, harm := range []string{
		`drop publication leat_streams`,
		`alter publication leat_streams drop table leat.events`,
		`alter publication leat_streams set (publish = 'update')`,
		`drop publication leat_streams; create publication leat_streams for table leat.events with (publish_via_partition_root = false)`,
		`alter publication leat_streams set table leat.events where (stream_offset > 1000)`,
		`alter publication leat_streams set table leat.events (position, at)`,
	} {
		require.Eventually(t, func() bool { return tl.State().Slot != "" && tl.State().Reconnects >= i && whole(t, pool) }, patience, 5*time.Millisecond)
		s.append(10)
		exec(t, pool, harm)
		for range 20 {
			s.append(5)
		}
	}
	r.until(s.next)
}
