package archive_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"leat/api"
	"leat/cmd/leat/internal/archive"
	"leat/eventstore"
)

// damaged is an archive of one file to do harm to.
type damaged struct {
	t              *testing.T
	dir            string
	file, manifest string // their paths
	data, text     []byte // as they were
	name           string
	lines          log
}

func toDamage(t *testing.T, format archive.Format) *damaged {
	t.Helper()
	var events []api.Event
	for i := range 300 {
		e := message(fmt.Appendf(nil, `{"order":%d}`, i), api.ContentJSON, fmt.Sprintf(`{"n":"%x"}`, sha256.Sum256([]byte{byte(i)})))
		e.RoutingKey = new(fmt.Sprint("k.", i%7))
		events = append(events, e, api.Event{Kind: string(eventstore.MessageAcked), Messages: []eventstore.MessageID{eventstore.MessageID(i + 1)}})
	}
	d := &damaged{t: t, dir: t.TempDir(), lines: logOf(events...)}
	m, err := write(t, d.lines, d.dir, format)
	require.NoError(t, err)
	d.name = m.Files[0].Name
	d.file, d.manifest = filepath.Join(d.dir, d.name), filepath.Join(d.dir, "manifest.json")
	d.data, err = os.ReadFile(d.file)
	require.NoError(t, err)
	d.text, err = os.ReadFile(d.manifest)
	require.NoError(t, err)
	return d
}

func (d *damaged) put(data, text []byte) {
	d.t.Helper()
	require.NoError(d.t, os.WriteFile(d.file, data, 0o600))
	require.NoError(d.t, os.WriteFile(d.manifest, text, 0o600))
}

// matching is the manifest as whoever changed the file would make it.
func (d *damaged) matching(data []byte) []byte {
	d.t.Helper()
	var m archive.Manifest
	require.NoError(d.t, json.Unmarshal(d.text, &m))
	m.Files[0].SHA256, m.Files[0].Size = sha256.Sum256(data), int64(len(data))
	text, err := json.Marshal(m)
	require.NoError(d.t, err)
	return text
}

// places are some of 0 to n, its ends among them.
func places(n int) (list []int) {
	for i := 0; i < n-12; i += 1 + n/80 {
		list = append(list, i)
	}
	for i := max(0, n-12); i <= n; i++ {
		list = append(list, i)
	}
	return list
}

func flipped(data []byte, at int) []byte {
	bad := bytes.Clone(data)
	bad[at%len(bad)] ^= 0x21
	return bad
}

// G8: a file that was cut or changed, wherever that is, is refused by its name, and
// nothing of it is read.
func TestG8ArchiveDamagedAnywhere(t *testing.T) {
	t.Parallel()
	for _, format := range formats {
		d := toDamage(t, format)
		var all [][]byte
		for _, at := range places(len(d.data) - 1) {
			all = append(all, d.data[:at], flipped(d.data, at))
		}
		all = append(all, append(bytes.Clone(d.data), 0), append(bytes.Clone(d.data), d.data...))
		for _, bad := range all {
			d.put(bad, d.text)
			lines, err := read(t, d.dir)
			require.ErrorContains(t, err, d.name)
			require.Empty(t, lines)
		}
		require.NoError(t, os.Remove(d.file))
		_, err := read(t, d.dir)
		require.ErrorContains(t, err, d.name)
	}
}

// G8: where somebody made the manifest match what is left of a file, that is not taken
// for all; and what is no file of the format does no harm.
func TestG8ArchiveCutWithItsManifest(t *testing.T) {
	t.Parallel()
	for _, format := range formats {
		d := toDamage(t, format)
		for _, at := range places(len(d.data) - 1) {
			d.put(d.data[:at], d.matching(d.data[:at]))
			_, err := read(t, d.dir)
			require.ErrorContains(t, err, d.name)

			bad := flipped(d.data, at)
			d.put(bad, d.matching(bad))
			if lines, err := read(t, d.dir); err == nil {
				require.Len(t, lines, len(d.lines)) // it may say something else
			}
		}
	}
}

// G8: with a manifest that was cut or changed the archive is refused, or read whole: in
// part it is not without an error.
func TestG8ArchiveManifestDamaged(t *testing.T) {
	t.Parallel()
	for _, format := range formats {
		d := toDamage(t, format)
		refused := 0
		for _, at := range places(len(d.text) - 1) {
			for _, text := range [][]byte{d.text[:at], flipped(d.text, at)} {
				d.put(d.data, text)
				lines, err := read(t, d.dir)
				if err == nil {
					equalLogs(t, d.lines, lines)
					continue
				}
				refused++
			}
		}
		require.Greater(t, refused, 50)
	}
}
