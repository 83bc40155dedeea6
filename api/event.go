package api

import (
	"encoding/json"
	"time"

	"leat/eventstore"
)

// Event is an entry of the log.
type Event struct {
	Position   eventstore.Position       `json:"position"`
	At         time.Time                 `json:"at"`
	Kind       string                    `json:"kind"`
	Channel    string                    `json:"channel,omitempty"`
	Actor      string                    `json:"actor,omitempty"`
	Messages   []eventstore.MessageID    `json:"messageIds,omitempty" nullable:"false" doc:"the messages it is about; of message.published, the position"`
	Ranges     [][2]eventstore.MessageID `json:"messageRanges,omitempty" nullable:"false" doc:"the messages, instead of messageIds, where they are very many: pairs of a first and a last id"`
	Origins    []eventstore.MessageID    `json:"originMessageIds,omitempty" nullable:"false" doc:"of the messages, where they differ"`
	Delivery   eventstore.Position       `json:"delivery,omitempty"`
	Offset     *eventstore.Offset        `json:"offset,omitempty" doc:"in a stream: of the message, or of the first one of a batch of copies"`
	DueAt      *time.Time                `json:"dueAt,omitempty" doc:"not before; of a delivery: the end of the lease"`
	ExpiresAt  *time.Time                `json:"expiresAt,omitempty"`
	RoutingKey *string                   `json:"routingKey,omitempty"`
	Priority   *int                      `json:"priority,omitempty"`
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
	MessageID       eventstore.MessageID `json:"messageId"`
	OriginMessageID eventstore.MessageID `json:"originMessageId"`
	Events          []Event              `json:"events" nullable:"false"`
	NextCursor      string               `json:"nextCursor,omitempty" doc:"absent on the last page"`
	Lineage         *Lineage             `json:"lineage,omitempty" doc:"the family of the message; only on the first page"`
}

// Lineage is a family of messages.
type Lineage struct {
	MessageID       eventstore.MessageID `json:"messageId"`
	OriginMessageID eventstore.MessageID `json:"originMessageId"`
	Messages        []LineageMessage     `json:"messages" nullable:"false" doc:"the tree: the origin, and each copy behind its parent and what came of its elder siblings"`
	Truncated       bool                 `json:"truncated" doc:"something was left out: the messages where it was have nextCopies or nextEvents"`
}

// LineageMessage is a message of a family.
type LineageMessage struct {
	MessageID       eventstore.MessageID `json:"messageId"`
	OriginMessageID eventstore.MessageID `json:"originMessageId"`
	ParentMessageID eventstore.MessageID `json:"parentMessageId,omitempty" doc:"what it is a copy of; absent of the origin"`
	Depth           int                  `json:"depth" doc:"0 of the origin"`
	Cause           string               `json:"cause,omitempty" doc:"of a copy: link, deadLetter, redrive or republish"`
	Channel         string               `json:"channel"`
	RoutingKey      string               `json:"routingKey"`
	State           string               `json:"state,omitempty" doc:"as in GET /v1/messages/{id}; absent where nextEvents is there"`
	Events          []Event              `json:"events" nullable:"false" doc:"what happened to it, without the ids of others and without payload"`
	NextEvents      string               `json:"nextEvents,omitempty" doc:"more events: the cursor for GET /v1/messages/{messageId}/history"`
	NextCopies      string               `json:"nextCopies,omitempty" doc:"more copies may have been made of it: the cursor for GET /v1/messages/{messageId}/lineage"`
}
