package pubsub

import (
	"context"
	"time"

	"leat/api"
	"leat/eventstore"
)

// Received is a message as Leat delivers it.
type Received struct {
	Topic      string
	RoutingKey string
	api.Content
	MessageID       eventstore.MessageID
	OriginMessageID eventstore.MessageID
	PublishedAt     time.Time

	// Attempt and Priority are of a queue; the first attempt is 1.
	Attempt  int
	Priority int
	// Position is the place in a stream. Default nil: it is of a queue.
	Position *api.StreamPosition
}

type receivedKey struct{}

// FromContext is what Leat said of the message with this context.
func FromContext(ctx context.Context) (Received, bool) {
	received, ok := ctx.Value(receivedKey{}).(Received)
	return received, ok
}
