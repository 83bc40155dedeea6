package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"leat/api"
)

// Poll takes messages of a queue under a lease.
func (c *Client) Poll(ctx context.Context, queue string, r api.PollRequest) ([]api.Delivery, error) {
	result, err := call[api.PollResult](ctx, c, post(queue, "poll", r))
	return result.Deliveries, err
}

// Ack says that messages are processed.
func (c *Client) Ack(ctx context.Context, queue string, receipts ...string) (api.SettleResult, error) {
	return call[api.SettleResult](ctx, c, post(queue, "ack", api.SettleRequest{Receipts: receipts}))
}

// Nack says that messages were not processed.
func (c *Client) Nack(ctx context.Context, queue string, r api.NackRequest) (api.SettleResult, error) {
	return call[api.SettleResult](ctx, c, post(queue, "nack", r))
}

// Extend sets leases to end later.
func (c *Client) Extend(ctx context.Context, queue string, r api.ExtendRequest) (api.SettleResult, error) {
	return call[api.SettleResult](ctx, c, post(queue, "extend", r))
}

// Release gives messages back without counting the attempt.
func (c *Client) Release(ctx context.Context, queue string, receipts ...string) (api.SettleResult, error) {
	return call[api.SettleResult](ctx, c, post(queue, "release", api.SettleRequest{Receipts: receipts}))
}

// Purge removes what is ready or delayed, and says how many messages that was.
func (c *Client) Purge(ctx context.Context, queue string) (int64, error) {
	result, err := call[api.PurgeResult](ctx, c, post(queue, "purge", nil))
	return result.Purged, err
}

func post(queue, verb string, body any) request {
	return request{method: http.MethodPost, path: []string{"v1", "queues", queue, verb}, body: body}
}

// MessagesFilter chooses messages of a queue; the zero value is the first page
// of all.
type MessagesFilter struct {
	State      string  // ready, delayed, inFlight or dead; "" is all. Not for dead letters
	Reason     string  // for dead letters only; "" is all
	RoutingKey *string // nil is all
	Cursor     string  // NextCursor of the page before
	Limit      int     // 1 to 1000; 0 is the server's default
	NoPayload  bool
}

func (f MessagesFilter) values() url.Values {
	v := url.Values{}
	set(v, "state", f.State)
	set(v, "reason", f.Reason)
	if f.RoutingKey != nil {
		v.Set("routingKey", *f.RoutingKey)
	}
	set(v, "cursor", f.Cursor)
	setNumber(v, "limit", int64(f.Limit))
	if f.NoPayload {
		v.Set("payload", "false")
	}
	return v
}

// Messages looks into a queue without taking anything.
func (c *Client) Messages(ctx context.Context, queue string, f MessagesFilter) (api.MessagePage, error) {
	return call[api.MessagePage](ctx, c, request{
		method: http.MethodGet, path: []string{"v1", "queues", queue, "messages"}, query: f.values(),
	})
}

// set leaves out what is empty.
func set(v url.Values, name, value string) {
	if value != "" {
		v.Set(name, value)
	}
}

func setNumber(v url.Values, name string, value int64) {
	if value != 0 {
		v.Set(name, strconv.FormatInt(value, 10))
	}
}
