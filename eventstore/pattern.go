package eventstore

import (
	"strings"
	"unicode/utf8"
)

// maxPattern is the length that a pattern may have, in bytes: that of a routing key.
const maxPattern = 255

// Pattern chooses routing keys, as the topic of a link does: words split by
// dots, * is one word, # is zero or more. The zero Pattern chooses all.
type Pattern struct {
	text  string
	words []string
	set   bool
}

// ParsePattern reads a pattern. That of "" chooses the empty key only. The error
// is an *Error without a Field.
func ParsePattern(text string) (Pattern, error) {
	switch {
	case len(text) > maxPattern:
		return Pattern{}, NewError(KeyTooLong, "is longer than %d bytes", maxPattern)
	case !utf8.ValidString(text) || strings.IndexByte(text, 0) >= 0:
		return Pattern{}, NewError(InvalidField, "must be valid UTF-8 without NUL")
	case text == "":
		return Pattern{set: true}, nil
	}
	return Pattern{text: text, words: strings.Split(text, "."), set: true}, nil
}

// IsZero reports whether the pattern is the zero one, which chooses all keys.
func (p Pattern) IsZero() bool { return !p.set }

// String is the text of the pattern; that of the zero Pattern is #, which
// chooses the same.
func (p Pattern) String() string {
	if !p.set {
		return "#"
	}
	return p.text
}

// Match reports whether the pattern chooses a routing key. It allocates nothing,
// and the work is bounded by words of the key times words of the pattern: of
// several # only the last one that was met takes more words, for what an earlier
// one could take is no different.
func (p Pattern) Match(key string) bool {
	if !p.set {
		return true
	}
	var (
		at    = wordsOf(key)
		next  int   // the word of the pattern that comes next
		many  = -1  // the # that was met last
		taken words // what is behind the words that it took
	)
	for !at.none {
		word, behind := at.cut()
		switch {
		case next < len(p.words) && p.words[next] == "#":
			many, taken = next, at
			next++
		case next < len(p.words) && (p.words[next] == "*" || p.words[next] == word):
			at = behind
			next++
		case many >= 0:
			_, taken = taken.cut()
			at, next = taken, many+1
		default:
			return false
		}
	}
	for next < len(p.words) && p.words[next] == "#" {
		next++
	}
	return next == len(p.words)
}

// words are those of a routing key that are still to be looked at.
type words struct {
	rest string
	none bool
}

func wordsOf(key string) words { return words{key, key == ""} }

// cut takes the first word. There has to be one.
func (w words) cut() (word string, behind words) {
	word, rest, more := strings.Cut(w.rest, ".")
	return word, words{rest, !more}
}
