package client

import (
	"context"
	"net/http"
	"net/url"

	"leat/api"
)

// Channels lists all channels by name, with counts.
func (c *Client) Channels(ctx context.Context) ([]api.Channel, error) {
	list, err := call[api.ChannelList](ctx, c, request{method: http.MethodGet, path: []string{"v1", "channels"}})
	return list.Channels, err
}

// Channel looks at a channel, with counts.
func (c *Client) Channel(ctx context.Context, name string) (api.Channel, error) {
	return call[api.Channel](ctx, c, request{method: http.MethodGet, path: []string{"v1", "channels", name}})
}

// DeclareChannel makes a channel, or finds that it exists with these settings.
func (c *Client) DeclareChannel(ctx context.Context, name string, spec api.ChannelSpec) (api.Channel, error) {
	return call[api.Channel](ctx, c, request{method: http.MethodPut, path: []string{"v1", "channels", name}, body: spec})
}

// AlterChannel changes settings of a channel's policy.
func (c *Client) AlterChannel(ctx context.Context, name string, patch api.ChannelPatch) (api.Channel, error) {
	return call[api.Channel](ctx, c, request{method: http.MethodPatch, path: []string{"v1", "channels", name}, body: patch})
}

// DeleteChannel deletes a channel; with force also one that holds messages.
func (c *Client) DeleteChannel(ctx context.Context, name string, force bool) error {
	r := request{method: http.MethodDelete, path: []string{"v1", "channels", name}}
	if force {
		r.query = url.Values{"force": {"true"}}
	}
	_, err := call[struct{}](ctx, c, r)
	return err
}
