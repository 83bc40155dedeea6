package archive

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"

	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// footerHolder passes on what is written, until it is to hold the end back.
type footerHolder struct {
	to      io.Writer
	passed  int64
	holding bool
	held    bytes.Buffer
}

func (h *footerHolder) Write(data []byte) (int, error) {
	if h.holding {
		return h.held.Write(data)
	}
	n, err := h.to.Write(data)
	h.passed += int64(n)
	return n, err
}

// pass writes what was held back, but for the page index. The library has no way to
// leave it out, and what it says of the columns without bounds is wrong: that they are
// empty, so that readers would pass over pages that have what they look for. The row
// groups are small enough, and have bounds of their own.
func (h *footerHolder) pass() error {
	const tail = 8 // the footer's size, and PAR1
	data := h.held.Bytes()
	if len(data) < tail {
		return errors.New("parquet: a file without a footer")
	}
	size := int64(binary.LittleEndian.Uint32(data[len(data)-tail:]))
	begin := int64(len(data)-tail) - size // of the footer
	if begin < 0 {
		return errors.New("parquet: a footer that is longer than what was written last")
	}
	var meta format.FileMetaData
	protocol := &thrift.CompactProtocol{}
	if err := thrift.Unmarshal(protocol, data[begin:begin+size], &meta); err != nil {
		return err
	}
	end := begin // of the row groups
	for _, group := range meta.RowGroups {
		for i := range group.Columns {
			c := &group.Columns[i]
			end = min(end, c.ColumnIndexOffset-h.passed, c.OffsetIndexOffset-h.passed)
			c.ColumnIndexOffset, c.ColumnIndexLength = 0, 0
			c.OffsetIndexOffset, c.OffsetIndexLength = 0, 0
		}
	}
	if end < 0 {
		return errors.New("parquet: a page index where none is expected")
	}
	footer, err := thrift.Marshal(protocol, &meta)
	if err != nil {
		return err
	}
	whole := append(bytes.Clone(data[:end]), footer...)
	whole = binary.LittleEndian.AppendUint32(whole, uint32(len(footer)))
	_, err = h.to.Write(append(whole, data[len(data)-4:]...))
	return err
}
