package httpapi

import (
	"fmt"
	"math"
	"net/http"
	"strings"

	"leat/api"
	"leat/eventstore"
	"leat/queries"
)

var listEventsDoc = operation{
	id: "listEvents", summary: "Read the log, up to the settled position: in pages, or all of it as NDJSON",
	query: paging(
		query[int64]("from", "first position"),
		query[int64]("to", "last position"),
		query[string]("since", "not older, RFC 3339"),
		query[string]("until", "older, RFC 3339"),
		query[string]("channel", "name, also of channels that were deleted"),
		query[string]("kind", "kinds of events, with commas between: "+kindNames()),
		query[int64]("messageId", "that name this message"),
		query[string]("actor", "that this client caused"),
		query[string]("routingKey", "message.published with this key, and what else is about one key: copies that all have it, circuits")),
	answers: []answer{
		gives[api.EventPage](http.StatusOK, "A page of events. It looks at a bounded part of the log: while there is a nextCursor more may come, even after an empty page."),
		{http.StatusOK, "All events of the choice, one a line, when Accept asks for it.", nil, ndjsonType},
	},
}

func (s *server) listEvents(c *call) error {
	lines := strings.Contains(c.r.Header.Get("Accept"), ndjsonType)
	most := int64(queries.MaxLimit)
	if lines {
		most = math.MaxInt
	}
	filter, err := eventsFilter(&c.query, most)
	if err != nil {
		return err
	}
	if lines {
		return s.streamEvents(c, filter)
	}
	events, next, err := s.Queries.Events(c.ctx(), filter)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, api.EventPage{Events: eventsOf(events), NextCursor: next})
}

func eventsFilter(q *values, most int64) (queries.EventsFilter, error) {
	filter := queries.EventsFilter{
		From:       q.position("from"),
		To:         q.position("to"),
		Since:      q.time("since"),
		Until:      q.time("until"),
		Channel:    q.filter("channel"),
		Kinds:      kinds(q),
		MessageID:  eventstore.MessageID(q.position("messageId")),
		Actor:      q.filter("actor"),
		RoutingKey: q.routingKey(),
		Cursor:     q.text("cursor"),
		Limit:      q.limit(most),
	}
	return filter, q.err
}

func kindNames() string {
	var names []string
	for _, kind := range eventstore.Kinds() {
		names = append(names, string(kind))
	}
	return strings.Join(names, ", ")
}

func kinds(q *values) (list []eventstore.Kind) {
	if !q.has("kind") {
		return nil
	}
	for name := range strings.SplitSeq(q.text("kind"), ",") {
		kind, err := eventstore.ParseKind(name)
		if err != nil {
			q.note("kind", "must be kinds of events with commas between, which %q is not", name)
			return nil
		}
		list = append(list, kind)
	}
	return list
}

// streamEvents writes page after page, up to the limit if there is one. The
// first page decides the status; what breaks later breaks the connection.
func (s *server) streamEvents(c *call, filter queries.EventsFilter) error {
	left := filter.Limit
	if left == 0 {
		left = math.MaxInt
	}
	for first := true; ; first = false {
		filter.Limit = min(left, queries.MaxLimit)
		events, next, err := s.Queries.Events(c.ctx(), filter)
		if err != nil && first {
			return err
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errBroken, err)
		}
		if first {
			c.w.Header().Set("Content-Type", ndjsonType)
			c.w.WriteHeader(http.StatusOK)
		}
		if err := writeLines(c, events); err != nil {
			return fmt.Errorf("%w: %w", errBroken, err)
		}
		if left -= len(events); next == "" || left == 0 || c.r.Method == http.MethodHead {
			return nil
		}
		filter.Cursor = next
	}
}

func writeLines(c *call, events []queries.Event) error {
	var lines []byte
	for i := range events {
		lines = eventOf(&events[i]).AppendLine(lines)
	}
	if _, err := c.w.Write(lines); err != nil {
		return err
	}
	return http.NewResponseController(c.w).Flush()
}

func eventsOf(events []queries.Event) []api.Event {
	list := make([]api.Event, len(events))
	for i := range events {
		list[i] = eventOf(&events[i])
	}
	return list
}

// plainEvent is an event, but for what only a message.published has.
func plainEvent(e *queries.Event) api.Event {
	event := api.Event{
		Position:   e.Position,
		At:         e.At.UTC(),
		Kind:       string(e.Kind),
		Channel:    e.Channel,
		Actor:      e.Actor,
		Messages:   e.MessageIDs,
		Origins:    e.OriginIDs,
		Offset:     e.Offset,
		DueAt:      utc(e.DueAt),
		ExpiresAt:  utc(e.ExpiresAt),
		RoutingKey: e.RoutingKey,
		Data:       e.Data,
	}
	if e.Delivery != nil {
		event.Delivery = *e.Delivery
	}
	for _, r := range e.MessageRanges {
		event.Ranges = append(event.Ranges, [2]eventstore.MessageID{r.First, r.Last})
	}
	return event
}

func eventOf(e *queries.Event) api.Event {
	event := plainEvent(e)
	if e.Kind != eventstore.MessagePublished {
		event.Headers = e.Headers // of copies: over those of the origin
	} else {
		priority := 0
		if e.Priority != nil {
			priority = int(*e.Priority)
		}
		event.Priority = &priority
		event.Messages = []eventstore.MessageID{eventstore.MessageID(e.Position)}
		event.Content = publishedContent(e)
	}
	return event
}

// publishedContent fills in what the log leaves out because it is the default.
func publishedContent(e *queries.Event) api.Content {
	contentType := api.ContentJSON
	if e.ContentType != nil {
		contentType = *e.ContentType
	}
	headers := e.Headers
	if headers == nil {
		headers = []byte("{}")
	}
	return api.NewContent(e.Payload, contentType, headers)
}
