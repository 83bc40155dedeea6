package archive

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/klauspost/compress/zstd"

	"leat/api"
)

// maxLine is more than an event can have: 64 MiB of payload in base64, and the rest.
const maxLine = 256 << 20

type ndjsonCodec struct{}

func (ndjsonCodec) extension() string { return ".ndjson.zst" }

func (ndjsonCodec) write(to io.Writer) (io.WriteCloser, error) {
	return zstd.NewWriter(to, zstd.WithEncoderConcurrency(1))
}

func (ndjsonCodec) read(file *os.File, visit func(e *api.Event, line []byte) error) error {
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
			return fmt.Errorf("read an event: %w", err)
		}
		if err := visit(&e, lines.Bytes()); err != nil {
			return err
		}
	}
	return lines.Err()
}
