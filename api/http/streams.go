package httpapi

import (
	"errors"
	"net/http"

	"leat/api"
	"leat/eventstore"
	"leat/queries"
)

var readStreamDoc = operation{
	id: "readStream", summary: "Read a stream in pages, without waiting for what comes",
	query: []parameter{
		query[string]("from", "earliest (the default), latest, an offset, or a time (RFC 3339)"),
		query[int64]("epoch", "of the offset, to be refused if the stream is another one"),
		query[string]("key", "pattern of routing keys: words with dots between, * is one word, # any number of them"),
		query[int]("limit", "1 to 1000, default 100"),
	},
	answers: ok[api.StreamPage]("A page. With a key it looks at a bounded part of the stream: while next is below end more may come, even after an empty page."),
}

func (s *server) readStream(c *call) error {
	q := &c.query
	epoch := q.position("epoch")
	from := q.filter("from")
	if !q.has("from") {
		from = "earliest"
	}
	start, err := startOf(from, epoch)
	pattern, patternErr := patternOf(q)
	limit := q.limit(queries.MaxLimit)
	if err := errors.Join(q.err, err, patternErr); err != nil {
		return err
	}
	page, err := s.Queries.StreamMessages(c.ctx(), c.name(), queries.StreamFilter{Start: start, Pattern: pattern, Limit: limit})
	if err != nil {
		return err
	}
	wire := api.StreamPage{
		Stream: c.name(), Epoch: page.Epoch, First: page.First, End: page.End, Next: page.Next,
		Messages: make([]api.StreamMessage, len(page.Messages)),
	}
	for i, m := range page.Messages {
		wire.Messages[i] = api.StreamMessageOf(m)
	}
	return c.answer(http.StatusOK, wire)
}

// patternOf reads the pattern of a key parameter; none chooses all keys.
func patternOf(q *values) (eventstore.Pattern, error) {
	if !q.has("key") {
		return eventstore.Pattern{}, nil
	}
	return parsePattern(q.text("key"))
}

// parsePattern reads the pattern of a field key.
func parsePattern(text string) (eventstore.Pattern, error) {
	pattern, err := eventstore.ParsePattern(text)
	if e, ok := errors.AsType[*eventstore.Error](err); ok {
		e.Field = "key"
	}
	return pattern, err
}
