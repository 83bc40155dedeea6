package httpapi

import (
	"math"
	"net/http"
	"strings"

	"leat/api"
	"leat/eventstore"
	"leat/queries"
)

var listEventsDoc = operation{
	id: "listEvents", summary: "Read the log, up to the settled position: in pages, or all of it as NDJSON, which may go on with the log",
	about: "A position, or a cursor, to which the log has not come is refused as position_ahead. As NDJSON, an empty line is a sign of life " +
		"while nothing is found, and a last line {\"error\": Problem} says why it ends early: go on behind the last position that came. " +
		"As Server-Sent Events the position is the id, and it always follows.",
	query: paging(
		query[int64]("from", "first position"),
		query[int64]("to", "last position"),
		query[string]("since", "not older, RFC 3339"),
		query[string]("until", "older, RFC 3339"),
		query[string]("channel", "name, also of channels that were deleted"),
		query[string]("kind", "kinds of events, with commas between: "+kindNames()),
		query[int64]("messageId", "that name this message"),
		query[string]("actor", "that this client caused"),
		query[string]("routingKey", "message.published with this key, and what else is about one key: copies that all have it, circuits"),
		query[string]("order", "asc (the default), or desc: from the last one to the first"),
		query[bool]("follow", "NDJSON only: go on with what is appended later, without an end, or up to the position to")),
	headers: []parameter{header[string]("Last-Event-ID", "of Server-Sent Events: the position to go on behind, instead of from; browsers send it")},
	answers: []answer{
		gives[api.EventPage](http.StatusOK, "A page of events. It looks at a bounded part of the log: while there is a nextCursor more may come, even after an empty page."),
		{http.StatusOK, "All events of the choice, one a line, when Accept asks for it.", nil, ndjsonType},
		{http.StatusOK, "", nil, sseType},
	},
}

func (s *server) listEvents(c *call) error {
	accept := c.r.Header.Get("Accept")
	var f eventFraming
	switch {
	case strings.Contains(accept, ndjsonType):
		f = ndjson{}
	case strings.Contains(accept, sseType):
		f = sse{}
	}
	most := int64(queries.MaxLimit)
	if f != nil {
		most = math.MaxInt
	}
	filter, follow, err := eventsFilter(c, f, most)
	if err != nil {
		return err
	}
	if f != nil {
		return s.replay(c, f, filter, follow)
	}
	events, next, err := s.Queries.Events(c.ctx(), filter)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, api.EventPage{Events: eventsOf(events), NextCursor: next})
}

func eventsFilter(c *call, f eventFraming, most int64) (filter queries.EventsFilter, follow bool, err error) {
	q := &c.query
	filter = queries.EventsFilter{
		From:       q.position("from"),
		To:         q.position("to"),
		Since:      q.time("since"),
		Until:      q.time("until"),
		Channel:    q.filter("channel"),
		Kinds:      kinds(q),
		MessageID:  eventstore.MessageID(q.position("messageId")),
		Actor:      q.filter("actor"),
		RoutingKey: q.routingKey(),
		Backwards:  backwards(q),
		Cursor:     q.text("cursor"),
		Limit:      q.limit(most),
	}
	follow = q.flag("follow", f == sse{})
	if id := c.r.Header.Get("Last-Event-ID"); id != "" && f == (sse{}) {
		last, err := eventstore.ParsePosition(id)
		if err != nil {
			q.note("Last-Event-ID", "must be a position of the log")
		}
		filter.From = last + 1
	}
	if follow {
		checkFollow(q, f, &filter)
	}
	return filter, follow, q.err
}

// checkFollow refuses what has no sense while the log goes on.
func checkFollow(q *values, f eventFraming, filter *queries.EventsFilter) {
	switch {
	case f == nil:
		q.note("follow", "is for NDJSON and Server-Sent Events: Accept has to ask for them")
	case filter.Backwards:
		q.note("order", "must be asc where the log is followed")
	case !filter.Until.IsZero():
		q.note("until", "is not for following: what is older than that has come when it is over")
	}
}

func backwards(q *values) bool {
	switch text := q.text("order"); {
	case !q.has("order") || text == "asc":
		return false
	case text == "desc":
		return true
	}
	q.note("order", "must be asc or desc")
	return false
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
