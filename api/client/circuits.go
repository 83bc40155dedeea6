package client

import (
	"context"
	"net/http"
	"net/url"

	"leat/api"
)

// CircuitsFilter chooses circuits. What is zero does not restrict.
type CircuitsFilter struct {
	Channel    string
	RoutingKey *string
	State      string // open, halfOpen or closing
	Cursor     string // NextCursor of the page before
	Limit      int    // 1 to 1000
}

// Circuits reads a page of the circuits that are not closed, by queue and routing key.
func (c *Client) Circuits(ctx context.Context, f CircuitsFilter) (api.CircuitPage, error) {
	query := url.Values{}
	set(query, "channel", f.Channel)
	if f.RoutingKey != nil {
		query.Set("routingKey", *f.RoutingKey)
	}
	set(query, "state", f.State)
	set(query, "cursor", f.Cursor)
	setNumber(query, "limit", int64(f.Limit))
	return call[api.CircuitPage](ctx, c, request{method: http.MethodGet, path: []string{"v1", "circuits"}, query: query})
}

// OpenCircuit opens the circuit of a routing key by hand.
func (c *Client) OpenCircuit(ctx context.Context, queue, routingKey string) (api.CircuitResult, error) {
	return c.turnCircuit(ctx, queue, routingKey, "open", nil)
}

// CloseCircuit closes the circuit of a routing key by hand.
func (c *Client) CloseCircuit(ctx context.Context, queue, routingKey string, r api.CloseCircuitRequest) (api.CircuitResult, error) {
	return c.turnCircuit(ctx, queue, routingKey, "close", r)
}

func (c *Client) turnCircuit(ctx context.Context, queue, routingKey, verb string, body any) (api.CircuitResult, error) {
	return call[api.CircuitResult](ctx, c, request{
		method: http.MethodPost, path: []string{"v1", "queues", queue, "circuits", verb},
		query: url.Values{"routingKey": {routingKey}}, body: body,
	})
}
