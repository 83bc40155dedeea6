package httpapi

import (
	"net/http"

	"leat/api"
	"leat/queries"
)

var getHistoryDoc = operation{
	id: "getHistory", summary: "Every event that names a message, in order; and the family of the message",
	query:   paging(query[bool]("lineage", "whether to give the family too, with the first page; default true")),
	answers: ok[api.History]("A page of its history."),
}

func (s *server) getHistory(c *call) error {
	id, err := messageID(c)
	if err != nil {
		return err
	}
	q := &c.query
	filter := queries.HistoryFilter{Cursor: q.text("cursor"), Limit: q.limit(queries.MaxLimit)}
	withLineage := q.flag("lineage", true) && filter.Cursor == ""
	if q.err != nil {
		return q.err
	}
	history, next, err := s.Queries.History(c.ctx(), id, filter)
	if err != nil {
		return err
	}
	answer := api.History{MessageID: id, OriginMessageID: history.OriginID, Events: eventsOf(history.Events), NextCursor: next}
	if withLineage {
		family, err := s.Queries.Lineage(c.ctx(), id, queries.LineageFilter{})
		if err != nil {
			return err
		}
		lineage := lineageOf(&family)
		answer.Lineage = &lineage
	}
	return c.answer(http.StatusOK, answer)
}

var getLineageDoc = operation{
	id: "getLineage", summary: "The family of a message: its origin and every copy, each with its history",
	query: []parameter{
		query[string]("cursor", "nextCopies of the message: the answer is the message, its copies from there on, and theirs"),
		query[int]("limit", "how many messages, 1 to 1000, default 100; those from the origin to the message come in any case"),
	},
	answers: ok[api.Lineage]("The family, whichever member is asked for. Of a large one it is what is next to the way from the origin to the message."),
}

func (s *server) getLineage(c *call) error {
	id, err := messageID(c)
	if err != nil {
		return err
	}
	filter := queries.LineageFilter{Cursor: c.query.text("cursor"), Limit: c.query.limit(queries.MaxLimit)}
	if c.query.err != nil {
		return c.query.err
	}
	family, err := s.Queries.Lineage(c.ctx(), id, filter)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, lineageOf(&family))
}

func lineageOf(l *queries.Lineage) api.Lineage {
	family := api.Lineage{
		MessageID:       l.MessageID,
		OriginMessageID: l.OriginID,
		Messages:        make([]api.LineageMessage, len(l.Members)),
		Truncated:       l.Truncated,
	}
	for i := range l.Members {
		m := &l.Members[i]
		family.Messages[i] = api.LineageMessage{
			MessageID:       m.ID,
			OriginMessageID: l.OriginID,
			ParentMessageID: m.ParentID,
			Depth:           m.Depth,
			Cause:           causeOf(m.Cause),
			Channel:         m.Channel,
			RoutingKey:      m.RoutingKey,
			State:           stateOf(m.State),
			Events:          memberEvents(m.Events),
			NextEvents:      m.NextEvents,
			NextCopies:      m.NextCopies,
		}
	}
	return family
}

// causeOf is a cause in camelCase.
func causeOf(cause string) string {
	if cause == queries.CauseDeadLetter {
		return "deadLetter"
	}
	return cause
}

// memberEvents are events without content.
func memberEvents(events []queries.Event) []api.Event {
	list := make([]api.Event, len(events))
	for i := range events {
		list[i] = plainEvent(&events[i])
		list[i].Headers = events[i].Headers
	}
	return list
}
