package replication

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"leat/eventstore"
)

// Publication names what PostgreSQL's own output plugin sends.
const Publication = "leat_streams"

// Columns that the decoder reads; they may come in any order, among others.
type column int

const (
	columnOther column = iota
	columnChannel
	columnOffset
	columnPosition
	columnAt
	columnKey
	columnContentType
	columnHeaders
	columnMessages
	columnOrigins
	columnPayload
	columns // how many there are
)

var columnNames = map[string]column{
	"channel_id":    columnChannel,
	"stream_offset": columnOffset,
	"position":      columnPosition,
	"at":            columnAt,
	"routing_key":   columnKey,
	"content_type":  columnContentType,
	"headers":       columnHeaders,
	"message_ids":   columnMessages,
	"origin_ids":    columnOrigins,
	"payload":       columnPayload,
}

// Bounds of what a server may say, so that nonsense does not fill the memory.
const (
	maxRelations = 100
	maxColumns   = 1600 // of PostgreSQL
)

// pgoutput decodes version 1 of the protocol of PostgreSQL's own plugin.
type pgoutput struct {
	// relations are the columns of each table that was told of; nil of one that is
	// not the log.
	relations map[uint32][]column
}

func (*pgoutput) options() []string {
	return []string{"proto_version '1'", "publication_names '" + Publication + "'", "binary 'true'", "messages 'true'"}
}

var errShort = errors.New("message ends too early")

func (p *pgoutput) decode(data []byte, to receiver) error {
	if len(data) == 0 {
		return errShort
	}
	in := reader{rest: data[1:]}
	var err error
	switch data[0] {
	case 'I':
		err = p.insert(&in, to)
	case 'R':
		err = p.relation(&in)
	case 'M':
		err = logicalMessage(&in, to)
	case 'B', 'C', 'O', 'Y', 'U', 'D', 'T':
		// Where transactions begin and end says nothing to us; other changes are not
		// ours, whatever somebody made of the publication.
	default:
		return fmt.Errorf("unknown message %q", data[0])
	}
	if err != nil {
		return fmt.Errorf("decode message %q: %w", data[0], err)
	}
	return nil
}

func (p *pgoutput) relation(in *reader) error {
	id, schema, table := in.uint32(), in.text(), in.text()
	in.take(1) // replica identity
	n := int(in.uint16())
	if in.short || n > maxColumns {
		return errShort
	}
	var found []column
	if string(schema) == "leat" && string(table) == "events" {
		found = make([]column, 0, n)
		for range n {
			in.take(1) // flags
			found = append(found, columnNames[string(in.text())])
			in.take(8) // type and its modifier
		}
	}
	if in.short {
		return errShort
	}
	if name := missingColumn(found); name != "" {
		return fmt.Errorf("publication %s has no column %s any more", Publication, name)
	}
	if p.relations == nil || len(p.relations) >= maxRelations {
		p.relations = map[uint32][]column{}
	}
	p.relations[id] = found
	return nil
}

// missingColumn is one that somebody took out of the publication, or "". The next
// session makes the publication again; rows without it would look like none of a
// stream.
func missingColumn(found []column) string {
	if found == nil {
		return ""
	}
	for name, col := range columnNames {
		if !slices.Contains(found, col) {
			return name
		}
	}
	return ""
}

func (p *pgoutput) insert(in *reader, to receiver) error {
	id := in.uint32()
	in.take(1) // 'N': the new row follows
	n := int(in.uint16())
	if in.short {
		return errShort
	}
	cols, known := p.relations[id]
	switch {
	case !known:
		return fmt.Errorf("unknown relation %d", id)
	case cols == nil:
		return nil // of another table
	case len(cols) != n:
		return fmt.Errorf("row of %d columns, not %d", n, len(cols))
	}
	var values [columns]value
	for _, col := range cols {
		values[col] = in.value()
	}
	if in.short {
		return errShort
	}
	return insertRow(&values, to)
}

// insertRow passes a row on, if it is one of a stream that somebody reads.
func insertRow(values *[columns]value, to receiver) error {
	if values[columnOffset].data == nil {
		return nil // no row of a stream
	}
	var in scanner
	r := row{
		channel: eventstore.ChannelID(in.integer(values[columnChannel])),
		offset:  eventstore.Offset(in.integer(values[columnOffset])),
		copies:  -1,
	}
	end := r.offset + 1
	if ids := values[columnMessages]; ids.data != nil {
		r.copies = in.array(ids)
		end = r.offset + eventstore.Offset(r.copies)
	}
	if in.err != nil || !to.Wants(r.channel, end) {
		return in.err
	}
	if r.copies >= 0 {
		r.pass(to)
		return nil
	}
	r.position = eventstore.Position(in.integer(values[columnPosition]))
	r.at = in.time(values[columnAt])
	r.key, r.contentType = values[columnKey].data, values[columnContentType].data
	r.headers = in.json(values[columnHeaders])
	r.payload = in.bytes(values[columnPayload])
	if origins := values[columnOrigins]; origins.data != nil {
		r.origin = eventstore.MessageID(in.first(origins))
	}
	if in.err == nil {
		r.pass(to)
	}
	return in.err
}

func logicalMessage(in *reader, to receiver) error {
	in.take(1 + 8) // flags, place in the log
	prefix := in.text()
	content := in.take(int(in.uint32()))
	if in.short {
		return errShort
	}
	if string(prefix) != wakePrefix {
		return nil
	}
	if channels := parseChannels(string(content)); len(channels) > 0 {
		to.Wake(channels...)
	}
	return nil
}

// reader takes a message apart. Once it is short it stays so.
type reader struct {
	rest  []byte
	short bool
}

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.rest) {
		r.short, r.rest = true, nil
		return nil
	}
	taken := r.rest[:n:n]
	r.rest = r.rest[n:]
	return taken
}

func (r *reader) uint16() uint16 {
	if b := r.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (r *reader) uint32() uint32 {
	if b := r.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

// text ends with a zero byte.
func (r *reader) text() []byte {
	n := bytes.IndexByte(r.rest, 0)
	text := r.take(n)
	r.take(1)
	return text
}

// value is a column of a row. data is nil for null.
type value struct {
	data   []byte
	binary bool
}

func (r *reader) value() value {
	kind := r.take(1)
	if kind == nil {
		return value{}
	}
	switch kind[0] {
	case 'n', 'u': // null; unchanged, which new rows never are
		return value{}
	case 't', 'b':
		return value{data: r.take(int(r.uint32())), binary: kind[0] == 'b'}
	default:
		r.short = true
		return value{}
	}
}

// scanner reads values in either format and keeps the first error.
type scanner struct{ err error }

func (s *scanner) fail(what string, v value) {
	if s.err == nil {
		s.err = fmt.Errorf("no %s: %.40q", what, v.data)
	}
}

func (s *scanner) integer(v value) int64 {
	if v.binary {
		switch len(v.data) {
		case 4:
			return int64(int32(binary.BigEndian.Uint32(v.data)))
		case 8:
			return int64(binary.BigEndian.Uint64(v.data))
		}
		s.fail("integer", v)
		return 0
	}
	n, err := strconv.ParseInt(string(v.data), 10, 64)
	if err != nil {
		s.fail("integer", v)
	}
	return n
}

// epoch is where PostgreSQL counts microseconds from.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func (s *scanner) time(v value) time.Time {
	if v.binary {
		if len(v.data) != 8 {
			s.fail("time", v)
			return time.Time{}
		}
		return time.UnixMicro(epoch.UnixMicro() + int64(binary.BigEndian.Uint64(v.data))).UTC()
	}
	for _, layout := range []string{"2006-01-02 15:04:05.999999-07", "2006-01-02 15:04:05.999999-07:00"} {
		if t, err := time.Parse(layout, string(v.data)); err == nil {
			return t.UTC()
		}
	}
	s.fail("time", v)
	return time.Time{}
}

// json is jsonb, whose binary format is a version before the text.
func (s *scanner) json(v value) []byte {
	if !v.binary || v.data == nil {
		return v.data
	}
	if len(v.data) == 0 || v.data[0] != 1 {
		s.fail("jsonb", v)
		return nil
	}
	return v.data[1:]
}

// bytes is a bytea, whose text format is hexadecimal.
func (s *scanner) bytes(v value) []byte {
	if v.binary || v.data == nil {
		return v.data
	}
	digits, found := bytes.CutPrefix(v.data, []byte(`\x`))
	decoded, err := decodeHex(digits)
	if !found || err != nil {
		s.fail("bytea", v)
	}
	return decoded
}

// array is the length of an array of bigint with one dimension.
func (s *scanner) array(v value) int {
	if !v.binary {
		return s.textArray(v)
	}
	in := reader{rest: v.data}
	dimensions := in.uint32()
	in.take(8) // has nulls; type of the elements
	if dimensions == 0 && !in.short {
		return 0
	}
	n := int(in.uint32())
	in.take(4) // lower bound
	// An element is at least its length.
	if in.short || dimensions != 1 || n > len(in.rest)/4 {
		s.fail("array", v)
		return 0
	}
	return n
}

func (s *scanner) textArray(v value) int {
	inner, found := bytes.CutPrefix(v.data, []byte("{"))
	inner, closed := bytes.CutSuffix(inner, []byte("}"))
	if !found || !closed {
		s.fail("array", v)
		return 0
	}
	if len(inner) == 0 {
		return 0
	}
	return 1 + bytes.Count(inner, []byte(","))
}

// first is the first element of an array of bigint, 0 if there is none.
func (s *scanner) first(v value) int64 {
	n := s.array(v)
	if n == 0 {
		return 0
	}
	if !v.binary {
		element, _, _ := bytes.Cut(bytes.Trim(v.data, "{}"), []byte(","))
		return s.integer(value{data: element})
	}
	in := reader{rest: v.data[20:]}
	return s.integer(value{data: in.take(int(in.uint32())), binary: true})
}
