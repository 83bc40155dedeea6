package api

import (
	"time"

	"leat/eventstore"
)

// PollRequest asks for messages of a queue.
type PollRequest struct {
	Max         *int      `json:"max,omitempty" minimum:"1" maximum:"1000" doc:"default 10"`
	Wait        Duration  `json:"wait,omitempty" doc:"how long to wait for the first message, up to 60s; default 0s"`
	Lease       *Duration `json:"lease,omitempty" doc:"default: the queue's"`
	RoutingKeys []string  `json:"routingKeys,omitempty" nullable:"false" doc:"only messages of these keys"`
	Consumer    string    `json:"consumer,omitempty" maxLength:"255" doc:"default: the Leat-Client header, else the remote host"`
}

// Delivery is a message in the hands of a consumer until LeaseUntil.
type Delivery struct {
	Receipt         string               `json:"receipt" doc:"names this delivery of the message in ack, nack, extend and release"`
	MessageID       eventstore.MessageID `json:"messageId"`
	OriginMessageID eventstore.MessageID `json:"originMessageId"`
	Channel         string               `json:"channel"`
	RoutingKey      string               `json:"routingKey"`
	Content
	Priority    int       `json:"priority"`
	Attempt     int       `json:"attempt" doc:"1 for the first delivery"`
	PublishedAt time.Time `json:"publishedAt"`
	LeaseUntil  time.Time `json:"leaseUntil"`
}

// PollResult answers a poll.
type PollResult struct {
	Deliveries []Delivery `json:"deliveries" nullable:"false"`
}

// SettleRequest is the body of ack and release.
type SettleRequest struct {
	Receipts []string `json:"receipts" nullable:"false" minItems:"1" maxItems:"10000"`
}

// NackRequest says that messages were not processed.
type NackRequest struct {
	Receipts   []string  `json:"receipts" nullable:"false" minItems:"1" maxItems:"10000"`
	Action     string    `json:"action,omitempty" enum:"retry,deadLetter,discard" doc:"default retry"`
	Delay      *Duration `json:"delay,omitempty" doc:"retry: instead of the queue's retry policy"`
	Reason     string    `json:"reason,omitempty" doc:"for people; kept in the log"`
	ErrorClass string    `json:"errorClass,omitempty" doc:"for machines; on the queue's nonRetryable list it makes the messages dead at once"`
}

// ExtendRequest sets leases to end lease from now.
type ExtendRequest struct {
	Receipts []string  `json:"receipts" nullable:"false" minItems:"1" maxItems:"10000"`
	Lease    *Duration `json:"lease,omitempty" doc:"default: the queue's"`
}

// SettleResult answers ack, nack, extend and release. Receipts that are not in
// Failed did what was asked, now or before.
type SettleResult struct {
	Settled        int                 `json:"settled" doc:"receipts that did it now"`
	AlreadySettled int                 `json:"alreadySettled" doc:"receipts that had done the same before"`
	Failed         []FailedReceipt     `json:"failed" nullable:"false"`
	LeaseUntil     *time.Time          `json:"leaseUntil,omitempty" doc:"extend: the new end"`
	Position       eventstore.Position `json:"position" doc:"of the log, at which it is visible"`
}

// FailedReceipt is a receipt that changed nothing, and why.
type FailedReceipt struct {
	Receipt string          `json:"receipt"`
	Code    eventstore.Code `json:"code" enum:"lease_lost,already_settled,receipt_unknown"`
	Detail  string          `json:"detail"`
}

// PurgeResult answers a purge.
type PurgeResult struct {
	Purged int64 `json:"purged" doc:"messages that were ready or delayed"`
}
