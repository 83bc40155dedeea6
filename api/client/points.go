package client

import (
	"context"
	"net/http"

	"leat/api"
)

// Points lists the replication points of a stream, by name.
func (c *Client) Points(ctx context.Context, stream string) (api.PointPage, error) {
	return call[api.PointPage](ctx, c, request{method: http.MethodGet, path: []string{"v1", "streams", stream, "points"}})
}

// Point looks at a replication point.
func (c *Client) Point(ctx context.Context, stream, point string) (api.Point, error) {
	return call[api.Point](ctx, c, request{method: http.MethodGet, path: pointPath(stream, point)})
}

// DeclarePoint makes a replication point, or finds that it exists; then it stays
// where it is.
func (c *Client) DeclarePoint(ctx context.Context, stream, point string, spec api.PointSpec) (api.Point, error) {
	return call[api.Point](ctx, c, request{method: http.MethodPut, path: pointPath(stream, point), body: spec})
}

// CommitPoint says that everything up to and with an offset was processed, in all
// partitions, whoever reads with the point. Subscribers commit by their
// subscription.
func (c *Client) CommitPoint(ctx context.Context, stream, point string, commit api.PointCommit) (api.Point, error) {
	return call[api.Point](ctx, c, request{method: http.MethodPost, path: pointPath(stream, point, "commit"), body: commit})
}

// ResetPoint moves a replication point anywhere. Who reads with it begins there.
func (c *Client) ResetPoint(ctx context.Context, stream, point string, to api.PointStart) (api.Point, error) {
	return call[api.Point](ctx, c, request{method: http.MethodPost, path: pointPath(stream, point, "reset"), body: to})
}

// DeletePoint deletes a replication point, and ends the subscriptions that read
// with it.
func (c *Client) DeletePoint(ctx context.Context, stream, point string) error {
	_, err := call[struct{}](ctx, c, request{method: http.MethodDelete, path: pointPath(stream, point)})
	return err
}

func pointPath(stream, point string, verb ...string) []string {
	return append([]string{"v1", "streams", stream, "points", point}, verb...)
}
