package eventstore

import (
	"errors"
	"fmt"
	"strings"
)

var (
	errNotNumber   = errors.New("not a decimal number below 2^63")
	errNotPositive = errors.New("not greater than 0")
	errNotReceipt  = errors.New("not of the form <delivery>:<message>")
)

// Receipt proves that a message was handed out to the bearer by one delivery.
// It fences every settlement: once the lease is over or the message settled, the
// receipt changes nothing any more.
type Receipt struct {
	Delivery Position // of the message.delivered event
	Message  MessageID
}

// String is "<delivery>:<message>".
func (r Receipt) String() string { return r.Delivery.String() + ":" + r.Message.String() }

// ParseReceipt reads what String wrote. Both numbers must be greater than 0.
func ParseReceipt(s string) (Receipt, error) {
	delivery, message, ok := strings.Cut(s, ":")
	if !ok {
		return Receipt{}, fmt.Errorf("parse receipt: %w", errNotReceipt)
	}
	d, err := ParsePosition(delivery)
	if err == nil && d == 0 {
		err = errNotPositive
	}
	if err != nil {
		return Receipt{}, fmt.Errorf("parse receipt: %w", err)
	}
	m, err := ParseMessageID(message)
	if err != nil {
		return Receipt{}, fmt.Errorf("parse receipt: %w", err)
	}
	return Receipt{Delivery: d, Message: m}, nil
}
