package archive_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"

	"leat/api"
	"leat/api/client"
	"leat/cmd/leat/internal/archive"
	"leat/eventstore"
)

// What the README says that readers find.
const tableColumns = `message columns {
	required int64 position (INT(64,true));
	required int64 at (TIMESTAMP(isAdjustedToUTC=true,unit=MICROS));
	required binary kind (STRING);
	optional binary channel (STRING);
	optional binary actor (STRING);
	optional group messageIds (LIST) {
		repeated group list {
			required int64 element (INT(64,true));
		}
	}
	optional group messageRanges (LIST) {
		repeated group list {
			required group element {
				required int64 first (INT(64,true));
				required int64 last (INT(64,true));
			}
		}
	}
	optional group originMessageIds (LIST) {
		repeated group list {
			required int64 element (INT(64,true));
		}
	}
	optional int64 delivery (INT(64,true));
	optional int64 offset (INT(64,true));
	optional int64 dueAt (TIMESTAMP(isAdjustedToUTC=true,unit=MICROS));
	optional int64 expiresAt (TIMESTAMP(isAdjustedToUTC=true,unit=MICROS));
	optional binary routingKey (STRING);
	optional int32 priority (INT(32,true));
	optional binary payload;
	optional binary contentType (STRING);
	optional binary headers (JSON);
	optional binary data (JSON);
}`

// A table has the columns that are documented, in bounded row groups, with bounds by
// which readers leave groups out; and none where those would be long or wrong.
func TestParquetTable(t *testing.T) {
	t.Parallel()
	events := make([]api.Event, 101_000)
	for i := range events {
		events[i] = message(fmt.Append(nil, i), api.ContentJSON, "{}")
	}
	table, done := openTable(t, logOf(events...))
	defer done()
	require.Equal(t, tableColumns, table.Schema().String())
	groups := table.Metadata().RowGroups
	require.Len(t, groups, 2)
	last := int64(0)
	for _, group := range groups {
		require.LessOrEqual(t, group.NumRows, int64(100_100))
		require.Len(t, group.SortingColumns, 1)
		for i := range group.Columns {
			c := &group.Columns[i]
			require.Equal(t, "ZSTD", c.MetaData.Codec.String())
			require.Zero(t, c.ColumnIndexOffset)
			require.Zero(t, c.OffsetIndexLength)
			switch path := table.Schema().Columns()[i]; path[0] {
			case "position":
				require.Equal(t, last+1, parquet.Int64.Value(c.MetaData.Statistics.MinValue).Int64())
				last += group.NumRows
				require.Equal(t, last, parquet.Int64.Value(c.MetaData.Statistics.MaxValue).Int64())
			case "payload", "headers", "data":
				require.Empty(t, c.MetaData.Statistics.MaxValue, path)
			}
		}
	}
}

// The library's own reader of Go types reads it too.
func TestParquetByColumns(t *testing.T) {
	t.Parallel()
	e := message([]byte(`{"order":4711}`), api.ContentJSON, `{"a":1}`)
	e.At, e.RoutingKey = time.UnixMicro(1_800_000_000_000_001).UTC(), new("k")
	table, done := openTable(t, logOf(e, api.Event{
		Kind: "message.acked", At: e.At, Messages: []eventstore.MessageID{1, 7},
		Ranges: [][2]eventstore.MessageID{{1, 2}},
	}))
	defer done()
	type row struct {
		Position   int64     `parquet:"position"`
		At         time.Time `parquet:"at,timestamp(microsecond)"`
		Kind       string    `parquet:"kind"`
		Messages   []int64   `parquet:"messageIds,optional,list"`
		RoutingKey *string   `parquet:"routingKey"`
		Payload    []byte    `parquet:"payload,optional"`
	}
	from := parquet.NewGenericReader[row](table)
	rows := make([]row, 2)
	n, err := from.Read(rows)
	if err != nil {
		require.ErrorIs(t, err, io.EOF)
	}
	require.NoError(t, from.Close())
	require.Equal(t, 2, n)
	for i := range rows {
		rows[i].At = rows[i].At.UTC()
	}
	require.Equal(t, []row{
		{Position: 1, At: e.At, Kind: "message.published", RoutingKey: new("k"), Payload: []byte(`{"order":4711}`)},
		{Position: 2, At: e.At, Kind: "message.acked", Messages: []int64{1, 7}},
	}, rows)
}

func openTable(t *testing.T, l log) (table *parquet.File, done func()) {
	t.Helper()
	dir := t.TempDir()
	m, err := write(t, l, dir, archive.Parquet)
	require.NoError(t, err)
	file, err := os.Open(filepath.Join(dir, m.Files[0].Name))
	require.NoError(t, err)
	table, err = parquet.OpenFile(file, m.Files[0].Size)
	require.NoError(t, err)
	return table, func() { require.NoError(t, file.Close()) }
}

// meanwhile does something while its log is copied.
type meanwhile struct {
	log
	do func()
}

func (l meanwhile) CopyEvents(ctx context.Context, w io.Writer, f client.EventsFilter, config client.ReplayConfig) (eventstore.Position, error) {
	l.do()
	return l.log.CopyEvents(ctx, w, f, config)
}

// Two runs do not write into one archive at once. What a run left that was killed is
// removed by the next one, and nothing else.
func TestArchiveHasOneWriter(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put := func(names ...string) {
		for _, name := range names {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
		}
	}
	const unnamed = "events-0000000000000000001-0000000000000000007.parquet"
	l := logOf(edges()...)
	behind := fmt.Sprintf("events-%019d-%019d.parquet", len(l)+1, len(l)+7)
	put(unnamed)
	_, err := write(t, l, dir, archive.NDJSON)
	require.ErrorContains(t, err, unnamed+", but no manifest.json")
	require.NoError(t, os.Remove(filepath.Join(dir, unnamed)))

	put("events-1-2.parquet.123.tmp", "manifest.json.7.tmp", "mine.tmp", "events.txt")
	_, _, err = archive.Write(t.Context(), meanwhile{l, func() {
		put(unnamed, behind)
		_, err := write(t, l, dir, archive.NDJSON)
		require.ErrorContains(t, err, "is being written by another leat archive")
	}}, dir, archive.NDJSON, func(_, _ eventstore.Position) {})
	require.NoError(t, err)
	_, err = write(t, l, dir, archive.NDJSON)
	require.NoError(t, err)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	// Nobody knows what the file is that is not behind the end.
	require.Equal(t, []string{unnamed, fmt.Sprintf("events-%019d-%019d.ndjson.zst", 1, len(l)), "events.txt", "manifest.json", "mine.tmp"}, names)
	got, err := read(t, dir)
	require.NoError(t, err)
	equalLogs(t, l, got)
}
