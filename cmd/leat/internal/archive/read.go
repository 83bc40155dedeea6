package archive

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"

	"leat/api"
	"leat/eventstore"
)

// Read visits the events of an archive whose positions are from a first to a last
// one, 0 for no bound, each with its line. A file is held against its digest before
// anything of it is visited.
func Read(dir string, first, last eventstore.Position, visit func(e *api.Event, line []byte) (more bool, err error)) error {
	m, err := Open(dir)
	if err != nil {
		return err
	}
	if len(m.Files) == 0 {
		return fmt.Errorf("there is no archive in %s: it has no %s", dir, manifestName)
	}
	if begin := m.Files[0].From; first > 0 && first < begin {
		return fmt.Errorf("the archive begins at position %d", begin)
	}
	for _, f := range m.Files {
		if f.To < first || (last > 0 && f.From > last) {
			continue
		}
		if err := f.verify(dir); err != nil {
			return err
		}
		more := true
		err := f.each(dir, func(e *api.Event, line []byte) (err error) {
			if e.Position >= first && (last == 0 || e.Position <= last) {
				if more, err = visit(e, line); err == nil && !more {
					return io.EOF
				}
			}
			return err
		})
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// verify holds a file against the manifest. Of one that differs it says how far it can
// be read.
func (f *File) verify(dir string) error {
	path := filepath.Join(dir, f.Name)
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	sum := sha256.New()
	_, err = io.Copy(sum, file)
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	if eventstore.Digest(sum.Sum(nil)) == f.SHA256 {
		return nil
	}
	last := f.From - 1
	err = f.each(dir, func(e *api.Event, _ []byte) error {
		last = e.Position
		return nil
	})
	if err == nil {
		return fmt.Errorf("%s is not what was archived: its SHA-256 differs from the manifest's, though it can be read to its end", path)
	}
	return fmt.Errorf("%s is not what was archived: it is damaged behind position %d: %w", path, last, err)
}

// maxLine is more than an event can have: 64 MiB of payload in base64, and the rest.
const maxLine = 256 << 20

// each visits the events of a file, until the end or io.EOF.
func (f *File) each(dir string, visit func(e *api.Event, line []byte) error) (err error) {
	file, err := os.Open(filepath.Join(dir, f.Name))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	packed, err := zstd.NewReader(file, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return err
	}
	defer packed.Close()
	lines := bufio.NewScanner(packed)
	lines.Buffer(make([]byte, 1<<16), maxLine)
	for lines.Scan() {
		var e api.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return fmt.Errorf("read an event of %s: %w", f.Name, err)
		}
		switch err := visit(&e, lines.Bytes()); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
	return lines.Err()
}
