package httpapi

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"leat/api"
	"leat/commands"
	"leat/eventstore"
	"leat/queries"
)

var listDeadLettersDoc = operation{
	id: "listDeadLetters", summary: "List the dead letters of a queue, by message id", about: asOfAbout,
	query: paging(
		asOfParameter(),
		query[string]("routingKey", "only this key"),
		query[string]("reason", "only this reason: "+strings.Join(eventstore.DeathReasons(), ", ")),
		query[string]("diedAfter", "died at this time or later, RFC 3339"),
		query[string]("diedBefore", "died earlier, RFC 3339"),
		query[bool]("payload", "whether to give payloads; default true")),
	answers: ok[api.DeadLetterPage]("A page of dead letters."),
}

func (s *server) listDeadLetters(c *call) error {
	q := &c.query
	filter := queries.DeadLettersFilter{
		RoutingKey:  q.routingKey(),
		Reason:      q.filter("reason"),
		DiedAfter:   q.time("diedAfter"),
		DiedBefore:  q.time("diedBefore"),
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
	messages, next, err := s.Queries.DeadLetters(c.ctx(), c.name(), filter)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, api.DeadLetterPage{DeadLetters: storedMessages(messages, filter.WithPayload), NextCursor: next})
}

const progressAnswer = "The same after each step, one a line, when Accept asks for it: the last line is the answer."

var recoverDoc = operation{
	id: "recoverDeadLetters", summary: "Bring dead letters back to life, in steps of about 100,000",
	bodies: takes[api.RecoverRequest](),
	answers: []answer{
		gives[api.RecoverResult](http.StatusOK, "What was done when all of the choice had been looked at. A request that ends earlier keeps what it has done."),
		{http.StatusOK, progressAnswer, nil, ndjsonType},
	},
}

func (s *server) recoverDeadLetters(c *call) error {
	var wire api.RecoverRequest
	if err := c.decode(&wire); err != nil {
		return err
	}
	chosen, err := c.deadLetters(wire.IDs, wire.Filter, wire.All)
	if err != nil {
		return err
	}
	req := commands.RecoverRequest{DeadLetters: chosen, TTL: time.Duration(wire.TTL)}
	if wire.To != nil {
		if *wire.To == "" {
			return invalid("to", "must not be empty: leave it out for the queue itself")
		}
		req.To = *wire.To
	}
	return inSteps(c, recovered, func(progress func(commands.DeadLettersResult)) (commands.DeadLettersResult, error) {
		req.Progress = progress
		return s.Commands.Recover(c.ctx(), req)
	})
}

var purgeDeadLettersDoc = operation{
	id: "purgeDeadLetters", summary: "Remove dead letters for good, in steps of about 100,000; the log keeps them",
	bodies: takes[api.PurgeDeadLettersRequest](),
	answers: []answer{
		gives[api.PurgeDeadLettersResult](http.StatusOK, "What was done."),
		{http.StatusOK, progressAnswer, nil, ndjsonType},
	},
}

func (s *server) purgeDeadLetters(c *call) error {
	var wire api.PurgeDeadLettersRequest
	if err := c.decode(&wire); err != nil {
		return err
	}
	req, err := c.deadLetters(wire.IDs, wire.Filter, wire.All)
	if err != nil {
		return err
	}
	return inSteps(c, purgedDead, func(progress func(commands.DeadLettersResult)) (commands.DeadLettersResult, error) {
		req.Progress = progress
		return s.Commands.PurgeDeadLetters(c.ctx(), req)
	})
}

// deadLetters is the choice of a request. What is there but empty is refused: it
// would choose more than was meant.
func (c *call) deadLetters(ids []eventstore.MessageID, filter *api.DeadLettersFilter, all bool) (commands.DeadLetters, error) {
	d := commands.DeadLetters{Queue: c.name(), Actor: c.actor, IDs: ids, All: all}
	if filter != nil {
		d.Filter = &commands.DeadLettersFilter{
			RoutingKey: filter.RoutingKey, FromID: filter.FromID, ToID: filter.ToID,
		}
		if filter.Reason != nil {
			if *filter.Reason == "" {
				return d, invalid("filter.reason", "must not be empty")
			}
			d.Filter.Reason = *filter.Reason
		}
		if filter.DiedAfter != nil {
			d.Filter.DiedAfter = *filter.DiedAfter
		}
		if filter.DiedBefore != nil {
			d.Filter.DiedBefore = *filter.DiedBefore
		}
	}
	return d, nil
}

// inSteps runs a command that may take many steps. Where Accept asks for NDJSON
// each is a line; what breaks after the first one breaks the connection.
func inSteps[R, T any](c *call, wire func(R) T, run func(progress func(R)) (R, error)) error {
	if !strings.Contains(c.r.Header.Get("Accept"), ndjsonType) {
		result, err := run(nil)
		if err != nil {
			return err
		}
		return c.answer(http.StatusOK, wire(result))
	}
	began := false
	line := func(r R) error {
		if !began {
			began = true
			c.w.Header().Set("Content-Type", ndjsonType)
			c.w.WriteHeader(http.StatusOK)
		}
		data, err := api.Marshal(wire(r))
		if err != nil {
			return err
		}
		if _, err := c.w.Write(append(data, '\n')); err != nil {
			return err
		}
		return http.NewResponseController(c.w).Flush()
	}
	result, err := run(func(r R) {
		_ = line(r) // a client that is gone ends the context, and so the command
	})
	if err == nil {
		err = line(result)
	}
	if err != nil && began {
		return fmt.Errorf("%w: %w", errBroken, err)
	}
	return err
}

func recovered(r commands.DeadLettersResult) api.RecoverResult {
	return api.RecoverResult{
		Recovered: r.Done, CircuitOpen: r.CircuitOpen, Remaining: r.Remaining, Failed: failedMessages(r.Failed), Position: r.Position,
	}
}

func purgedDead(r commands.DeadLettersResult) api.PurgeDeadLettersResult {
	return api.PurgeDeadLettersResult{
		Purged: r.Done, Remaining: r.Remaining, Failed: failedMessages(r.Failed), Position: r.Position,
	}
}

func failedMessages(failed []commands.FailedMessage) []api.FailedMessage {
	list := make([]api.FailedMessage, len(failed))
	for i, f := range failed {
		list[i] = api.FailedMessage{ID: f.ID, Code: f.Code, Detail: f.Message}
	}
	return list
}
