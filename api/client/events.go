package client

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"leat/api"
	"leat/eventstore"
)

// Message says where a message is now.
func (c *Client) Message(ctx context.Context, id eventstore.MessageID) (api.StoredMessage, error) {
	return call[api.StoredMessage](ctx, c, request{method: http.MethodGet, path: []string{"v1", "messages", id.String()}})
}

// History is every event that names a message, in order, from as many pages as
// there are.
func (c *Client) History(ctx context.Context, id eventstore.MessageID) ([]api.Event, error) {
	var events []api.Event
	query := url.Values{"lineage": {"false"}}
	for {
		page, err := call[api.History](ctx, c, request{
			method: http.MethodGet, path: []string{"v1", "messages", id.String(), "history"}, query: query,
		})
		if err != nil {
			return nil, err
		}
		events = append(events, page.Events...)
		if page.NextCursor == "" {
			return events, nil
		}
		query.Set("cursor", page.NextCursor)
	}
}

// Lineage is the family of a message, of at most limit members but for those from
// the origin to the message; 0 is the server's default. With a cursor, NextCopies
// of the message, it is the message, its copies from there on, and theirs.
func (c *Client) Lineage(ctx context.Context, id eventstore.MessageID, cursor string, limit int) (api.Lineage, error) {
	query := url.Values{}
	set(query, "cursor", cursor)
	setNumber(query, "limit", int64(limit))
	return call[api.Lineage](ctx, c, request{method: http.MethodGet, path: []string{"v1", "messages", id.String(), "lineage"}, query: query})
}

// EventsFilter chooses events of the log; every field narrows the choice.
type EventsFilter struct {
	From, To     eventstore.Position // inclusive
	Since, Until time.Time           // Since inclusive, Until exclusive
	Channel      string
	Kinds        []eventstore.Kind
	MessageID    eventstore.MessageID
	Actor        string
	RoutingKey   *string // of message.published, and what else is of one key; nil is any
	Backwards    bool    // from the last one to the first
	Follow       bool    // of StreamEvents and CopyEvents: go on with what is appended later
	Cursor       string  // NextCursor of the page before, of the same order
	Limit        int     // of a page 1 to 1000, 0 is the server's default; of Stream and Copy anything, 0 is all
}

func (f EventsFilter) values() url.Values {
	v := url.Values{}
	setNumber(v, "from", int64(f.From))
	setNumber(v, "to", int64(f.To))
	setTime(v, "since", f.Since)
	setTime(v, "until", f.Until)
	set(v, "channel", f.Channel)
	kinds := make([]string, len(f.Kinds))
	for i, k := range f.Kinds {
		kinds[i] = string(k)
	}
	set(v, "kind", strings.Join(kinds, ","))
	setNumber(v, "messageId", int64(f.MessageID))
	set(v, "actor", f.Actor)
	if f.RoutingKey != nil {
		v.Set("routingKey", *f.RoutingKey)
	}
	if f.Backwards {
		v.Set("order", "desc")
	}
	if f.Follow {
		v.Set("follow", "true")
	}
	set(v, "cursor", f.Cursor)
	setNumber(v, "limit", int64(f.Limit))
	return v
}

func setTime(v url.Values, name string, t time.Time) {
	if !t.IsZero() {
		v.Set(name, t.Format(time.RFC3339Nano))
	}
}

// Events reads a page of the log.
func (c *Client) Events(ctx context.Context, f EventsFilter) (api.EventPage, error) {
	return call[api.EventPage](ctx, c, request{method: http.MethodGet, path: []string{"v1", "events"}, query: f.values()})
}
