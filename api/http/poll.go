package httpapi

import (
	"net/http"
	"time"

	"leat/api"
	"leat/api/internal/wire"
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
	var body api.PollRequest
	if err := c.decode(&body); err != nil {
		return err
	}
	request := commands.PollRequest{
		Queue: c.name(), Consumer: body.Consumer, Max: defaultMax,
		Wait: time.Duration(body.Wait), RoutingKeys: body.RoutingKeys,
	}
	if request.Consumer == "" {
		request.Consumer = c.actor
	}
	if body.Max != nil {
		if request.Max = *body.Max; request.Max < 1 {
			return invalid("max", "must be at least 1")
		}
	}
	var err error
	if request.Lease, err = wire.Lease(body.Lease); err != nil {
		return err
	}
	deliveries, err := s.Commands.Poll(c.ctx(), request)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, api.PollResult{Deliveries: wire.Deliveries(deliveries)})
}
