package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"leat/cmd/leat/internal/archive"
	"leat/eventstore"
	"leat/migrations/dbtest"
)

// archived is a broker with a log in an archive of two files, each in its format.
func archived(t *testing.T, formats ...string) (broker *process, dir string, m archive.Manifest) {
	t.Helper()
	_, database := dbtest.NewURL(t)
	broker = serveProcess(t, "--database-url", database)
	dir = filepath.Join(t.TempDir(), "archive")
	broker.leat("channel", "declare", "orders")
	for n, format := range formats {
		broker.leat("publish", "orders", `{"order": 471`+string('1'+rune(n))+`}`, "--key", "k")
		require.NotContains(t, broker.leat("archive", "--to", dir, "--format", format), "already")
	}
	m = value[archive.Manifest](broker, "archive", "--to", dir)
	require.Len(t, m.Files, 2)
	require.Contains(t, broker.leat("archive", "--to", dir), "already")
	return broker, dir, m
}

// What an archive gives is what the log gives, by the same filters, whatever the
// formats of its files.
func TestArchive(t *testing.T) {
	t.Parallel()
	for _, formats := range [][]string{{"ndjson", "ndjson"}, {"parquet", "parquet"}, {"ndjson", "parquet"}} {
		t.Run(strings.Join(formats, " and "), func(t *testing.T) {
			t.Parallel()
			broker, dir, m := archived(t, formats...)
			last := m.Files[len(m.Files)-1].To.String()
			require.Equal(t, broker.leat("replay", "--to", last), broker.leat("replay", "--archive", dir))
			for _, filter := range []string{
				"--channel orders", "--kind message.published", "--key k", "--from 2 --to 3", "--actor tester", "--since 1h", "--until 1h", "-n 2",
				"--message 2", "-o table --kind channel.declared",
			} {
				args := strings.Fields("replay " + filter)
				if !strings.Contains(filter, "--to") {
					args = append(args, "--to", last)
				}
				require.Equal(t, broker.leat(args...), broker.leat(append(args, "--archive", dir)...), filter)
			}
			require.Equal(t, 2, strings.Count(broker.leat("replay", "--kind", "log.archived"), "sha256"))
			require.Contains(t, broker.leat("verify", "--chain"), "the log is what was sealed")

			// It goes on as it was.
			broker.leat("archive", "--to", dir)
			broker.leat("publish", "orders", "1")
			m = value[archive.Manifest](broker, "archive", "--to", dir)
			require.EqualValues(t, formats[1], m.Files[len(m.Files)-1].Format)
			require.Contains(t, broker.exits(exitUsage, "", "archive", "--to", dir, "--format", "csv").errs, "--format must be ndjson or parquet")
		})
	}
}

// An event of each kind, with everything that a row of the log can have, and with
// nothing; and one that is as large as they come by default in a request.
const everythingSQL = `-- cmd.everything
with numbered as (
    select kind, ordinality as n
    from unnest(enum_range(null::leat.event_kind)) with ordinality as k (kind, ordinality)
)
insert into leat.events (at, kind, channel_id, delivery, stream_offset, due_at, expires_at, priority, routing_key, content_type,
                         actor, headers, message_ids, message_ranges, origin_ids, data, payload)
select '2026-02-28 23:59:59.999999+00'::timestamptz + n * interval '1 us', n.kind, c.id, n, n - 1,
       '2026-03-01 00:00:00.000001+05:30'::timestamptz, '9999-12-31 23:59:59.999999+00'::timestamptz, 9, 'ключ.' || n, 'text/plain',
       E'\u2028<ä> "&"', '{"x-ä": ["\\u0001"], "n": 1.10}'::jsonb, array[n, n + 1], null::int8multirange, array[9223372036854775807, 1],
       '{"b": null, "a": [9007199254740993]}'::jsonb, decode('00ff0a', 'hex')
from numbered n, (select id from leat.channels where name = 'orders') c
union all
select clock_timestamp(), n.kind, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null
from numbered n
union all
select clock_timestamp(), n.kind, null, null, 0, null, null, 0, '', 'application/json', '', '{}', '{}',
       int8multirange(int8range(1, 2), int8range(5, 9223372036854775807)), null, 'null', ''
from numbered n
union all
select clock_timestamp(), 'message.published', null, null, null, null, null, null, null, null, null, null, null, null, null, null,
       convert_to('"' || repeat('0123456789äöüß', 800000) || '"', 'UTF8')`

// G8: an archive has every kind of event as GET /v1/events has it, byte for byte.
func TestG8ArchiveOfEveryKind(t *testing.T) {
	t.Parallel()
	pool, database := dbtest.NewURL(t)
	broker := serveProcess(t, "--database-url", database, "--projections=false")
	broker.leat("channel", "declare", "orders")
	_, err := pool.Exec(t.Context(), everythingSQL)
	require.NoError(t, err)
	for _, format := range []string{"ndjson", "parquet"} {
		dir := filepath.Join(t.TempDir(), format)
		m := value[archive.Manifest](broker, "archive", "--to", dir, "--format", format)
		last := m.Files[len(m.Files)-1].To.String()
		kept := broker.leat("replay", "--archive", dir)
		if kept != broker.leat("replay", "--to", last) { // they are too long to print
			t.Fatal("the archive is not the log")
		}
		for _, kind := range eventstore.Kinds() {
			require.GreaterOrEqual(t, strings.Count(kept, `"kind":"`+string(kind)+`"`), 3)
		}
	}
}

// A run that broke off leaves a file that no manifest names, or one that the log does
// not know of; the next one goes on.
func TestArchiveGoesOn(t *testing.T) {
	t.Parallel()
	broker, dir, m := archived(t, "ndjson", "ndjson")
	last := m.Files[len(m.Files)-1].To.String()
	whole := broker.leat("replay", "--archive", dir)
	kept := m
	kept.Files = kept.Files[:1]
	text, err := json.Marshal(kept)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "manifest.json"), text, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, m.Files[1].Name), []byte("half"), 0o600))
	broker.leat("archive", "--to", dir)
	require.Equal(t, whole, broker.leat("replay", "--archive", dir, "--to", last))
}

// G8: what is cut, changed or lost is told by its name.
func TestArchiveDamaged(t *testing.T) {
	t.Parallel()
	broker, dir, m := archived(t, "ndjson", "ndjson")
	path := filepath.Join(dir, m.Files[0].Name)
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	bad := append([]byte{}, good...)
	bad[len(bad)/2] ^= 1
	for says, data := range map[string][]byte{
		"it was cut": good[:len(good)-3], "is damaged behind position": bad, "was cut, or changed": {},
	} {
		require.NoError(t, os.WriteFile(path, data, 0o600))
		got := broker.exits(exitFailed, "", "replay", "--archive", dir)
		require.Contains(t, got.errs, says)
		require.Contains(t, got.errs, m.Files[0].Name)
		require.Empty(t, got.out)
	}
	require.NoError(t, os.Remove(path))
	require.Contains(t, broker.exits(exitFailed, "", "archive", "--to", dir).errs, m.Files[0].Name)
}

// The archive of one log does not go on with another.
func TestArchiveOfAnotherLog(t *testing.T) {
	t.Parallel()
	_, dir, _ := archived(t, "ndjson", "ndjson")
	other, _, _ := archived(t, "parquet", "parquet")
	require.Contains(t, other.exits(exitFailed, "", "archive", "--to", dir).errs, "another one")
}
