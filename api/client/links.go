package client

import (
	"context"
	"net/http"
	"net/url"

	"leat/api"
	"leat/eventstore"
)

// LinksFilter chooses links. What is zero does not restrict.
type LinksFilter struct {
	Source string // name of a channel
	Target string // the same
	Cursor string // NextCursor of the page before
	Limit  int    // 1 to 1000
}

// Links reads a page of links, by id.
func (c *Client) Links(ctx context.Context, f LinksFilter) (api.LinkPage, error) {
	query := url.Values{}
	set(query, "source", f.Source)
	set(query, "target", f.Target)
	set(query, "cursor", f.Cursor)
	setNumber(query, "limit", int64(f.Limit))
	return call[api.LinkPage](ctx, c, request{method: http.MethodGet, path: []string{"v1", "links"}, query: query})
}

// Link looks at a link.
func (c *Client) Link(ctx context.Context, id eventstore.LinkID) (api.Link, error) {
	return call[api.Link](ctx, c, request{method: http.MethodGet, path: []string{"v1", "links", id.String()}})
}

// DeclareLink makes a link, or finds that it exists with these settings.
func (c *Client) DeclareLink(ctx context.Context, spec api.LinkSpec) (api.Link, error) {
	return call[api.Link](ctx, c, request{method: http.MethodPut, path: []string{"v1", "links"}, body: spec})
}

// AlterLink enables or disables a link, or changes the key that it gives.
func (c *Client) AlterLink(ctx context.Context, id eventstore.LinkID, patch api.LinkPatch) (api.Link, error) {
	return call[api.Link](ctx, c, request{method: http.MethodPatch, path: []string{"v1", "links", id.String()}, body: patch})
}

// DeleteLink deletes a link.
func (c *Client) DeleteLink(ctx context.Context, id eventstore.LinkID) error {
	_, err := call[struct{}](ctx, c, request{method: http.MethodDelete, path: []string{"v1", "links", id.String()}})
	return err
}
