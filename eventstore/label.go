package eventstore

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxLabel is how long a label may be, in bytes.
const MaxLabel = 255

// LabelRule is what IsLabel asks for, in words.
const LabelRule = "must be UTF-8 without control characters, of at most 255 bytes"

// IsLabel reports whether a text can name a client, a consumer or a member of a group:
// names that people read in lists and logs.
func IsLabel(s string) bool {
	return len(s) <= MaxLabel && utf8.ValidString(s) && strings.IndexFunc(s, unicode.IsControl) < 0
}
