package httpapi

import (
	"net/http"
	"strings"

	"leat/api"
	"leat/eventstore"
	"leat/queries"
)

var listDeadLettersDoc = operation{
	id: "listDeadLetters", summary: "List the dead letters of a queue, by message id",
	query: paging(
		query[string]("routingKey", "only this key"),
		query[string]("reason", "only this reason: "+strings.Join(eventstore.DeathReasons(), ", ")),
		query[bool]("payload", "whether to give payloads; default true")),
	answers: ok[api.DeadLetterPage]("A page of dead letters."),
}

func (s *server) listDeadLetters(c *call) error {
	q := &c.query
	filter := queries.DeadLettersFilter{
		RoutingKey:  q.optionalText("routingKey"),
		Reason:      q.filter("reason"),
		Cursor:      q.text("cursor"),
		Limit:       q.limit(queries.MaxLimit),
		WithPayload: q.flag("payload", true),
	}
	if q.err != nil {
		return q.err
	}
	messages, next, err := s.Queries.DeadLetters(c.ctx(), c.name(), filter)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, api.DeadLetterPage{DeadLetters: storedMessages(messages, filter.WithPayload), NextCursor: next})
}
