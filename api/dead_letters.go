package api

import (
	"time"

	"leat/eventstore"
)

// DeadLettersFilter chooses dead letters; every field narrows the choice.
type DeadLettersFilter struct {
	RoutingKey *string              `json:"routingKey,omitempty" maxLength:"255"`
	Reason     *string              `json:"reason,omitempty" enum:"rejected,non_retryable,retries_exhausted,expired,circuit_open"`
	DiedAfter  *time.Time           `json:"diedAfter,omitempty" doc:"at this time or later"`
	DiedBefore *time.Time           `json:"diedBefore,omitempty" doc:"earlier; what dies while the request runs is left in any case"`
	FromID     eventstore.MessageID `json:"fromId,omitempty" doc:"this message id or greater ones"`
	ToID       eventstore.MessageID `json:"toId,omitempty" doc:"this message id or lesser ones"`
}

// RecoverRequest brings dead letters back to life. Exactly one of IDs, Filter
// and All is set.
type RecoverRequest struct {
	IDs    []eventstore.MessageID `json:"ids,omitempty" nullable:"false" minItems:"1" maxItems:"1000" doc:"these, also while the circuit of their key is open"`
	Filter *DeadLettersFilter     `json:"filter,omitempty" doc:"these, but for keys whose circuit is not closed"`
	All    bool                   `json:"all,omitempty" doc:"all, but for keys whose circuit is not closed"`
	TTL    Duration               `json:"ttl,omitempty" doc:"never delivered later than this long from now; default 0s, no end, whatever they had before"`
	To     *string                `json:"to,omitempty" doc:"another channel, where they become new messages; default their own queue, under the same ids"`
}

// RecoverResult answers a recovery.
type RecoverResult struct {
	Recovered   int64               `json:"recovered"`
	CircuitOpen int64               `json:"circuitOpen" doc:"of a filter or all: left because the circuit of their key is not closed"`
	Remaining   int64               `json:"remaining" doc:"of a filter or all: still dead, those of circuitOpen included"`
	Failed      []FailedMessage     `json:"failed" nullable:"false" doc:"of ids: what stays as it was, and why"`
	Position    eventstore.Position `json:"position" doc:"of the log, at which it is visible"`
}

// PurgeDeadLettersRequest removes dead letters. Exactly one of IDs, Filter and
// All is set.
type PurgeDeadLettersRequest struct {
	IDs    []eventstore.MessageID `json:"ids,omitempty" nullable:"false" minItems:"1" maxItems:"1000"`
	Filter *DeadLettersFilter     `json:"filter,omitempty"`
	All    bool                   `json:"all,omitempty"`
}

// PurgeDeadLettersResult answers a purge of dead letters.
type PurgeDeadLettersResult struct {
	Purged    int64               `json:"purged"`
	Remaining int64               `json:"remaining" doc:"of a filter or all: still there"`
	Failed    []FailedMessage     `json:"failed" nullable:"false" doc:"of ids: what stays as it was, and why"`
	Position  eventstore.Position `json:"position" doc:"of the log, at which it is visible"`
}

// FailedMessage is a message that stays as it was, and why.
type FailedMessage struct {
	ID     eventstore.MessageID `json:"id"`
	Code   eventstore.Code      `json:"code" enum:"message_not_dead,message_not_found,unroutable,busy"`
	Detail string               `json:"detail"`
}
