package strict

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"unicode/utf8"

	"leat/eventstore"
)

// Decode reads a JSON object into the struct that v points to. Raw values alias
// data. The error is an *eventstore.Error.
func Decode(data []byte, v any) error {
	if err := Check(data); err != nil {
		return err
	}
	return DecodeValid(data, v)
}

// Check says whether data is one JSON text in UTF-8.
func Check(data []byte) error {
	if !utf8.Valid(data) {
		return malformed("This is not UTF-8.")
	}
	if Valid(data) {
		return nil
	}
	var ignored json.RawMessage
	err := json.Unmarshal(data, &ignored)
	if err == nil {
		return nil
	}
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return malformed("This is not JSON: %s, at byte %d.", syntax.Error(), syntax.Offset)
	}
	return malformed("This is not JSON: %v.", err)
}

// DecodeValid is Decode of text that Check accepted, or of a part of it.
func DecodeValid(data []byte, v any) error {
	d := decoder{index: -1}
	return d.object(data, reflect.ValueOf(v).Elem(), "")
}

func malformed(format string, args ...any) *eventstore.Error {
	return eventstore.NewError(eventstore.InvalidRequest, format, args...)
}

// decoder knows the place of what it decodes, for errors.
type decoder struct {
	index int // of the array element, -1 outside of one
}

func (d *decoder) fault(code eventstore.Code, path, format string, args ...any) error {
	return &eventstore.Error{Code: code, Field: path, Index: d.index, Message: fmt.Sprintf(format, args...)}
}

func (d *decoder) invalid(path, format string, args ...any) error {
	return d.fault(eventstore.InvalidField, path, format, args...)
}

func (d *decoder) object(data []byte, into reflect.Value, path string) error {
	s := scanner{data}
	if s.next() != '{' && path == "" && d.index < 0 {
		return d.invalid("", "A JSON object is needed, not %s.", kindOf(data))
	}
	if s.next() != '{' {
		return d.invalid(path, "must be an object, not %s", kindOf(data))
	}
	s.skip()
	fields := fieldsOf(into.Type())
	seen := uint64(0)
	for s.more('}') {
		name, err := d.text(s.value(), path)
		if err != nil {
			return err
		}
		full := name
		if path != "" {
			full = path + "." + name
		}
		i, ok := fields[name]
		if !ok {
			return d.fault(eventstore.UnknownField, full, "is not a field here%s", nearest(name, fields))
		}
		if seen&(1<<i) != 0 {
			return d.fault(eventstore.InvalidRequest, full, "is given twice")
		}
		seen |= 1 << i
		s.skip() // the colon
		if err := d.value(s.value(), into.Field(i), full); err != nil {
			return err
		}
	}
	return nil
}

// nearest suggests the name that differs by case only.
func nearest(name string, fields map[string]int) string {
	for f := range fields {
		if strings.EqualFold(f, name) {
			return "; there is " + f
		}
	}
	return ""
}

// known caches the fields of types.
var known sync.Map // reflect.Type -> map[string]int

// fieldsOf maps the names of a struct's fields to their numbers, of which there
// are fewer than 64.
func fieldsOf(t reflect.Type) map[string]int {
	if fields, ok := known.Load(t); ok {
		return fields.(map[string]int) //nolint:forcetypeassert // nothing else is stored
	}
	fields := make(map[string]int, t.NumField())
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		fields[name] = i
	}
	known.Store(t, fields)
	return fields
}

// kindOf names the kind of a value for people.
func kindOf(data []byte) string {
	switch (&scanner{data}).next() {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	default:
		return "a number"
	}
}
