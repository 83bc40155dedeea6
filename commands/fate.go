package commands

import (
	"slices"

	"leat/eventstore"
)

// Fates of a receipt, as leat.receipt_fate names them.
const (
	fateInFlight     = "in_flight"
	fateAcked        = "acked"
	fateRetried      = "retried"
	fateDeadLettered = "dead_lettered"
	fateDiscarded    = "discarded"
	fateReleased     = "released"
	fateLeaseExpired = "lease_expired"
	fateWrongQueue   = "wrong_queue"
	fateUnknown      = "unknown"
)

// failures say what each fate means to a settlement that came too late.
var failures = map[string]FailedReceipt{
	fateInFlight:     {Code: eventstore.LeaseLost, Message: "The lease ended while it was being settled."},
	fateLeaseExpired: {Code: eventstore.LeaseLost, Message: "The lease has ended; the message goes its queue's retry way."},
	fateAcked:        {Code: eventstore.AlreadySettled, Message: "It was acknowledged before."},
	fateRetried:      {Code: eventstore.AlreadySettled, Message: "It was given back for a retry before."},
	fateDeadLettered: {Code: eventstore.AlreadySettled, Message: "It was dead-lettered before."},
	fateDiscarded:    {Code: eventstore.AlreadySettled, Message: "It was discarded before."},
	fateReleased:     {Code: eventstore.AlreadySettled, Message: "It was released before."},
	fateWrongQueue:   {Code: eventstore.ReceiptUnknown, Message: "It belongs to another queue."},
	fateUnknown:      {Code: eventstore.ReceiptUnknown, Message: "No delivery of this queue has this receipt."},
}

// addFate counts a receipt that was not in flight any more.
func (r *SettleResult) addFate(receipt eventstore.Receipt, fate string, same []string) {
	if slices.Contains(same, fate) {
		r.AlreadySettled++
		return
	}
	failed, ok := failures[fate]
	if !ok {
		failed = FailedReceipt{Code: eventstore.LeaseLost, Message: "The message has left its delivery: " + fate + "."}
	}
	failed.Receipt = receipt.String()
	r.Failed = append(r.Failed, failed)
}
