package api

import (
	"time"

	"leat/eventstore"
)

// KeyCircuit is that of a routing key of a FIFO queue. It is not closed: what comes
// of the key goes to the dead letters.
type KeyCircuit struct {
	Channel    string                 `json:"channel"`
	RoutingKey string                 `json:"routingKey"`
	State      string                 `json:"state" enum:"open,halfOpen,closing" doc:"halfOpen: one message is tried; closing: it went well, and the others are about to follow"`
	MessageID  eventstore.MessageID   `json:"messageId,omitempty" doc:"halfOpen: the one that is tried; else the one whose death opened it"`
	Reason     string                 `json:"reason" doc:"why that died, or: by hand"`
	OpenedAt   time.Time              `json:"openedAt"`
	ChangedAt  time.Time              `json:"changedAt"`
	ProbeAt    *time.Time             `json:"probeAt,omitempty" doc:"open: when the first dead message is tried; absent: never"`
	Admitted   []eventstore.MessageID `json:"admitted" nullable:"false" doc:"messages that are let through"`
}

// CircuitPage is a page of circuits, by queue and routing key.
type CircuitPage struct {
	Circuits   []KeyCircuit `json:"circuits" nullable:"false"`
	NextCursor string       `json:"nextCursor,omitempty" doc:"absent on the last page"`
}

// CloseCircuitRequest closes a circuit.
type CloseCircuitRequest struct {
	Recover bool `json:"recover,omitempty" doc:"whether the dead letters of the key wait again, in order, before what comes now; default false: they stay dead"`
}

// CircuitResult says what became of a circuit.
type CircuitResult struct {
	Changed  bool  `json:"changed" doc:"false: it was like that before"`
	Messages int64 `json:"messages" doc:"open: how many went to the dead letters; close: how many were recovered"`
}
