package eventstore

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"strconv"

	"github.com/jackc/pgx/v5"
)

// canonicalColumns are the columns of the log, in the order in which they are
// digested. Each value is its length, in 4 bytes, and its binary form on
// PostgreSQL's wire, which has been the same since long before PostgreSQL 15 and does
// not depend on settings; of null, the length is -1. Of jsonb that form is text, in
// the one spelling that jsonb has.
const canonicalColumns = `e.position,
       e.at,
       e.delivery,
       e.stream_offset,
       e.due_at,
       e.expires_at,
       e.channel_id,
       e.kind,
       e.priority,
       e.routing_key,
       e.content_type,
       e.actor,
       e.headers,
       e.message_ids,
       e.origin_ids,
       e.data,
       e.payload,
       e.message_ranges`

// Columns of canonicalColumns that are looked at.
const (
	positionColumn = 0
	kindColumn     = 7
	dataColumn     = 15
	columnCount    = 18
)

const readRangeSQL = `-- eventstore.readRange
select ` + canonicalColumns + `
from leat.events e
where e.position > $1
  and e.position <= $2
order by e.position
limit $3`

// A log that was never analyzed would be sorted, and a session may speak another
// encoding.
const rangeSettingsSQL = `-- eventstore.rangeSettings
select set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true),
       set_config('jit', 'off', true),
       set_config('client_encoding', 'UTF8', true)`

// readRange visits the events behind after, up to and with to, in their order and
// binary form, at most so many unless that is 0. The values are the connection's
// memory, until the next visit.
func readRange(ctx context.Context, tx pgx.Tx, after, to Position, most int, visit func(row [][]byte) error) (err error) {
	if _, err := tx.Exec(ctx, rangeSettingsSQL); err != nil {
		return fmt.Errorf("read the log: %w", FromPg(err))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	params := [][]byte{[]byte(after.String()), []byte(to.String()), nil}
	if most > 0 {
		params[2] = []byte(strconv.Itoa(most))
	}
	result := tx.Conn().PgConn().ExecParams(ctx, readRangeSQL, params, nil, nil, []int16{pgx.BinaryFormatCode})
	for result.NextRow() {
		row := result.Values()
		if len(row) != columnCount {
			err = fmt.Errorf("an event has %d columns, not %d", len(row), columnCount)
		} else {
			err = visit(row)
		}
		if err != nil {
			cancel() // or all the rest would be read
			break
		}
	}
	if _, closing := result.Close(); err == nil && closing != nil {
		err = fmt.Errorf("read the log: %w", FromPg(closing))
	}
	return err
}

// positionOf reads the position of a row.
func positionOf(row [][]byte) (Position, error) {
	if len(row[positionColumn]) != 8 {
		return 0, fmt.Errorf("a position has %d bytes", len(row[positionColumn]))
	}
	return Position(binary.BigEndian.Uint64(row[positionColumn])), nil
}

// flushAt is how many bytes are gathered for the hash: short pieces are dear.
const flushAt = 32 << 10

// hasher digests events in their canonical form.
type hasher struct {
	hash   hash.Hash
	buffer []byte
}

// add takes an event, and answers how many bytes it has.
func (h *hasher) add(row [][]byte) (size int64) {
	if h.hash == nil {
		h.hash = sha256.New()
	}
	for _, value := range row {
		size += 4 + int64(len(value))
		if value == nil {
			h.buffer = append(h.buffer, 0xff, 0xff, 0xff, 0xff)
			continue
		}
		h.buffer = binary.BigEndian.AppendUint32(h.buffer, uint32(len(value)))
		h.buffer = append(h.buffer, value...)
	}
	if len(h.buffer) >= flushAt {
		h.flush()
	}
	return size
}

func (h *hasher) flush() {
	h.hash.Write(h.buffer)
	h.buffer = h.buffer[:0]
}

// sum is the digest of what was added since the last sum.
func (h *hasher) sum() (d Digest) {
	if h.hash == nil {
		h.hash = sha256.New()
	}
	h.flush()
	h.hash.Sum(d[:0])
	h.hash.Reset()
	return d
}
