package api

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"time"
	"unicode/utf8"

	"leat/eventstore"
)

// Appender is what writes itself as JSON with the exact bytes of its payloads.
type Appender interface {
	AppendJSON(b []byte) []byte
}

// Marshal writes a wire type: with AppendJSON where it has one, so that
// payloads stay as they are, else with encoding/json.
func Marshal(v any) ([]byte, error) {
	if a, ok := v.(Appender); ok {
		return a.AppendJSON(nil), nil
	}
	return plainJSON(v)
}

// plainJSON is json.Marshal, but leaves characters alone that matter in HTML only.
func plainJSON(v any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(text.Bytes(), []byte{'\n'}), nil
}

// object appends the members of a JSON object.
type object struct {
	b     []byte
	empty bool
}

func beginObject(b []byte) object { return object{append(b, '{'), true} }

func (o *object) end() []byte { return append(o.b, '}') }

func (o *object) key(name string) {
	if !o.empty {
		o.b = append(o.b, ',')
	}
	o.empty = false
	o.b = append(o.b, '"')
	o.b = append(o.b, name...)
	o.b = append(o.b, '"', ':')
}

func (o *object) text(name, value string) {
	o.key(name)
	o.b = appendString(o.b, value)
}

func (o *object) number(name string, value int64) {
	o.key(name)
	o.b = strconv.AppendInt(o.b, value, 10)
}

func (o *object) flag(name string, value bool) {
	o.key(name)
	o.b = strconv.AppendBool(o.b, value)
}

func (o *object) time(name string, value time.Time) {
	o.key(name)
	o.b = append(o.b, '"')
	o.b = value.AppendFormat(o.b, time.RFC3339Nano)
	o.b = append(o.b, '"')
}

func (o *object) base64(name string, value []byte) {
	o.key(name)
	o.b = append(o.b, '"')
	o.b = base64.StdEncoding.AppendEncode(o.b, value)
	o.b = append(o.b, '"')
}

func (o *object) raw(name string, value []byte) {
	o.key(name)
	o.b = append(o.b, value...)
}

// The members below are left out when they have no value.

func (o *object) optionalText(name, value string) {
	if value != "" {
		o.text(name, value)
	}
}

// optionalOffset tells offset 0 from none.
func (o *object) optionalOffset(name string, value *eventstore.Offset) {
	if value != nil {
		o.number(name, int64(*value))
	}
}

func (o *object) optionalNumber(name string, value int64) {
	if value != 0 {
		o.number(name, value)
	}
}

func (o *object) optionalTime(name string, value *time.Time) {
	if value != nil {
		o.time(name, *value)
	}
}

func (o *object) optionalRaw(name string, value []byte) {
	if len(value) > 0 {
		o.raw(name, value)
	}
}

func (o *object) optionalDuration(name string, value Duration) {
	if value != 0 {
		o.text(name, value.String())
	}
}

func (o *object) optionalIDs(name string, ids []eventstore.MessageID) {
	if len(ids) == 0 {
		return
	}
	o.key(name)
	o.b = append(o.b, '[')
	for i, id := range ids {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		o.b = strconv.AppendInt(o.b, int64(id), 10)
	}
	o.b = append(o.b, ']')
}

func (o *object) optionalRanges(name string, ranges [][2]eventstore.MessageID) {
	if len(ranges) == 0 {
		return
	}
	o.key(name)
	o.b = append(o.b, '[')
	for i, r := range ranges {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		o.b = append(o.b, '[')
		o.b = strconv.AppendInt(o.b, int64(r[0]), 10)
		o.b = append(o.b, ',')
		o.b = strconv.AppendInt(o.b, int64(r[1]), 10)
		o.b = append(o.b, ']')
	}
	o.b = append(o.b, ']')
}

func (o *object) content(c Content) {
	o.optionalRaw("payload", c.Payload)
	if c.PayloadBase64 != nil {
		o.base64("payloadBase64", *c.PayloadBase64)
	}
	o.optionalText("contentType", c.ContentType)
	o.optionalRaw("headers", c.Headers)
}

// list appends a member that is an array of objects.
func list[T Appender](o *object, name string, items []T) {
	o.key(name)
	o.b = append(o.b, '[')
	for i, item := range items {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		o.b = item.AppendJSON(o.b)
	}
	o.b = append(o.b, ']')
}

// appendString appends a JSON string. Most strings need no escape.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			quoted, err := plainJSON(s)
			if err != nil {
				panic(err) // a string always has a JSON form
			}
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}
