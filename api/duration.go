package api

import (
	"fmt"
	"time"
)

// Duration is a time.Duration that goes over the wire as text: "1m30s".
type Duration time.Duration

// String is Go's notation.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("not a duration such as 250ms, 5s or 1h30m: %q", text)
	}
	*d = Duration(parsed)
	return nil
}
