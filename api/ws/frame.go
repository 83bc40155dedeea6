package ws

import (
	"encoding/json"
	"fmt"
	"strings"

	"leat/api/internal/strict"
	"leat/eventstore"
)

// typeOf checks that a frame is a JSON object with a type.
func typeOf(frame []byte) (string, error) {
	if err := strict.Check(frame); err != nil {
		return "", err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(frame, &members); err != nil || members == nil {
		return "", eventstore.NewError(eventstore.InvalidRequest, "A frame is a JSON object.")
	}
	raw, ok := members["type"]
	if !ok {
		return "", invalid("type", "is missing")
	}
	var kind *string
	if err := json.Unmarshal(raw, &kind); err != nil || kind == nil {
		return "", invalid("type", "must be a string")
	}
	return *kind, nil
}

// decode reads a frame that typeOf accepted into a wire type, strictly.
func decode(frame []byte, into any) error { return strict.DecodeValid(frame, into) }

// unknownType refuses a frame whose type is none of those.
func unknownType(kind string, known ...string) error {
	last := len(known) - 1
	return invalid("type", "must be %s or %s, not %.40q", strings.Join(known[:last], ", "), known[last], kind)
}

func invalid(field, format string, args ...any) *eventstore.Error {
	return &eventstore.Error{Code: eventstore.InvalidField, Field: field, Index: -1, Message: fmt.Sprintf(format, args...)}
}
