package api

import (
	"encoding/json"
	"time"

	"leat/eventstore"
)

// Event is an entry of the log.
type Event struct {
	Position   eventstore.Position    `json:"position"`
	At         time.Time              `json:"at"`
	Kind       string                 `json:"kind"`
	Channel    string                 `json:"channel,omitempty"`
	Actor      string                 `json:"actor,omitempty"`
	Messages   []eventstore.MessageID `json:"messageIds,omitempty" nullable:"false" doc:"the messages it is about; of message.published, the position"`
	Origins    []eventstore.MessageID `json:"originMessageIds,omitempty" nullable:"false" doc:"of the messages, where they differ"`
	Delivery   eventstore.Position    `json:"delivery,omitempty"`
	DueAt      *time.Time             `json:"dueAt,omitempty" doc:"not before; of a delivery: the end of the lease"`
	ExpiresAt  *time.Time             `json:"expiresAt,omitempty"`
	RoutingKey *string                `json:"routingKey,omitempty"`
	Priority   *int                   `json:"priority,omitempty"`
	Content
	Data json.RawMessage `json:"data,omitempty" doc:"what else the kind of event says"`
}

// EventPage is a page of the log.
type EventPage struct {
	Events     []Event `json:"events" nullable:"false"`
	NextCursor string  `json:"nextCursor,omitempty" doc:"absent on the last page"`
}

// History is a page of the events that name a message, in order.
type History struct {
	MessageID  eventstore.MessageID `json:"messageId"`
	Events     []Event              `json:"events" nullable:"false"`
	NextCursor string               `json:"nextCursor,omitempty" doc:"absent on the last page"`
}
