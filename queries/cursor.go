package queries

import (
	"encoding/base64"
	"strconv"
	"strings"
)

// A cursor names the last id that was seen. Its form is nobody's business, so
// that a later version may put more into it.
type cursor int64

const cursorPrefix = "1."

func (c cursor) String() string {
	return base64.RawURLEncoding.EncodeToString([]byte(cursorPrefix + strconv.FormatInt(int64(c), 10)))
}

// parseCursor reads what String wrote; "" is the beginning.
func parseCursor(s string) (cursor, error) {
	if s == "" {
		return 0, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		if digits, ok := strings.CutPrefix(string(text), cursorPrefix); ok {
			if n, err := strconv.ParseInt(digits, 10, 64); err == nil && n >= 0 {
				return cursor(n), nil
			}
		}
	}
	return 0, invalid("cursor", "is not one that was given out")
}
