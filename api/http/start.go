package httpapi

import (
	"time"

	"leat/eventstore"
)

// startOf reads where in a stream to begin: earliest, latest, an offset or a
// time. None is latest.
func startOf(from string, epoch eventstore.Position) (eventstore.Start, error) {
	start := eventstore.Start{Epoch: epoch}
	switch from {
	case "", "latest":
		return start, nil
	case "earliest":
		start.Kind = eventstore.StartEarliest
		return start, nil
	}
	if offset, err := eventstore.ParseOffset(from); err == nil {
		start.Kind, start.Offset = eventstore.StartOffset, offset
		return start, nil
	}
	at, err := time.Parse(time.RFC3339Nano, from)
	if err != nil {
		return start, invalid("from", "must be earliest, latest, an offset, or a time as in RFC 3339 such as 2006-01-02T15:04:05Z (write + as %%2B)")
	}
	start.Kind, start.Time = eventstore.StartTime, at
	return start, nil
}
