package client

import (
	"context"
	"net/http"

	"leat/api"
)

// Relays lists all relays by name.
func (c *Client) Relays(ctx context.Context) ([]api.Relay, error) {
	list, err := call[api.RelayList](ctx, c, request{method: http.MethodGet, path: []string{"v1", "relays"}})
	return list.Relays, err
}

// Relay looks at a relay.
func (c *Client) Relay(ctx context.Context, name string) (api.Relay, error) {
	return call[api.Relay](ctx, c, request{method: http.MethodGet, path: []string{"v1", "relays", name}})
}

// DeclareRelay makes a relay, or finds that it exists with these settings.
func (c *Client) DeclareRelay(ctx context.Context, name string, spec api.RelaySpec) (api.Relay, error) {
	return call[api.Relay](ctx, c, request{method: http.MethodPut, path: []string{"v1", "relays", name}, body: spec})
}

// DeleteRelay deletes a relay, and how far it was.
func (c *Client) DeleteRelay(ctx context.Context, name string) error {
	_, err := call[struct{}](ctx, c, request{method: http.MethodDelete, path: []string{"v1", "relays", name}})
	return err
}

// SkipRelay makes a relay leave out the next row, which has this offset.
func (c *Client) SkipRelay(ctx context.Context, name string, offset int64) (api.Relay, error) {
	return call[api.Relay](ctx, c, request{
		method: http.MethodPost, path: []string{"v1", "relays", name, "skip"}, body: api.RelaySkip{Offset: offset},
	})
}
