package main

import (
	"fmt"
	"time"
)

// moment is a flag whose value is a time: as in RFC 3339, or how long ago.
type moment struct{ time.Time }

// String is the time, or "" where none was given.
func (m *moment) String() string {
	if m.IsZero() {
		return ""
	}
	return m.Format(time.RFC3339Nano)
}

// Set reads it.
func (m *moment) Set(text string) error {
	if ago, err := time.ParseDuration(text); err == nil {
		m.Time = time.Now().Add(-ago)
		return nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return fmt.Errorf("neither a time such as 2006-01-02T15:04:05Z nor an age such as 90s or 1h30m")
	}
	m.Time = t
	return nil
}

// Type is how --help names the value.
func (m *moment) Type() string { return "time|age" }

// instant is a flag whose value is a time as in RFC 3339.
type instant struct{ time.Time }

// String is the time, or "" where none was given.
func (i *instant) String() string { return (*moment)(i).String() }

// Set reads it.
func (i *instant) Set(text string) error {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return fmt.Errorf("not a time such as 2006-01-02T15:04:05Z")
	}
	i.Time = t
	return nil
}

// Type is how --help names the value.
func (i *instant) Type() string { return "time" }

// optional is nil where none was given.
func (i *instant) optional() *time.Time {
	if i.IsZero() {
		return nil
	}
	return &i.Time
}
