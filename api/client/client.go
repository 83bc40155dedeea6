package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"leat/api"
)

// Options tune a client. The zero value is fine.
type Options struct {
	// Client is the name that the log gives for what this client does, up to 255
	// bytes. Default: the address that the server sees.
	Client string
	// HTTP makes the calls. Default: a client of its own that keeps up to
	// MaxConnections connections; its calls end with their context only.
	HTTP *http.Client
	// MaxConnections is how many idle connections the default HTTP client keeps.
	// Default 256.
	MaxConnections int
}

// Client calls one server. It is safe for concurrent use.
type Client struct {
	base   *url.URL
	client string
	http   *http.Client
	asOf   string
}

// New makes a client of the server at baseURL. It does not connect yet.
func New(baseURL string, options Options) (*Client, error) {
	base, err := url.Parse(baseURL)
	if err != nil {
		return nil, fmt.Errorf("parse server URL: %w", err)
	}
	if (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" {
		return nil, fmt.Errorf("parse server URL %q: not of the form http://host:port", baseURL)
	}
	if options.MaxConnections == 0 {
		options.MaxConnections = 256
	}
	if options.HTTP == nil {
		options.HTTP = &http.Client{Transport: transport(options.MaxConnections)}
	}
	return &Client{base: base, client: options.Client, http: options.HTTP}, nil
}

// transport is the default one, but for how many connections it keeps: of its
// two, all other parallel callers would dial anew for each call.
func transport(connections int) *http.Transport {
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		t = &http.Transport{}
	}
	t = t.Clone()
	t.MaxIdleConns = connections
	t.MaxIdleConnsPerHost = connections
	t.IdleConnTimeout = time.Minute
	t.DisableCompression = true
	return t
}

// AsOf is a client whose Channels, Channel, Messages, DeadLetters, Circuits and Message
// answer as of a position of the log, or a time as in RFC 3339. Of the rest it is
// refused.
func (c *Client) AsOf(moment string) *Client {
	past := *c
	past.asOf = moment
	return &past
}

// URL is that of the server.
func (c *Client) URL() string { return c.base.String() }

// Close closes the connections that are idle.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// request is one call.
type request struct {
	method      string
	path        []string // segments, unescaped
	query       url.Values
	body        any // wire type; nil is none
	raw         []byte
	contentType string // of raw
	headers     http.Header
	accept      string
	also        int // a status that is an answer all the same
}

// call makes the request and reads the answer into a value of type T.
func call[T any](ctx context.Context, c *Client, r request) (T, error) {
	var answer T
	response, err := c.send(ctx, r)
	if err != nil {
		return answer, err
	}
	defer drain(response)
	if response.StatusCode == http.StatusNoContent {
		return answer, nil
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return answer, fmt.Errorf("read answer of %s: %w", r.name(), err)
	}
	return answer, nil
}

func (r request) name() string { return r.method + " /" + strings.Join(r.path, "/") }

// send makes the request; the answer is not a problem.
func (c *Client) send(ctx context.Context, r request) (*http.Response, error) {
	body, contentType, err := r.content()
	if err != nil {
		return nil, fmt.Errorf("write body of %s: %w", r.name(), err)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, c.url(r), body)
	if err != nil {
		return nil, fmt.Errorf("make request %s: %w", r.name(), err)
	}
	maps.Copy(req.Header, r.headers)
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	if r.accept != "" {
		req.Header.Set("Accept", r.accept)
	}
	if c.client != "" {
		req.Header.Set("Leat-Client", c.client)
	}
	response, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("call %s: %w", r.name(), err)
	}
	if response.StatusCode >= http.StatusMultipleChoices && response.StatusCode != r.also {
		defer drain(response)
		return nil, problem(response)
	}
	return response, nil
}

func (r request) content() (io.Reader, string, error) {
	if r.contentType != "" {
		return bytes.NewReader(r.raw), r.contentType, nil
	}
	if r.body == nil {
		return http.NoBody, "", nil
	}
	data, err := api.Marshal(r.body)
	return bytes.NewReader(data), api.ContentJSON, err
}

// url escapes each segment, so that a name keeps its slashes.
func (c *Client) url(r request) string {
	u := *c.base
	escaped := make([]string, len(r.path))
	for i, segment := range r.path {
		escaped[i] = url.PathEscape(segment)
	}
	prefix := strings.TrimSuffix(c.base.Path, "/")
	u.Path = prefix + "/" + strings.Join(r.path, "/")
	u.RawPath = strings.TrimSuffix(c.base.EscapedPath(), "/") + "/" + strings.Join(escaped, "/")
	query := r.query
	if c.asOf != "" {
		query = maps.Clone(query)
		if query == nil {
			query = url.Values{}
		}
		query.Set("asOf", c.asOf)
	}
	u.RawQuery = query.Encode()
	return u.String()
}

// maxProblem bounds what is read of an answer that may come from anywhere.
const maxProblem = 1 << 20

// problem reads a refusal. Something between here and the server may answer
// with less than a problem.
func problem(response *http.Response) error {
	data, err := io.ReadAll(io.LimitReader(response.Body, maxProblem))
	if err != nil {
		return fmt.Errorf("read refusal: %w", err)
	}
	media, _, err := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if err == nil && media == api.ContentProblem {
		p := &api.Problem{}
		if err := json.Unmarshal(data, p); err == nil {
			p.RetryAfter = retryAfter(response.Header)
			return p
		}
	}
	return &api.Problem{
		Title:      http.StatusText(response.StatusCode),
		Status:     response.StatusCode,
		Detail:     fmt.Sprintf("the server answered %s", response.Status),
		RetryAfter: retryAfter(response.Header),
	}
}

// retryAfter is 0 where there is no such header, or it is a date.
func retryAfter(header http.Header) time.Duration {
	seconds, err := strconv.Atoi(header.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, time.Hour)
}

// drain lets the connection be used again, unless there is a lot left or it is
// broken: then closing the body closes it.
func drain(response *http.Response) {
	_, _ = io.CopyN(io.Discard, response.Body, maxProblem)
	_ = response.Body.Close()
}
