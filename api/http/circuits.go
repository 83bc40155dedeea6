package httpapi

import (
	"net/http"

	"leat/api"
	"leat/commands"
	"leat/queries"
)

var listCircuitsDoc = operation{
	id: "listCircuits", summary: "List circuits that are not closed, by queue and routing key",
	about: asOfAbout + " A circuit that was closing then is still open or half open.",
	query: paging(
		asOfParameter(),
		query[string]("channel", "only circuits of this queue"),
		query[string]("routingKey", "only circuits of this key"),
		query[string]("state", "only open, halfOpen or closing ones")),
	answers: ok[api.CircuitPage]("A page of circuits."),
}

// circuitStates are the states by the names that clients use.
var circuitStates = map[string]string{
	"open": queries.CircuitOpen, "halfOpen": queries.CircuitHalfOpen, "closing": queries.CircuitClosing,
}

func (s *server) listCircuits(c *call) error {
	q := &c.query
	filter := queries.CircuitsFilter{
		Channel: q.filter("channel"), RoutingKey: q.routingKey(),
		Cursor: q.text("cursor"), Limit: q.limit(queries.MaxLimit),
	}
	if q.has("state") {
		if filter.State = circuitStates[q.text("state")]; filter.State == "" {
			q.note("state", "must be open, halfOpen or closing")
		}
	}
	if q.err != nil {
		return q.err
	}
	var err error
	if filter.AsOf, err = s.asOf(c); err != nil {
		return err
	}
	circuits, next, err := s.Queries.Circuits(c.ctx(), filter)
	if err != nil {
		return err
	}
	page := api.CircuitPage{Circuits: make([]api.KeyCircuit, len(circuits)), NextCursor: next}
	for i, circuit := range circuits {
		page.Circuits[i] = circuitOf(circuit)
	}
	return c.answer(http.StatusOK, page)
}

func circuitOf(q queries.Circuit) api.KeyCircuit {
	wire := api.KeyCircuit{
		Channel: q.Channel, RoutingKey: q.RoutingKey, State: q.State, MessageID: q.MessageID, Reason: q.Reason,
		OpenedAt: q.OpenedAt.UTC(), ChangedAt: q.ChangedAt.UTC(), Admitted: q.Admitted,
	}
	if q.State == queries.CircuitHalfOpen {
		wire.State = "halfOpen"
	}
	if q.ProbeAt != nil {
		at := q.ProbeAt.UTC()
		wire.ProbeAt = &at
	}
	return wire
}

const (
	openSummary  = "Open a circuit: what waits under the key goes to the dead letters, and so does what comes"
	closeSummary = "Close a circuit, and recover the dead letters of the key or leave them"
	turnAnswer   = "The circuit is like that now."
)

// A path has no place for an empty key: the routes without one take it from the query.
var circuitKey = []parameter{query[string]("routingKey", "of the circuit; may be empty, but must be given")}

var (
	openCircuitDoc = operation{
		id: "openCircuit", summary: openSummary, query: circuitKey,
		bodies: mayTake[struct{}](), answers: ok[api.CircuitResult](turnAnswer),
	}
	openCircuitOfDoc = operation{
		id: "openCircuitOf", summary: openSummary,
		bodies: mayTake[struct{}](), answers: ok[api.CircuitResult](turnAnswer),
	}
	closeCircuitDoc = operation{
		id: "closeCircuit", summary: closeSummary, query: circuitKey,
		bodies: mayTake[api.CloseCircuitRequest](), answers: ok[api.CircuitResult](turnAnswer),
	}
	closeCircuitOfDoc = operation{
		id: "closeCircuitOf", summary: closeSummary,
		bodies: mayTake[api.CloseCircuitRequest](), answers: ok[api.CircuitResult](turnAnswer),
	}
)

func (s *server) openCircuit(c *call) error {
	request, err := circuitRequest(c)
	if err != nil {
		return err
	}
	var none struct{}
	if err := c.decode(&none); err != nil {
		return err
	}
	result, err := s.Commands.OpenCircuit(c.ctx(), request)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, api.CircuitResult(result))
}

func (s *server) closeCircuit(c *call) error {
	request, err := circuitRequest(c)
	if err != nil {
		return err
	}
	var wire api.CloseCircuitRequest
	if err := c.decode(&wire); err != nil {
		return err
	}
	result, err := s.Commands.CloseCircuit(c.ctx(), request, wire.Recover)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, api.CircuitResult(result))
}

// circuitRequest finds the key in the path or in the query.
func circuitRequest(c *call) (commands.CircuitRequest, error) {
	request := commands.CircuitRequest{Queue: c.name(), RoutingKey: c.param("routingKey"), Actor: c.actor}
	if len(c.op.query) > 0 {
		if !c.query.has("routingKey") {
			return request, invalid("routingKey", "must be given, even if it is empty")
		}
		request.RoutingKey = c.query.text("routingKey")
	}
	return request, nil
}
