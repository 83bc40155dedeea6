package httpapi

import (
	"net/http"
	"time"

	"leat/api"
	"leat/commands"
)

var pollDoc = operation{
	id: "poll", summary: "Take messages under a lease; wait for the first if asked to", hot: true,
	bodies:  mayTake[api.PollRequest](),
	answers: ok[api.PollResult]("What there was; none when the wait was in vain."),
}

// defaultMax is how many messages a poll takes that does not say.
const defaultMax = 10

func (s *server) poll(c *call) error {
	var wire api.PollRequest
	if err := c.decode(&wire); err != nil {
		return err
	}
	request := commands.PollRequest{
		Queue: c.name(), Consumer: wire.Consumer, Max: defaultMax,
		Wait: time.Duration(wire.Wait), RoutingKeys: wire.RoutingKeys,
	}
	if request.Consumer == "" {
		request.Consumer = c.actor
	}
	if wire.Max != nil {
		if request.Max = *wire.Max; request.Max < 1 {
			return invalid("max", "must be at least 1")
		}
	}
	var err error
	if request.Lease, err = leaseOf(wire.Lease); err != nil {
		return err
	}
	deliveries, err := s.Commands.Poll(c.ctx(), request)
	if err != nil {
		return err
	}
	result := api.PollResult{Deliveries: make([]api.Delivery, len(deliveries))}
	for i := range deliveries {
		result.Deliveries[i] = deliveryOf(&deliveries[i])
	}
	return c.answer(http.StatusOK, result)
}

// leaseOf is 0, which stands for the queue's, only when none is given.
func leaseOf(given *api.Duration) (time.Duration, error) {
	if given == nil {
		return 0, nil
	}
	if *given <= 0 {
		return 0, invalid("lease", "must be greater than 0s")
	}
	return time.Duration(*given), nil
}

func deliveryOf(d *commands.Delivery) api.Delivery {
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
