package strict

import (
	"bytes"
	"encoding"
	"encoding/base64"
	"encoding/json"
	"errors"
	"reflect"
	"strconv"
	"strings"
	"time"
)

var (
	rawType   = reflect.TypeFor[json.RawMessage]()
	bytesType = reflect.TypeFor[[]byte]()
)

// value reads any value that a field of a wire type can have.
func (d *decoder) value(data []byte, into reflect.Value, path string) error {
	if into.Type() == rawType {
		into.SetBytes(data)
		return nil
	}
	if data[0] == 'n' {
		return nil
	}
	if u, ok := reflect.TypeAssert[encoding.TextUnmarshaler](into.Addr()); ok {
		return d.unmarshaler(data, u, path)
	}
	switch into.Kind() {
	case reflect.Pointer:
		fresh := reflect.New(into.Type().Elem())
		into.Set(fresh)
		return d.value(data, fresh.Elem(), path)
	case reflect.Struct:
		return d.object(data, into, path)
	case reflect.Slice:
		if into.Type() == bytesType {
			return d.bytes(data, into, path)
		}
		return d.array(data, into, path)
	case reflect.String:
		text, err := d.text(data, path)
		into.SetString(text)
		return err
	default:
		return d.scalar(data, into, path)
	}
}

func (d *decoder) scalar(data []byte, into reflect.Value, path string) error {
	kind := kindOf(data)
	switch into.Kind() {
	case reflect.Bool:
		if kind != "a boolean" {
			return d.invalid(path, "must be true or false, not %s", kind)
		}
		into.SetBool(data[0] == 't')
	case reflect.Int, reflect.Int64:
		if kind != "a number" {
			return d.invalid(path, "must be a number, not %s", kind)
		}
		n, err := strconv.ParseInt(string(data), 10, 64)
		if err != nil {
			return d.invalid(path, "must be a whole number of 64 bits in plain digits")
		}
		into.SetInt(n)
	case reflect.Float64:
		if kind != "a number" {
			return d.invalid(path, "must be a number, not %s", kind)
		}
		n, err := strconv.ParseFloat(string(data), 64)
		if err != nil {
			return d.invalid(path, "is out of range")
		}
		into.SetFloat(n)
	default:
		return errors.New("strict: no rule for fields of type " + into.Type().String())
	}
	return nil
}

func (d *decoder) unmarshaler(data []byte, into encoding.TextUnmarshaler, path string) error {
	text, err := d.text(data, path)
	if err != nil {
		return err
	}
	if err := into.UnmarshalText([]byte(text)); err != nil {
		if _, ok := into.(*time.Time); ok {
			return d.invalid(path, "must be a time as in RFC 3339, such as 2006-01-02T15:04:05Z")
		}
		return d.invalid(path, "is not understood: %v", err)
	}
	return nil
}

func (d *decoder) bytes(data []byte, into reflect.Value, path string) error {
	text, err := d.text(data, path)
	if err != nil {
		return err
	}
	decoded, err := base64.StdEncoding.Strict().DecodeString(text)
	// The decoder passes over line breaks, which are not base64 in JSON.
	if err != nil || strings.ContainsAny(text, "\r\n") {
		return d.invalid(path, "is not base64 with padding, as in RFC 4648")
	}
	into.SetBytes(decoded)
	return nil
}

func (d *decoder) array(data []byte, into reflect.Value, path string) error {
	s := scanner{data}
	if s.next() != '[' {
		return d.invalid(path, "must be an array, not %s", kindOf(data))
	}
	s.skip()
	element := into.Type().Elem()
	list := reflect.MakeSlice(into.Type(), 0, 8)
	outer := d.index
	for s.more(']') {
		d.index = list.Len()
		item := reflect.New(element).Elem()
		value := s.value()
		if value[0] == 'n' && element != rawType {
			return d.invalid(path, "must not contain null")
		}
		if err := d.value(value, item, path); err != nil {
			return err
		}
		list = reflect.Append(list, item)
	}
	d.index = outer
	into.Set(list)
	return nil
}

// text reads a string.
func (d *decoder) text(data []byte, path string) (string, error) {
	if data[0] != '"' {
		return "", d.invalid(path, "must be a string, not %s", kindOf(data))
	}
	if bytes.IndexByte(data, '\\') < 0 {
		return string(data[1 : len(data)-1]), nil
	}
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return "", d.invalid(path, "is not understood: %v", err)
	}
	if strings.Count(text, "\uFFFD") != replacements(data) {
		return "", d.invalid(path, "has an escape of half a character")
	}
	return text, nil
}

// replacements counts the replacement characters that somebody meant: more of
// them in the decoded text stand for escapes of unpaired surrogates.
func replacements(data []byte) int {
	return bytes.Count(data, []byte("\uFFFD")) + escapes(data)
}

// escapes counts \ufffd, where the backslash is not escaped itself.
func escapes(data []byte) (n int) {
	for i := 0; i+6 <= len(data); i++ {
		if data[i] != '\\' {
			continue
		}
		if strings.EqualFold(string(data[i:i+6]), `\ufffd`) && data[i+1] == 'u' {
			n++
		}
		i++
	}
	return n
}
