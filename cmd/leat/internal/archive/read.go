package archive

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

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
		return fmt.Errorf("there is no archive in %s: it has no %s that names a file", dir, manifestName)
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
		err := f.each(dir, func(e *api.Event, line []byte) error {
			if e.Position < first || (last > 0 && e.Position > last) {
				return nil
			}
			more, err := visit(e, line)
			if err == nil && !more {
				return errStop
			}
			return err
		})
		if errors.Is(err, errStop) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// verify holds a file against the manifest. Of lines that differ it says how far they
// can be read.
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
	if f.Format == Parquet { // what is wrong in one may be anything, and its end says where to begin
		return fmt.Errorf("%s is not what was archived: its SHA-256 differs from the manifest's", path)
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

// errStop ends a visit that has seen enough. It is not io.EOF, which is also what a
// file that was cut may give.
var errStop = errors.New("enough")

// each visits the events of a file, until the end or an error.
func (f *File) each(dir string, visit func(e *api.Event, line []byte) error) (err error) {
	file, err := os.Open(filepath.Join(dir, f.Name))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	var (
		events int64
		failed error // the visitor
	)
	err = f.Format.codec().read(file, func(e *api.Event, line []byte) error {
		events++
		failed = visit(e, line)
		return failed
	})
	switch {
	case failed != nil:
		return failed
	case err != nil:
		return fmt.Errorf("read %s: %w", f.Name, err)
	case events != f.Events:
		return fmt.Errorf("%s has %d events, and the manifest says %d", f.Name, events, f.Events)
	}
	return nil
}
