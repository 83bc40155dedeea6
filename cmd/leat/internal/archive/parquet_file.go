package archive

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/parquet-go/parquet-go"

	"leat/api"
)

// What is in memory at once is bounded, and so is what a reader has to read for one
// row.
const (
	groupBytes = 32 << 20 // of lines in a row group, but for a last one that is longer
	groupRows  = 100_000
	batchRows  = 64 // that are handed over at once
	batchBytes = 256 << 10
)

type parquetCodec struct{}

func (parquetCodec) extension() string { return ".parquet" }

func (parquetCodec) write(to io.Writer) (io.WriteCloser, error) {
	options := []parquet.WriterOption{
		schema,
		parquet.Compression(&parquet.Zstd),
		// What more readers know.
		parquet.DataPageVersion(1),
		parquet.DefaultEncodingFor(parquet.ByteArray, &parquet.Plain),
		parquet.DataPageStatistics(false), // row groups have them
		parquet.DictionaryMaxBytes(1 << 20),
		parquet.SortingWriterConfig(parquet.SortingColumns(parquet.Ascending("position"))),
	}
	for _, blob := range []string{"payload", "headers", "data"} { // whose bounds would be as long as they are
		options = append(options, parquet.SkipPageBounds(blob))
	}
	out := &footerHolder{to: to}
	return &parquetWriter{out: out, table: parquet.NewGenericWriter[any](out, options...)}, nil
}

// parquetWriter makes rows of lines.
type parquetWriter struct {
	out        *footerHolder
	table      *parquet.GenericWriter[any]
	rows       []parquet.Row
	bytes      int    // of the lines of rows
	groupRows  int    // that the row group has
	groupBytes int    // of their lines
	line       []byte // what a row will give back
}

// Write takes whole lines.
func (w *parquetWriter) Write(lines []byte) (int, error) {
	for line := range bytes.Lines(lines) {
		if err := w.add(line); err != nil {
			return 0, err
		}
	}
	return len(lines), nil
}

func (w *parquetWriter) add(line []byte) error {
	var e api.Event
	if err := json.Unmarshal(line, &e); err != nil {
		return fmt.Errorf("read an event: %w", err)
	}
	n := len(w.rows)
	if w.rows = w.rows[:min(n+1, cap(w.rows))]; len(w.rows) == n {
		w.rows = append(w.rows, nil)
	}
	w.rows[n] = rowOf(w.rows[n][:0], &e)
	if same, err := eventOf(w.rows[n]); err != nil || !bytes.Equal(w.lineOf(same), line) {
		return fmt.Errorf("the event at position %d has what a Parquet file of this version does not keep; "+
			"archive it with the broker's version, or as %s", e.Position, NDJSON)
	}
	w.bytes += len(line)
	if len(w.rows) < batchRows && w.bytes < batchBytes {
		return nil
	}
	return w.pass()
}

func (w *parquetWriter) lineOf(e *api.Event) []byte {
	w.line = e.AppendLine(w.line[:0])
	return w.line
}

// pass hands the rows over, and ends the row group that is large enough.
func (w *parquetWriter) pass() error {
	return guarded(func() error {
		if _, err := w.table.WriteRows(w.rows); err != nil {
			return err
		}
		w.groupRows += len(w.rows)
		w.groupBytes += w.bytes
		w.rows, w.bytes = w.rows[:0], 0
		if w.groupRows < groupRows && w.groupBytes < groupBytes {
			return nil
		}
		w.groupRows, w.groupBytes = 0, 0
		return w.table.Flush()
	})
}

// Close writes the end of the file.
func (w *parquetWriter) Close() error {
	if err := w.pass(); err != nil {
		return err
	}
	return guarded(func() error {
		if err := w.table.Flush(); err != nil {
			return err
		}
		w.out.holding = true
		return errors.Join(w.table.Close(), w.out.pass())
	})
}

func (parquetCodec) read(file *os.File, visit func(e *api.Event, line []byte) error) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	var table *parquet.File
	err = guarded(func() (err error) {
		table, err = parquet.OpenFile(file, info.Size(), parquet.ReadBufferSize(64<<10))
		return err
	})
	if err != nil {
		return err
	}
	if !parquet.EqualNodes(table.Schema(), schema) {
		return errors.New("it has other columns than an archive of this version")
	}
	for _, group := range table.RowGroups() {
		if err := readGroup(group, visit); err != nil {
			return err
		}
	}
	return nil
}

// readGroup reads a row group, some rows at once.
func readGroup(group parquet.RowGroup, visit func(e *api.Event, line []byte) error) (err error) {
	from := group.Rows()
	defer func() { err = errors.Join(err, from.Close()) }()
	rows := make([]parquet.Row, batchRows)
	var line []byte
	for left := group.NumRows(); left > 0; {
		n, err := readRows(from, rows)
		if err != nil {
			return err
		}
		for _, r := range rows[:n] {
			e, err := eventOf(r)
			if err != nil {
				return err
			}
			line = e.AppendLine(line[:0])
			if err := visit(e, line[:len(line)-1]); err != nil {
				return err
			}
		}
		left -= int64(n)
	}
	return nil
}

// readRows reads at least one row, or says why there is none.
func readRows(from parquet.RowReader, rows []parquet.Row) (n int, err error) {
	err = guarded(func() (err error) {
		n, err = from.ReadRows(rows)
		return err
	})
	switch {
	case n > 0 && (err == nil || errors.Is(err, io.EOF)):
		return n, nil
	case err == nil || errors.Is(err, io.EOF):
		return 0, io.ErrUnexpectedEOF
	}
	return 0, err
}

// guarded makes an error of what the library panics over.
func guarded(do func() error) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("parquet: %v", fault)
		}
	}()
	return do()
}
