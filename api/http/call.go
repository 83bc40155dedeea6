package httpapi

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/gin-gonic/gin"

	"leat/api"
	"leat/api/internal/strict"
	"leat/eventstore"
)

// call is one request on its way through a handler.
type call struct {
	w      http.ResponseWriter
	r      *http.Request
	params gin.Params
	op     operation
	query  values
	actor  string // who calls: Leat-Client, else the remote host
}

// prepare reads what every handler needs.
func (c *call) prepare() error {
	query, err := readQuery(c.r.URL.RawQuery, c.op.query)
	if err != nil {
		return err
	}
	c.query = query
	c.actor, err = actorOf(c.r)
	return err
}

func (c *call) ctx() context.Context { return c.r.Context() }

// name is the {name} of the path, unescaped.
func (c *call) name() string { return c.param("name") }

func (c *call) param(key string) string {
	raw := c.params.ByName(key)
	text, err := url.PathUnescape(raw)
	if err != nil {
		return raw // cannot be: the path was parsed before
	}
	return text
}

// actorOf names who calls.
func actorOf(r *http.Request) (string, error) {
	client := r.Header.Get("Leat-Client")
	if client == "" {
		// A socket without a port has no host to tell: its whole address then.
		if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
			return host, nil
		}
		return r.RemoteAddr, nil
	}
	if !eventstore.IsLabel(client) {
		return "", invalid("Leat-Client", eventstore.LabelRule)
	}
	return client, nil
}

// read takes the whole body, up to limit bytes.
func (c *call) read(limit int64) ([]byte, error) {
	if encoding := c.r.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return nil, eventstore.NewError(api.UnsupportedMediaType, "The body has Content-Encoding %q; send it as it is.", encoding)
	}
	data, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, limit))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, eventstore.NewError(eventstore.PayloadTooLarge, "The body is larger than %d bytes.", limit)
	}
	if err != nil {
		return nil, eventstore.NewError(eventstore.InvalidRequest, "The body ended early: %v.", err)
	}
	return data, nil
}

// decode reads a JSON body into a wire type.
func (c *call) decode(into any) error {
	data, err := c.read(otherBody)
	if err != nil {
		return err
	}
	if len(data) == 0 {
		if len(c.op.bodies) > 0 && c.op.bodies[0].optional {
			return nil
		}
		return eventstore.NewError(eventstore.InvalidRequest, "The request needs a JSON body.")
	}
	return strict.Decode(data, into)
}

// answer writes a wire type, payloads byte for byte.
func (c *call) answer(status int, v any) error {
	data, err := api.Marshal(v)
	if err != nil {
		return err
	}
	c.write(status, jsonType, append(data, '\n'))
	return nil
}

func (c *call) write(status int, contentType string, data []byte) {
	c.w.Header().Set("Content-Type", contentType)
	c.w.WriteHeader(status)
	// A client that is gone needs no answer, and net/http notes it.
	_, _ = c.w.Write(data)
}

func invalid(field, format string, args ...any) *eventstore.Error {
	e := eventstore.NewError(eventstore.InvalidField, format, args...)
	e.Field = field
	return e
}
