package httpapi

import (
	"errors"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"time"

	"leat/eventstore"
)

// values are the query parameters of a request: each known, and once unless it is
// a list. Reading notes what is malformed; err tells it at the end.
type values struct {
	given url.Values
	err   error
}

func readQuery(raw string, known []parameter) (values, error) {
	given, err := url.ParseQuery(raw)
	if err != nil {
		return values{}, eventstore.NewError(eventstore.InvalidRequest, "The query is malformed: %v.", err)
	}
	for name, list := range given {
		i := slices.IndexFunc(known, func(p parameter) bool { return p.name == name })
		if i < 0 {
			e := eventstore.NewError(eventstore.UnknownField, "is not a query parameter of this route")
			e.Field = name
			return values{}, e
		}
		if len(list) > 1 && known[i].of.Kind() != reflect.Slice {
			return values{}, invalid(name, "is given twice")
		}
	}
	return values{given: given}, nil
}

// has says whether the parameter is there, be it empty.
func (v *values) has(name string) bool { return v.given.Has(name) }

func (v *values) text(name string) string { return v.given.Get(name) }

// filter is a text that chooses; an empty one would choose nothing, or all.
func (v *values) filter(name string) string {
	text := v.text(name)
	if v.has(name) && text == "" {
		v.note(name, "must not be empty")
	}
	return text
}

// routingKey tells an empty key from none.
func (v *values) routingKey() *string {
	if !v.has("routingKey") {
		return nil
	}
	key := v.text("routingKey")
	return &key
}

func (v *values) note(name, format string, args ...any) {
	v.err = errors.Join(v.err, invalid(name, format, args...))
}

// refuse notes what a domain type says of the parameter.
func (v *values) refuse(name string, err error) {
	if e, ok := errors.AsType[*eventstore.Error](err); ok {
		named := *e
		named.Field = name
		err = &named
	}
	v.err = errors.Join(v.err, err)
}

// flag reads a boolean; a bare name is true.
func (v *values) flag(name string, otherwise bool) bool {
	if !v.has(name) {
		return otherwise
	}
	switch v.text(name) {
	case "", "true":
		return true
	case "false":
		return false
	default:
		v.note(name, "must be true or false")
		return otherwise
	}
}

func (v *values) number(name string) int64 {
	if !v.has(name) {
		return 0
	}
	n, err := strconv.ParseInt(v.text(name), 10, 64)
	if err != nil {
		v.note(name, "must be a whole number of 64 bits")
	}
	return n
}

// within is 0 when it is not given, and from least to most otherwise.
func (v *values) within(name string, least, most int64) int64 {
	n := v.number(name)
	if v.has(name) && (n < least || n > most) {
		v.note(name, "must be from %d to %d", least, most)
		return 0
	}
	return n
}

// duration is 0 when it is not given, and greater otherwise.
func (v *values) duration(name string) time.Duration {
	if !v.has(name) {
		return 0
	}
	d, err := time.ParseDuration(v.text(name))
	if err != nil || d <= 0 {
		v.note(name, "must be a duration greater than 0s, such as 250ms, 5s or 1h30m")
	}
	return d
}

// limit is 0 when it is not given, and 1 to most otherwise.
func (v *values) limit(most int64) int {
	n := v.number("limit")
	if v.has("limit") && (n < 1 || n > most) {
		v.note("limit", "must be from 1 to %d", most)
		return 0
	}
	return int(n)
}

// position is 0 when it is not given, and greater otherwise.
func (v *values) position(name string) eventstore.Position {
	if !v.has(name) {
		return 0
	}
	p, err := eventstore.ParsePosition(v.text(name))
	if err != nil || p == 0 {
		v.note(name, "must be a position of the log: a number greater than 0")
	}
	return p
}

func (v *values) time(name string) time.Time {
	if !v.has(name) {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, v.text(name))
	if err != nil {
		v.note(name, "must be a time as in RFC 3339, such as 2006-01-02T15:04:05Z (write + as %%2B)")
	}
	return t
}
