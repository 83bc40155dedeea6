package commands

import (
	"strings"
	"time"
	"unicode/utf8"

	"leat/eventstore"
)

const nameRule = "must be 1 to 255 letters, digits, dots, underscores and hyphens, the first one a letter or digit"

// name checks a channel's name: 1 to 255 bytes of [A-Za-z0-9._-], the first
// alphanumeric. Names are exact: Foo and foo are two channels.
func (f *faults) name(field, s string) {
	if !validName(s) {
		f.invalid(-1, field, nameRule)
	}
}

func validName(s string) bool {
	if s == "" || len(s) > maxName {
		return false
	}
	for i := range len(s) {
		c := s[i]
		alphanumeric := '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
		if !alphanumeric && (i == 0 || !strings.ContainsRune("._-", rune(c))) {
			return false
		}
	}
	return true
}

// text checks what PostgreSQL can store as text, of at most limit bytes.
func (f *faults) text(index int, field, s string, limit int) {
	switch {
	case len(s) > limit:
		f.invalid(index, field, "is longer than %d bytes", limit)
	case !storable(s):
		f.invalid(index, field, "must be valid UTF-8 without NUL")
	}
}

// label checks the name of a client or consumer.
func (f *faults) label(field, s string) {
	if !eventstore.IsLabel(s) {
		f.invalid(-1, field, eventstore.LabelRule)
	}
}

// key checks a routing key: 0 to 255 bytes. Keys are compared byte by byte.
func (f *faults) key(index int, field, s string) {
	switch {
	case len(s) > maxKey:
		f.add(eventstore.KeyTooLong, index, field, "is longer than %d bytes", maxKey)
	case !storable(s):
		f.invalid(index, field, "must be valid UTF-8 without NUL")
	}
}

func storable(s string) bool {
	return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0
}

// between checks a duration.
func (f *faults) between(index int, field string, d, low, high time.Duration) {
	if d < low || d > high {
		f.invalid(index, field, "must be from %s to %s", low, high)
	}
}
