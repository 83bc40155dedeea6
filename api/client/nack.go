package client

import (
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"leat/api"
)

// NackError is an error of a handler that says what becomes of the message. Any
// other error is a retry.
type NackError struct {
	// Action is retry, deadLetter or discard. Default retry.
	Action string
	// Delay of a retry, instead of the queue's policy. Default nil: the policy's.
	Delay *time.Duration
	// Class is for machines: on the queue's nonRetryable list it makes the message
	// dead at once.
	Class string
	// Err is the reason, which the log keeps.
	Err error
}

// Error is the reason.
func (e *NackError) Error() string {
	if e.Err == nil {
		return e.action()
	}
	return e.Err.Error()
}

// Unwrap is the reason.
func (e *NackError) Unwrap() error { return e.Err }

func (e *NackError) action() string {
	if e.Action == "" {
		return "retry"
	}
	return e.Action
}

// RetryAfter makes the message come again after a time of its own.
func RetryAfter(delay time.Duration, err error) error {
	nack := nackError(err)
	nack.Action, nack.Delay = "retry", &delay
	return nack
}

// DeadLetter sends the message to the dead letters at once.
func DeadLetter(err error) error {
	nack := nackError(err)
	nack.Action, nack.Delay = "deadLetter", nil
	return nack
}

// Discard removes the message.
func Discard(err error) error {
	nack := nackError(err)
	nack.Action, nack.Delay = "discard", nil
	return nack
}

// WithClass adds an error class, for the queue's nonRetryable list.
func WithClass(class string, err error) error {
	nack := nackError(err)
	nack.Class = class
	return nack
}

// nackError keeps what an error says already, in whatever order it is wrapped.
func nackError(err error) *NackError {
	if inner, ok := errors.AsType[*NackError](err); ok {
		nack := *inner
		return &nack
	}
	return &NackError{Err: err}
}

// maxReason is how much of a reason the log takes.
const maxReason = 1024

// nackOf is the frame for an error of a handler.
func nackOf(err error) api.NackFrame {
	frame := api.NackFrame{Type: api.FrameNack, Action: "retry", Reason: reasonOf(err)}
	if nack, ok := errors.AsType[*NackError](err); ok {
		frame.Action, frame.Delay, frame.ErrorClass = nack.action(), (*api.Duration)(nack.Delay), nack.Class
	} else if _, ok := errors.AsType[*panicError](err); ok {
		frame.ErrorClass = "panic"
	}
	return frame
}

func reasonOf(err error) string {
	text := strings.ToValidUTF8(err.Error(), "\uFFFD")
	text = strings.ReplaceAll(text, "\x00", "\uFFFD")
	if len(text) <= maxReason {
		return text
	}
	end := maxReason
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}
