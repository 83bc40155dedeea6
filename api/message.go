package api

import (
	"encoding/json"
	"time"

	"leat/eventstore"
)

// Message is a message to publish. Exactly one of Payload and PayloadBase64 is
// set.
type Message struct {
	RoutingKey    string          `json:"routingKey,omitempty" maxLength:"255" doc:"0 to 255 bytes: the FIFO group, the topic, the filter"`
	Payload       json.RawMessage `json:"payload,omitempty" doc:"any JSON value, kept byte for byte"`
	PayloadBase64 []byte          `json:"payloadBase64,omitempty" doc:"any bytes"`
	ContentType   string          `json:"contentType,omitempty" doc:"application/json for payload, else application/octet-stream"`
	Headers       json.RawMessage `json:"headers,omitempty" doc:"a JSON object; the names are kept as given"`
	Priority      int             `json:"priority,omitempty" minimum:"0" maximum:"9" doc:"higher first; a FIFO queue and a stream take 0 only"`
	Delay         Duration        `json:"delay,omitempty" doc:"not before this long from now; not in a stream, like the other times"`
	DeliverAt     *time.Time      `json:"deliverAt,omitempty" doc:"not before; instead of delay"`
	TTL           Duration        `json:"ttl,omitempty" doc:"never delivered later than this long from now; 0s is no end"`
	ExpiresAt     *time.Time      `json:"expiresAt,omitempty" doc:"never delivered from then on; instead of ttl"`
	DedupID       string          `json:"dedupId,omitempty" doc:"unique in the channel within its dedupWindow"`
}

// PublishRequest is the body of a publish.
type PublishRequest struct {
	Messages []Message `json:"messages" nullable:"false" minItems:"1" maxItems:"10000"`
}

// Published is the answer for one message of a publish.
type Published struct {
	MessageID       eventstore.MessageID `json:"messageId,omitempty" doc:"absent where error is set"`
	OriginMessageID eventstore.MessageID `json:"originMessageId,omitempty"`
	Offset          *eventstore.Offset   `json:"offset,omitempty" doc:"the place in a stream; absent in other channels"`
	Duplicate       bool                 `json:"duplicate" doc:"the dedupId was known with the same content: these are the first message's ids"`
	DeadLettered    bool                 `json:"deadLettered" doc:"it went to the dead letters at once: the circuit of its routing key is not closed"`
	DeadLetteredIn  []string             `json:"deadLetteredIn,omitempty" nullable:"false" doc:"those of routedTo where the copy went to the dead letters at once: the circuit of its routing key is not closed"`
	RoutedTo        []string             `json:"routedTo" nullable:"false" doc:"the channels that got a copy, by links"`
	Error           *ProblemItem         `json:"error,omitempty" doc:"with partial=true: why this message was not stored"`
}

// PublishResult answers a publish, one element per message, in order.
type PublishResult struct {
	Messages []Published         `json:"messages" nullable:"false"`
	Position eventstore.Position `json:"position" doc:"of the log, at which all of it is visible"`
}

// StoredMessage is a message as a queue, or the log, knows it.
type StoredMessage struct {
	MessageID       eventstore.MessageID `json:"messageId"`
	OriginMessageID eventstore.MessageID `json:"originMessageId"`
	Channel         string               `json:"channel"`
	RoutingKey      string               `json:"routingKey"`
	Content
	Priority    int                 `json:"priority"`
	Offset      *eventstore.Offset  `json:"offset,omitempty" doc:"the place in a stream"`
	State       string              `json:"state" enum:"ready,delayed,inFlight,dead,acked,discarded,purged,expired,deleted,redriven,routed,unroutable,streamed,trimmed" doc:"the first four are in a queue, streamed is in a stream, the others are history; trimmed: its stream keeps it no longer; redriven: recovered into another channel, as a copy; routed, unroutable: published to an exchange, with or without copies"`
	Attempts    int                 `json:"attempts" doc:"deliveries that count"`
	PublishedAt time.Time           `json:"publishedAt"`
	DueAt       *time.Time          `json:"dueAt,omitempty" doc:"delayed: not before"`
	ExpiresAt   *time.Time          `json:"expiresAt,omitempty"`
	Delivery    eventstore.Position `json:"delivery,omitempty" doc:"in flight: the delivery it is part of"`
	LeaseUntil  *time.Time          `json:"leaseUntil,omitempty" doc:"in flight: until when"`
	Owner       string              `json:"owner,omitempty" doc:"in flight: with whom"`
	Reason      string              `json:"reason,omitempty" doc:"dead: why"`
	Detail      string              `json:"detail,omitempty" doc:"dead: what its last consumer said"`
	ErrorClass  string              `json:"errorClass,omitempty" doc:"dead: as its last consumer classed it"`
	DiedAt      *time.Time          `json:"diedAt,omitempty" doc:"dead: since"`
}

// MessagePage is a page of messages.
type MessagePage struct {
	Messages   []StoredMessage `json:"messages" nullable:"false"`
	NextCursor string          `json:"nextCursor,omitempty" doc:"absent on the last page"`
}

// DeadLetterPage is a page of dead letters.
type DeadLetterPage struct {
	DeadLetters []StoredMessage `json:"deadLetters" nullable:"false"`
	NextCursor  string          `json:"nextCursor,omitempty" doc:"absent on the last page"`
}
