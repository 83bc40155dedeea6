package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"leat/eventstore"
)

// ProblemOf says how an error looks from outside, and how long to wait before
// the same is tried again, 0 if that is not known.
func ProblemOf(err error) (*Problem, time.Duration) {
	if errors.Is(err, context.Canceled) {
		// The client went, and will not read this, or the broker goes.
		p := NewProblem(eventstore.ShuttingDown, "The request was cut short; try again.")
		p.Uncertain = true
		return p, 0
	}
	e, ok := errors.AsType[*eventstore.Error](eventstore.FromPg(err))
	if !ok {
		return NewProblem(eventstore.Internal, "The broker failed; its log tells why."), 0
	}
	p := NewProblem(e.Code, sentence(e))
	p.Uncertain = e.Uncertain
	p.FirstPosition = e.First
	if e.Resume != nil {
		p.Resume = &StreamPosition{Epoch: e.Resume.Epoch, Offset: e.Resume.Offset}
	}
	switch {
	case len(e.Errors) > 0:
		for i := range e.Errors {
			p.Errors = append(p.Errors, ProblemItemOf(&e.Errors[i]))
		}
	case e.Index >= 0 || e.Field != "":
		p.Errors = []ProblemItem{ProblemItemOf(e)}
	}
	return p, e.RetryAfter
}

// ProblemItemOf is one bad field or item.
func ProblemItemOf(e *eventstore.Error) ProblemItem {
	item := ProblemItem{Field: e.Field, Code: e.Code, Detail: e.Message}
	if e.Index >= 0 {
		item.Index = &e.Index
	}
	return item
}

// whole are the codes whose messages are sentences, also when they name a field.
var whole = []eventstore.Code{
	eventstore.ChannelConflict, eventstore.ChannelNotFound, eventstore.LinkConflict, eventstore.LinkCycle,
	eventstore.OrderLost, eventstore.PointConflict, eventstore.ReceiptMalformed,
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
