package archive

import (
	"fmt"
	"io"
	"os"

	"leat/api"
)

// Format says how a file of an archive has its events.
type Format string

// The formats.
const (
	NDJSON  Format = "ndjson"  // lines, as GET /v1/events has them, in zstd
	Parquet Format = "parquet" // a table; see parquet.go for its columns
)

// ParseFormat accepts a format's name.
func ParseFormat(s string) (Format, error) {
	switch f := Format(s); f {
	case NDJSON, Parquet:
		return f, nil
	}
	return "", fmt.Errorf("parse format %q: neither %s nor %s", s, NDJSON, Parquet)
}

// codec packs lines into a file, and gives them back.
type codec interface {
	extension() string
	// write packs what is written to it, whole lines only, into a file, until it is
	// closed.
	write(to io.Writer) (io.WriteCloser, error)
	// read visits the events with their lines, without line feed, until the end or an
	// error.
	read(file *os.File, visit func(e *api.Event, line []byte) error) error
}

func (f Format) codec() codec {
	if f == Parquet {
		return parquetCodec{}
	}
	return ndjsonCodec{}
}

// lastFormat is how the archive goes on where nobody says another: as it was.
func (m *Manifest) lastFormat() Format {
	if len(m.Files) == 0 {
		return NDJSON
	}
	return m.Files[len(m.Files)-1].Format
}
