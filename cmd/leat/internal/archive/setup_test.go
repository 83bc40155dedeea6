package archive_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"leat/api"
	"leat/api/client"
	"leat/cmd/leat/internal/archive"
	"leat/eventstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// log is a broker with a log of lines, each of whose positions is one more than that
// of the line before, all in one page of the chain.
type log [][]byte

func (l log) SealLog(context.Context) (api.SealResult, error) { return api.SealResult{}, nil }

func (l log) VerifyLog(_ context.Context, cursor, _ string) (api.ChainPage, error) {
	if cursor != "" {
		return api.ChainPage{}, nil
	}
	end := eventstore.Position(len(l))
	return api.ChainPage{
		Seals: 1, Events: int64(len(l)), From: 1, To: end, Seal: end + 1, SettledPosition: end + 1,
		Digest:   eventstore.Digest(sha256.Sum256([]byte("digest"))).String(),
		Previous: eventstore.Digest{}.String(),
	}, nil
}

func (l log) CopyEvents(_ context.Context, w io.Writer, _ client.EventsFilter, _ client.ReplayConfig) (eventstore.Position, error) {
	for len(l) > 0 {
		n := min(len(l), 7) // some lines at once, as from a broker
		if _, err := w.Write(bytes.Join(l[:n], nil)); err != nil {
			return 0, err
		}
		l = l[n:]
	}
	return 0, nil
}

func (l log) NoteArchive(context.Context, api.ArchivedRange) (api.ArchiveResult, error) {
	return api.ArchiveResult{}, nil
}

// logOf numbers events and makes their lines.
func logOf(events ...api.Event) (l log) {
	for i, e := range events {
		e.Position = eventstore.Position(i + 1)
		if e.At.IsZero() {
			e.At = time.UnixMicro(1_700_000_000_000_000 + int64(i)).UTC()
		}
		l = append(l, e.AppendLine(nil))
	}
	return l
}

func write(t require.TestingT, l log, dir string, format archive.Format) (archive.Manifest, error) {
	if h, ok := t.(*testing.T); ok {
		h.Helper()
	}
	m, _, err := archive.Write(context.Background(), l, dir, format, func(_, _ eventstore.Position) {})
	return m, err
}

// read gives the lines of an archive, which have to be of the events beside them.
func read(t require.TestingT, dir string) (lines log, err error) {
	if h, ok := t.(*testing.T); ok {
		h.Helper()
	}
	err = archive.Read(dir, 0, 0, func(e *api.Event, line []byte) (bool, error) {
		lines = append(lines, append(bytes.Clone(line), '\n'))
		if same := e.AppendLine(nil); !bytes.Equal(same, lines[len(lines)-1]) {
			return false, fmt.Errorf("%.1000q beside the line %.1000q", same, line)
		}
		return true, nil
	})
	return lines, err
}

// equalLogs does not print what is very long.
func equalLogs(t require.TestingT, want, got log) {
	if h, ok := t.(*testing.T); ok {
		h.Helper()
	}
	require.Len(t, got, len(want))
	for i := range want {
		if !bytes.Equal(want[i], got[i]) {
			require.Equal(t, string(want[i][:min(len(want[i]), 2000)]), string(got[i][:min(len(got[i]), 2000)]), "line %d", i)
			require.Len(t, got[i], len(want[i]), "line %d", i)
			require.Fail(t, "differs far behind", "line %d", i)
		}
	}
}

var formats = []archive.Format{archive.NDJSON, archive.Parquet}
