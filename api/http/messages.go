package httpapi

import (
	"net/http"
	"time"

	"leat/api"
	"leat/eventstore"
	"leat/queries"
)

var peekDoc = operation{
	id: "peekMessages", summary: "Look into a queue without taking anything, by message id", about: asOfAbout,
	query: paging(
		asOfParameter(),
		query[string]("state", "ready, delayed, inFlight or dead; default all"),
		query[string]("routingKey", "only this key"),
		query[bool]("payload", "whether to give payloads; default true")),
	answers: ok[api.MessagePage]("A page of messages."),
}

func (s *server) peek(c *call) error {
	q := &c.query
	filter := queries.MessagesFilter{
		State:       stateFrom(q.filter("state")),
		RoutingKey:  q.routingKey(),
		Cursor:      q.text("cursor"),
		Limit:       q.limit(queries.MaxLimit),
		WithPayload: q.flag("payload", true),
	}
	if q.err != nil {
		return q.err
	}
	var err error
	if filter.AsOf, err = s.asOf(c); err != nil {
		return err
	}
	messages, next, err := s.Queries.Messages(c.ctx(), c.name(), filter)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, api.MessagePage{Messages: storedMessages(messages, filter.WithPayload), NextCursor: next})
}

var getMessageDoc = operation{
	id: "getMessage", summary: "Where a message is now, also when it has left its queue", about: asOfAbout,
	query:   []parameter{asOfParameter()},
	answers: ok[api.StoredMessage]("The message."),
}

func (s *server) getMessage(c *call) error {
	id, err := messageID(c)
	if err != nil {
		return err
	}
	moment, err := s.asOf(c)
	if err != nil {
		return err
	}
	var m queries.Message
	if moment != nil {
		m, err = s.Queries.MessageAsOf(c.ctx(), id, *moment)
	} else {
		m, err = s.Queries.Message(c.ctx(), id)
	}
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, storedMessage(&m, true))
}

// messageID reads the {id} of the path; what is no id is the id of no message.
func messageID(c *call) (eventstore.MessageID, error) {
	text := c.param("id")
	id, err := eventstore.ParseMessageID(text)
	if err != nil {
		return 0, eventstore.NewError(eventstore.MessageNotFound, "There is no message %q: an id is a number greater than 0.", text)
	}
	return id, nil
}

// States have names of one word in SQL and camelCase in JSON.
const inFlight = "inFlight"

func stateFrom(text string) queries.State {
	switch text {
	case inFlight:
		return queries.InFlight
	case string(queries.InFlight):
		return queries.State("?") // refused: one spelling only
	default:
		return queries.State(text)
	}
}

func stateOf(s queries.State) string {
	if s == queries.InFlight {
		return inFlight
	}
	return string(s)
}

func storedMessages(messages []queries.Message, withPayload bool) []api.StoredMessage {
	list := make([]api.StoredMessage, len(messages))
	for i := range messages {
		list[i] = storedMessage(&messages[i], withPayload)
	}
	return list
}

func storedMessage(m *queries.Message, withPayload bool) api.StoredMessage {
	content := api.Content{ContentType: m.ContentType, Headers: m.Headers}
	if withPayload {
		content = api.NewContent(m.Payload, m.ContentType, m.Headers)
	}
	return api.StoredMessage{
		MessageID:       m.ID,
		OriginMessageID: m.OriginID,
		Channel:         m.Channel,
		RoutingKey:      m.RoutingKey,
		Content:         content,
		Priority:        m.Priority,
		Offset:          m.Offset,
		State:           stateOf(m.State),
		Attempts:        m.Attempts,
		PublishedAt:     m.PublishedAt.UTC(),
		DueAt:           utc(m.DueAt),
		ExpiresAt:       utc(m.ExpiresAt),
		Delivery:        m.Delivery,
		LeaseUntil:      utc(m.LeaseUntil),
		Owner:           m.Owner,
		Reason:          m.Reason,
		Detail:          m.Detail,
		ErrorClass:      m.ErrorClass,
		DiedAt:          utc(m.DiedAt),
	}
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}
