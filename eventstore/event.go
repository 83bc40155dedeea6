package eventstore

import (
	"encoding/json"
	"time"
)

// Event is one row of the log. A published message is an event of its own,
// whose position is the message's id; every other event names the messages of
// its whole batch.
type Event struct {
	Position    Position
	At          time.Time // by the clock of the database server
	Kind        Kind
	ChannelID   ChannelID // 0 when it concerns no channel
	Delivery    *Position // the delivery it makes or ends
	Offset      *Offset   // in a stream: of the message; of copies: of the first one
	DueAt       *time.Time
	ExpiresAt   *time.Time
	Priority    *int16          // nil is 0
	RoutingKey  *string         // of a published message
	Payload     []byte          // of a published message
	ContentType *string         // nil is application/json
	Headers     json.RawMessage // nil is {}
	Actor       string          // who did it, "" when not known
	MessageIDs  []MessageID     // of a batch event
	OriginIDs   []MessageID     // nil when each message is its own origin
	Data        json.RawMessage // what else belongs to the kind

	// Of a batch event that names very many messages, instead of MessageIDs.
	MessageRanges []MessageRange
}

// MessageRange is the messages with ids from First to Last.
type MessageRange struct{ First, Last MessageID }
