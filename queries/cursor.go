package queries

import (
	"encoding/base64"
	"math"
	"strconv"
	"strings"
)

// A cursor names the last id that was seen. Its form is nobody's business, so
// that a later version may put more into it.
type cursor int64

const (
	cursorPrefix     = "1."
	backCursorPrefix = "b." // of a list that is read from its end
)

func (c cursor) String() string { return c.text(cursorPrefix) }

func (c cursor) text(prefix string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(prefix + strconv.FormatInt(int64(c), 10)))
}

// parseCursor reads what String wrote; "" is the beginning.
func parseCursor(s string) (cursor, error) { return parseCursorOf(cursorPrefix, s) }

func parseCursorOf(prefix, s string) (cursor, error) {
	if s == "" {
		return 0, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		if digits, ok := strings.CutPrefix(string(text), prefix); ok {
			n, err := strconv.ParseInt(digits, 10, 64)
			if c := cursor(n); err == nil && n > 0 && n < math.MaxInt64 && c.text(prefix) == s {
				return c, nil
			}
		}
	}
	return 0, invalid("cursor", "is not one that was given out")
}
