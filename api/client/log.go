package client

import (
	"context"
	"net/http"
	"net/url"

	"leat/api"
)

// Log says how the log lies in the database.
func (c *Client) Log(ctx context.Context) (api.Log, error) {
	return call[api.Log](ctx, c, request{method: http.MethodGet, path: []string{"v1", "log"}})
}

// SealLog seals all of the log that is settled, and answers the last seal.
func (c *Client) SealLog(ctx context.Context) (api.SealResult, error) {
	return call[api.SealResult](ctx, c, request{method: http.MethodPost, path: []string{"v1", "log", "seal"}})
}

// NoteArchive notes that a range of the log is in an archive.
func (c *Client) NoteArchive(ctx context.Context, r api.ArchivedRange) (api.ArchiveResult, error) {
	return call[api.ArchiveResult](ctx, c, request{method: http.MethodPost, path: []string{"v1", "log", "archived"}, body: r})
}

// VerifyLog holds a page of the log against its seals, from the beginning or from the
// NextCursor of the page before. expect is a digest that the chain has to have, ""
// for none.
func (c *Client) VerifyLog(ctx context.Context, cursor, expect string) (api.ChainPage, error) {
	query := url.Values{}
	if cursor != "" {
		query.Set("cursor", cursor)
	}
	if expect != "" {
		query.Set("expect", expect)
	}
	return call[api.ChainPage](ctx, c, request{method: http.MethodPost, path: []string{"v1", "log", "verify"}, query: query})
}
