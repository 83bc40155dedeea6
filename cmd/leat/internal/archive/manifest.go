package archive

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"leat/eventstore"
)

const (
	manifestName   = "manifest.json"
	manifestFormat = "leat-archive-1"
)

// Manifest lists the files of an archive, in the order of the log.
type Manifest struct {
	Format string `json:"format"`
	Files  []File `json:"files"`
}

// File is a range of the log in a file.
type File struct {
	Name     string              `json:"file"`
	Format   Format              `json:"format"`
	From     eventstore.Position `json:"from"`
	To       eventstore.Position `json:"to"`
	Events   int64               `json:"events"`
	Bytes    int64               `json:"bytes"` // of the lines
	Size     int64               `json:"size"`  // of the file
	SHA256   eventstore.Digest   `json:"sha256"`
	Digest   eventstore.Digest   `json:"digest"`   // of the chain at To
	Previous eventstore.Digest   `json:"previous"` // and before From
	Seal     eventstore.Position `json:"seal"`     // the log.sealed event that ends it
}

// cursor is where the chain goes on behind the file.
func (f *File) cursor() string {
	return eventstore.ChainPoint{To: f.To, Digest: f.Digest, Seal: f.Seal}.String()
}

// Open reads the manifest of an archive, one without files where there is none, and
// looks whether its files are there.
func Open(dir string) (Manifest, error) {
	m := Manifest{Format: manifestFormat, Files: []File{}}
	text, err := os.ReadFile(filepath.Join(dir, manifestName))
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return m, fmt.Errorf("read the manifest: %w", err)
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fmt.Errorf("read %s: %w", filepath.Join(dir, manifestName), err)
	}
	return m, m.check(dir)
}

func (m *Manifest) check(dir string) error {
	if m.Format != manifestFormat {
		return fmt.Errorf("%s is of the format %q, not %q", filepath.Join(dir, manifestName), m.Format, manifestFormat)
	}
	for i := range m.Files {
		f := &m.Files[i]
		if f.Format == "" { // as it was before there was another
			f.Format = NDJSON
		}
		if _, err := ParseFormat(string(f.Format)); err != nil {
			return fmt.Errorf("the file %s of the manifest: %w", f.Name, err)
		}
		if f.Name != fileName(f.Format, f.From, f.To) {
			return fmt.Errorf("the manifest has a file %q for the positions %d to %d", f.Name, f.From, f.To)
		}
		if i > 0 && (f.From != m.Files[i-1].To+1 || f.Previous != m.Files[i-1].Digest) {
			return fmt.Errorf("the file %s of the manifest does not follow on %s", f.Name, m.Files[i-1].Name)
		}
		info, err := os.Stat(filepath.Join(dir, f.Name))
		if err != nil {
			return fmt.Errorf("a file of the manifest is not there: %w", err)
		}
		if info.Size() != f.Size {
			return fmt.Errorf("%s has %d bytes, and the manifest says %d: it was cut, or changed", filepath.Join(dir, f.Name), info.Size(), f.Size)
		}
	}
	return nil
}

func fileName(format Format, from, to eventstore.Position) string {
	return fmt.Sprintf("events-%019d-%019d%s", from, to, format.codec().extension())
}

// save replaces the manifest, in one step.
func (m *Manifest) save(dir string) error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return replace(dir, manifestName, func(file *os.File) error {
		_, err := file.Write(append(text, '\n'))
		return err
	})
}

// replace writes a file and gives it its name when all of it is on disk.
func replace(dir, name string, write func(*os.File) error) (err error) {
	path := filepath.Join(dir, name)
	file, err := os.CreateTemp(dir, name+".*.tmp")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = file.Close()
			_ = os.Remove(file.Name()) // what is left over does no harm
		}
	}()
	if err := write(file); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	if err := os.Rename(file.Name(), path); err != nil {
		return err
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
