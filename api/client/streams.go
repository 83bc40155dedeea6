package client

import (
	"context"
	"net/http"
	"net/url"

	"leat/api"
	"leat/eventstore"
)

// StreamFilter chooses messages of a stream; the zero value is the first page of
// what it keeps.
type StreamFilter struct {
	From  string              // earliest, latest, an offset, or a time (RFC 3339); "" is earliest
	Epoch eventstore.Position // of the offset, to be refused if the stream is another one; 0 is any
	Key   string              // a pattern of routing keys; "" is all
	Limit int                 // 1 to 1000; 0 is the server's default
}

// ReadStream reads a page of a stream, without waiting for what comes. Next is
// where the page after it begins.
func (c *Client) ReadStream(ctx context.Context, stream string, f StreamFilter) (api.StreamPage, error) {
	v := url.Values{}
	set(v, "from", f.From)
	setNumber(v, "epoch", int64(f.Epoch))
	set(v, "key", f.Key)
	setNumber(v, "limit", int64(f.Limit))
	return call[api.StreamPage](ctx, c, request{
		method: http.MethodGet, path: []string{"v1", "streams", stream, "messages"}, query: v,
	})
}
