package archive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"

	"leat/api"
	"leat/api/client"
	"leat/eventstore"
)

// Source is the broker whose log is archived; *client.Client is one.
type Source interface {
	SealLog(ctx context.Context) (api.SealResult, error)
	VerifyLog(ctx context.Context, cursor, expect string) (api.ChainPage, error)
	CopyEvents(ctx context.Context, w io.Writer, f client.EventsFilter, config client.ReplayConfig) (eventstore.Position, error)
	NoteArchive(ctx context.Context, r api.ArchivedRange) (api.ArchiveResult, error)
}

// Write seals the log and brings the archive up to its end, with files of a format, ""
// for that of the last one. It answers the manifest and how many of its files are new.
// progress is told how far it is.
func Write(ctx context.Context, from Source, dir string, format Format, progress func(done, end eventstore.Position)) (m Manifest, added int, err error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return m, 0, fmt.Errorf("make the archive: %w", err)
	}
	unlock, err := lock(dir)
	if err != nil {
		return m, 0, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if m, err = begin(dir); err != nil {
		return m, 0, err
	}
	if format == "" {
		format = m.lastFormat()
	}
	if _, err := from.SealLog(ctx); err != nil {
		return m, 0, err
	}
	for _, f := range m.Files { // a run may have ended before it noted its last file
		if err := note(ctx, from, &f); err != nil && !left(err) {
			return m, 0, err
		}
	}
	for cursor, more := m.end(), true; more; added++ {
		page, err := from.VerifyLog(ctx, cursor, "")
		if err != nil {
			return m, added, err
		}
		if len(page.Faults) > 0 {
			f := page.Faults[0]
			return m, added, fmt.Errorf("the log is not what was sealed, or the archive is of another one: positions %d to %d: %s", f.From, f.To, f.Detail)
		}
		if page.Seals == 0 {
			break
		}
		f, err := writeFile(ctx, from, dir, format, &page)
		if err != nil {
			return m, added, fmt.Errorf("archive positions %d to %d: %w", page.From, page.To, err)
		}
		m.Files = append(m.Files, f)
		if err := m.save(dir); err != nil {
			return m, added, fmt.Errorf("write the manifest: %w", err)
		}
		if err := note(ctx, from, &f); err != nil {
			return m, added, err
		}
		progress(page.To, page.SettledPosition)
		cursor, more = f.cursor(), page.NextCursor != ""
	}
	return m, added, nil
}

// end is where the chain goes on behind the archive, "" where that is its beginning.
func (m *Manifest) end() string {
	if len(m.Files) == 0 {
		return ""
	}
	return m.Files[len(m.Files)-1].cursor()
}

// note has the log say that a file is there.
func note(ctx context.Context, from Source, f *File) error {
	_, err := from.NoteArchive(ctx, api.ArchivedRange{
		From: f.From, To: f.To, Events: f.Events, File: f.Name, SHA256: f.SHA256.String(), Digest: f.Digest.String(),
	})
	if err != nil {
		return fmt.Errorf("note the file %s in the log: %w", f.Name, err)
	}
	return nil
}

// left tells that a seal is not in the log: it may have left it. Whether it is another
// log is found when the chain is verified from there.
func left(err error) bool {
	p, ok := errors.AsType[*api.Problem](err)
	return ok && p.Code == eventstore.InvalidField
}

// writeFile copies the events of a page of the chain.
func writeFile(ctx context.Context, from Source, dir string, format Format, page *api.ChainPage) (File, error) {
	f := File{Name: fileName(format, page.From, page.To), Format: format, From: page.From, To: page.To, Seal: page.Seal}
	var err error
	if f.Digest, err = eventstore.ParseDigest(page.Digest); err != nil {
		return f, err
	}
	if f.Previous, err = eventstore.ParseDigest(page.Previous); err != nil {
		return f, err
	}
	err = replace(dir, f.Name, func(file *os.File) error {
		sum := sha256.New()
		size := &counter{to: io.MultiWriter(file, sum)}
		packed, err := format.codec().write(size)
		if err != nil {
			return err
		}
		lines := sha256.New()
		plain := &counter{to: io.MultiWriter(packed, lines)}
		_, err = from.CopyEvents(ctx, plain, client.EventsFilter{From: page.From, To: page.To}, client.ReplayConfig{})
		if err := errors.Join(err, packed.Close()); err != nil {
			return err
		}
		f.Events, f.Bytes, f.Size = plain.lines, plain.bytes, size.bytes
		sum.Sum(f.SHA256[:0])
		if f.Events != page.Events {
			return fmt.Errorf("the log gave %d events, and %d were sealed", f.Events, page.Events)
		}
		if format == Parquet {
			return proof(file, eventstore.Digest(lines.Sum(nil)))
		}
		return nil
	})
	return f, err
}

// proof reads a file that was just written: it has to give the lines back that went
// in. Whoever lets the log go because it is archived relies on what others wrote to
// pack it.
func proof(file *os.File, lines eventstore.Digest) error {
	sum := sha256.New()
	err := Parquet.codec().read(file, func(_ *api.Event, line []byte) error {
		sum.Write(line)
		sum.Write([]byte{'\n'})
		return nil
	})
	if err != nil {
		return fmt.Errorf("read back what was written: %w", err)
	}
	if eventstore.Digest(sum.Sum(nil)) != lines {
		return errors.New("read back what was written: other events than were written")
	}
	return nil
}

// counter counts what is written.
type counter struct {
	to    io.Writer
	bytes int64
	lines int64
}

func (c *counter) Write(data []byte) (int, error) {
	n, err := c.to.Write(data)
	c.bytes += int64(n)
	c.lines += int64(bytes.Count(data[:n], []byte{'\n'}))
	return n, err
}
