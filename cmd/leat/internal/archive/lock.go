package archive

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"leat/eventstore"
)

// lock takes the folder for one writer. It is free when its owner ends, however that
// was.
func lock(dir string) (unlock func() error, err error) {
	folder, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("open the archive: %w", err)
	}
	if err := syscall.Flock(int(folder.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = folder.Close() // nothing was done with it
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s is being written by another leat archive", dir)
		}
		return nil, fmt.Errorf("lock the archive %s: %w", dir, err)
	}
	return folder.Close, nil
}

// begin reads the manifest of an archive that is to grow, which is there before its
// first file is, and removes what a run left that was killed: files that are unfinished,
// or that no manifest came to name. Only who has the lock may.
func begin(dir string) (m Manifest, err error) {
	if m, err = Open(dir); err != nil {
		return m, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return m, err
	}
	known := false
	var left []string
	for _, entry := range entries {
		name := entry.Name()
		switch from, finished := beginsAt(name); {
		case name == manifestName:
			known = true
		case finished && from > m.last(), isTemporary(name):
			left = append(left, name)
		}
	}
	if !known {
		for _, name := range left {
			if !isTemporary(name) {
				return m, fmt.Errorf("%s has %s, but no %s: put it back, or archive into another folder", dir, name, manifestName)
			}
		}
		if err := m.save(dir); err != nil {
			return m, fmt.Errorf("write the manifest: %w", err)
		}
	}
	for _, name := range left {
		err = errors.Join(err, os.Remove(filepath.Join(dir, name)))
	}
	return m, err
}

// last is the last position of the archive.
func (m *Manifest) last() eventstore.Position {
	if len(m.Files) == 0 {
		return 0
	}
	return m.Files[len(m.Files)-1].To
}

// beginsAt is the first position of a finished file, by its name.
func beginsAt(name string) (from eventstore.Position, ok bool) {
	for _, f := range []Format{NDJSON, Parquet} {
		var to eventstore.Position
		n, err := fmt.Sscanf(name, "events-%d-%d"+f.codec().extension(), &from, &to)
		if err == nil && n == 2 && name == fileName(f, from, to) {
			return from, true
		}
	}
	return 0, false
}

func isTemporary(name string) bool {
	ours := strings.HasPrefix(name, "events-") || strings.HasPrefix(name, manifestName+".")
	return ours && strings.HasSuffix(name, ".tmp")
}
