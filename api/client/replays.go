package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"leat/api"
	"leat/eventstore"
)

// Republish publishes again what a channel held in a range of the past. progress,
// unless it is nil, is told at the start and after each step what was done so far.
// What an error, or the end of the context, leaves can be resumed by its id.
func (c *Client) Republish(ctx context.Context, r api.RepublishRequest, progress func(api.Replay)) (api.Replay, error) {
	return inSteps(ctx, c, request{method: http.MethodPost, path: []string{"v1", "replays"}, body: r}, progress)
}

// ResumeReplay lets a replay go on where it is.
func (c *Client) ResumeReplay(ctx context.Context, id eventstore.Position, progress func(api.Replay)) (api.Replay, error) {
	return inSteps(ctx, c, request{method: http.MethodPost, path: []string{"v1", "replays", id.String(), "resume"}}, progress)
}

// Replays lists what was published again, or is, the last one first: the page at a
// cursor, "" for the first one, of at most limit; 0 is 100.
func (c *Client) Replays(ctx context.Context, cursor string, limit int) (api.ReplayPage, error) {
	v := url.Values{}
	if cursor != "" {
		v.Set("cursor", cursor)
	}
	if limit != 0 {
		v.Set("limit", strconv.Itoa(limit))
	}
	return call[api.ReplayPage](ctx, c, request{method: http.MethodGet, path: []string{"v1", "replays"}, query: v})
}

// Replay looks how far a replay is.
func (c *Client) Replay(ctx context.Context, id eventstore.Position) (api.Replay, error) {
	return call[api.Replay](ctx, c, request{method: http.MethodGet, path: []string{"v1", "replays", id.String()}})
}
