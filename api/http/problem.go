package httpapi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"

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
	p, retryAfter := api.ProblemOf(err)
	p.Instance = c.r.URL.EscapedPath()
	p.RequestID = requestID(c.r)
	s.logFailure(c, p, err)
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

// logFailure logs what is not the client's doing.
func (s *server) logFailure(c *call, p *api.Problem, err error) {
	if p.Status < http.StatusInternalServerError || errors.Is(err, context.Canceled) || p.Code == eventstore.ShuttingDown {
		return
	}
	s.Logger.ErrorContext(c.ctx(), "request failed", "request", p.RequestID, "method", c.r.Method,
		"path", c.r.URL.Path, "code", p.Code, "error", withCause(err))
}

// withCause adds what a refusal keeps from clients.
func withCause(err error) error {
	if e, ok := errors.AsType[*eventstore.Error](err); ok && e.Cause != nil {
		return fmt.Errorf("%w (%w)", err, e.Cause)
	}
	return err
}
