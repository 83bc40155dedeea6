package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"leat/api"
)

// Status says how broker and database are.
func (c *Client) Status(ctx context.Context) (api.Status, error) {
	return call[api.Status](ctx, c, request{method: http.MethodGet, path: []string{"v1", "status"}})
}

// Verify compares the queue views with the log, from the beginning or from the
// last checkpoint, and lists at most limit differences; 0 is the server's default.
func (c *Client) Verify(ctx context.Context, fromCheckpoint bool, limit int) (api.VerifyResult, error) {
	query := url.Values{}
	if fromCheckpoint {
		query.Set("fromCheckpoint", "true")
	}
	setNumber(query, "limit", int64(limit))
	return call[api.VerifyResult](ctx, c, request{
		method: http.MethodPost, path: []string{"v1", "projections", "verify"}, query: query,
	})
}

// Rebuild makes the queue views anew from the log.
func (c *Client) Rebuild(ctx context.Context) (api.RebuildResult, error) {
	return call[api.RebuildResult](ctx, c, request{method: http.MethodPost, path: []string{"v1", "projections", "rebuild"}})
}

// Live asks whether the server answers at all.
func (c *Client) Live(ctx context.Context) error {
	_, err := call[api.Readiness](ctx, c, request{method: http.MethodGet, path: []string{"livez"}})
	return err
}

// Ready says whether the server can serve. An unready server is an answer, not
// an error.
func (c *Client) Ready(ctx context.Context) (api.Readiness, error) {
	return call[api.Readiness](ctx, c, request{
		method: http.MethodGet, path: []string{"readyz"}, query: url.Values{"verbose": {"true"}}, also: http.StatusServiceUnavailable,
	})
}

// OpenAPI is the server's OpenAPI document.
func (c *Client) OpenAPI(ctx context.Context) (json.RawMessage, error) {
	return call[json.RawMessage](ctx, c, request{method: http.MethodGet, path: []string{"openapi.json"}})
}
