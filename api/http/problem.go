package httpapi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"leat/api"
	"leat/eventstore"
)

// errBroken ends a connection whose answer cannot be completed.
var errBroken = errors.New("answer broke off")

// refuse answers with a problem. It is the one place where errors end.
func (s *server) refuse(c *call, err error) {
	if errors.Is(err, errBroken) {
		s.Logger.WarnContext(c.ctx(), "answer broke off", "request", requestID(c.r), "error", err)
		panic(http.ErrAbortHandler)
	}
	p, retryAfter := problemOf(err)
	p.Instance = c.r.URL.EscapedPath()
	p.RequestID = requestID(c.r)
	if p.Status >= http.StatusInternalServerError && !errors.Is(err, context.Canceled) {
		s.Logger.ErrorContext(c.ctx(), "request failed", "request", p.RequestID, "method", c.r.Method,
			"path", c.r.URL.Path, "code", p.Code, "error", withCause(err))
	}
	if retryAfter > 0 || p.Status == http.StatusServiceUnavailable {
		seconds := max(1, math.Ceil(retryAfter.Seconds()))
		c.w.Header().Set("Retry-After", strconv.Itoa(int(seconds)))
	}
	data, err := api.Marshal(p)
	if err != nil {
		panic(err) // a struct of texts and numbers always has a JSON form
	}
	c.write(p.Status, api.ContentProblem, append(data, '\n'))
}

// withCause adds what a refusal keeps from clients.
func withCause(err error) error {
	if e, ok := errors.AsType[*eventstore.Error](err); ok && e.Cause != nil {
		return fmt.Errorf("%w (%w)", err, e.Cause)
	}
	return err
}

// problemOf says how an error looks from outside.
func problemOf(err error) (*api.Problem, time.Duration) {
	if errors.Is(err, context.Canceled) {
		// The client went, and will not read this, or the broker goes.
		return api.NewProblem(eventstore.ShuttingDown, "The request was cut short; try again."), 0
	}
	e, ok := errors.AsType[*eventstore.Error](eventstore.FromPg(err))
	if !ok {
		return api.NewProblem(eventstore.Internal, "The broker failed; its log tells why."), 0
	}
	p := api.NewProblem(e.Code, sentence(e))
	switch {
	case len(e.Errors) > 0:
		for i := range e.Errors {
			p.Errors = append(p.Errors, itemOf(&e.Errors[i]))
		}
	case e.Index >= 0 || e.Field != "":
		p.Errors = []api.ProblemItem{itemOf(e)}
	}
	return p, e.RetryAfter
}

func itemOf(e *eventstore.Error) api.ProblemItem {
	item := api.ProblemItem{Field: e.Field, Code: e.Code, Detail: e.Message}
	if e.Index >= 0 {
		item.Index = &e.Index
	}
	return item
}

// whole are the codes whose messages are sentences, also when they name a field.
var whole = []eventstore.Code{
	eventstore.ChannelConflict, eventstore.ChannelNotFound, eventstore.LinkConflict, eventstore.LinkCycle,
	eventstore.OrderLost, eventstore.ReceiptMalformed,
}

// sentence is the message with its subject: most errors about a field have none.
func sentence(e *eventstore.Error) string {
	text := e.Message
	if e.Field != "" && !slices.Contains(whole, e.Code) {
		text = e.Field + " " + text
	}
	if e.Index >= 0 {
		text = fmt.Sprintf("Item %d: %s", e.Index, text)
	}
	if more := len(e.Errors) - 1; more > 0 {
		text = fmt.Sprintf("%s (and %d more)", text, more)
	}
	return text
}
