package eventstore

import (
	"fmt"
	"math"
	"strconv"
)

// Position is the global place of an event in the log, from 1. Positions are
// not gapless, and not in the order of the commits: see SettledPosition.
type Position int64

// String is the position in decimal.
func (p Position) String() string { return strconv.FormatInt(int64(p), 10) }

// ParsePosition reads what String wrote. It refuses negative numbers, signs,
// spaces and leading zeros; 0 is before the first event.
func ParsePosition(s string) (Position, error) {
	n, err := parseNumber(s)
	if err != nil {
		return 0, fmt.Errorf("parse position %q: %w", s, err)
	}
	return Position(n), nil
}

// MessageID identifies a message in the broker; always greater than 0. It is
// drawn from the same sequence as positions: a published message bears the
// position of its own event.
type MessageID int64

// String is the id in decimal.
func (id MessageID) String() string { return strconv.FormatInt(int64(id), 10) }

// ParseMessageID reads what String wrote, with the strictness of ParsePosition.
func ParseMessageID(s string) (MessageID, error) {
	n, err := parseNumber(s)
	if err == nil && n == 0 {
		err = errNotPositive
	}
	if err != nil {
		return 0, fmt.Errorf("parse message id %q: %w", s, err)
	}
	return MessageID(n), nil
}

// ChannelID identifies a channel; a channel that was deleted and declared again
// is another one.
type ChannelID int32

// String is the id in decimal.
func (id ChannelID) String() string { return strconv.FormatInt(int64(id), 10) }

// LinkID identifies a link; a link that was deleted and declared again is
// another one.
type LinkID int32

// String is the id in decimal.
func (id LinkID) String() string { return strconv.FormatInt(int64(id), 10) }

// ParseLinkID reads what String wrote, with the strictness of ParsePosition.
func ParseLinkID(s string) (LinkID, error) {
	n, err := parseNumber(s)
	switch {
	case err != nil:
	case n == 0:
		err = errNotPositive
	case n > math.MaxInt32:
		err = errNotNumber
	}
	if err != nil {
		return 0, fmt.Errorf("parse link id %q: %w", s, err)
	}
	return LinkID(n), nil
}

// parseNumber reads a non-negative decimal number that has one spelling only.
func parseNumber(s string) (int64, error) {
	if s == "" || s[0] < '0' || s[0] > '9' || (s[0] == '0' && len(s) > 1) {
		return 0, errNotNumber
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, errNotNumber
	}
	return n, nil
}
