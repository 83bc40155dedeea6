// Package wire makes wire types of what commands answer, for the API's ways in.
package wire

import (
	"time"

	"leat/api"
	"leat/commands"
	"leat/eventstore"
)

// Delivery is a delivery as clients see it.
func Delivery(d *commands.Delivery) api.Delivery {
	return api.Delivery{
		Receipt:         d.Receipt.String(),
		MessageID:       d.MessageID,
		OriginMessageID: d.OriginMessageID,
		Channel:         d.Channel,
		RoutingKey:      d.RoutingKey,
		Content:         api.NewContent(d.Payload, d.ContentType, d.Headers),
		Priority:        d.Priority,
		Attempt:         d.Attempt,
		PublishedAt:     d.PublishedAt.UTC(),
		LeaseUntil:      d.LeaseUntil.UTC(),
	}
}

// Deliveries are deliveries as clients see them.
func Deliveries(deliveries []commands.Delivery) []api.Delivery {
	list := make([]api.Delivery, len(deliveries))
	for i := range deliveries {
		list[i] = Delivery(&deliveries[i])
	}
	return list
}

// Settled is what became of receipts.
func Settled(r commands.SettleResult) api.SettleResult {
	result := api.SettleResult{
		Settled: r.Settled, AlreadySettled: r.AlreadySettled, Position: r.Position,
		Failed: make([]api.FailedReceipt, len(r.Failed)),
	}
	for i, f := range r.Failed {
		result.Failed[i] = api.FailedReceipt{Receipt: f.Receipt, Code: f.Code, Detail: f.Message}
	}
	return result
}

// Extended is Settled with the new end of the leases.
func Extended(r commands.SettleResult, until time.Time) api.SettleResult {
	result := Settled(r)
	if r.Settled > 0 {
		until = until.UTC()
		result.LeaseUntil = &until
	}
	return result
}

// Lease is 0, which stands for the default, only when none is given.
func Lease(given *api.Duration) (time.Duration, error) {
	if given == nil {
		return 0, nil
	}
	if *given <= 0 {
		e := eventstore.NewError(eventstore.InvalidField, "must be greater than 0s")
		e.Field = "lease"
		return 0, e
	}
	return time.Duration(*given), nil
}
