package client

import (
	"context"
	"net/http"
	"net/url"

	"leat/api"
)

// Publish stores messages, all or none; with partial, those that are good.
func (c *Client) Publish(ctx context.Context, channel string, messages api.PublishRequest, partial bool) (api.PublishResult, error) {
	r := request{method: http.MethodPost, path: []string{"v1", "channels", channel, "messages"}, body: messages}
	if partial {
		r.query = url.Values{"partial": {"true"}}
	}
	return call[api.PublishResult](ctx, c, r)
}

// PublishRaw stores one message whose payload is the body as it is. Its fields
// are query parameters: routingKey, priority, delay, deliverAt, ttl, expiresAt
// and dedupId. Headers are those of HTTP: Leat-Header-<name>, ce-*, traceparent.
func (c *Client) PublishRaw(ctx context.Context, channel string, payload []byte, contentType string,
	fields url.Values, headers http.Header,
) (api.PublishResult, error) {
	if contentType == "" {
		contentType = "application/octet-stream"
	}
	return call[api.PublishResult](ctx, c, request{
		method: http.MethodPost, path: []string{"v1", "channels", channel, "messages"},
		raw: payload, contentType: contentType, query: fields, headers: headers,
	})
}

// PublishLines stores the messages of NDJSON, one object a line.
func (c *Client) PublishLines(ctx context.Context, channel string, lines []byte, partial bool) (api.PublishResult, error) {
	r := request{
		method: http.MethodPost, path: []string{"v1", "channels", channel, "messages"},
		raw: lines, contentType: "application/x-ndjson",
	}
	if partial {
		r.query = url.Values{"partial": {"true"}}
	}
	return call[api.PublishResult](ctx, c, r)
}
