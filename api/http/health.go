package httpapi

import (
	"net/http"
	"slices"

	"leat/api"
)

func healthDoc(id string) operation {
	return operation{
		id: id, summary: "Whether the process answers at all", hot: true,
		answers: ok[api.Readiness]("It does."),
	}
}

func (s *server) live(c *call) error {
	return c.answer(http.StatusOK, api.Readiness{Status: "ok"})
}

var readyDoc = operation{
	id: "readyz", summary: "Whether the broker can serve: red while the database is away or views are rebuilt", hot: true,
	query: []parameter{query[bool]("verbose", "list the checks")},
	answers: []answer{
		gives[api.Readiness](http.StatusOK, "It can."),
		gives[api.Readiness](http.StatusServiceUnavailable, "It cannot now; the checks say why."),
	},
}

func (s *server) ready(c *call) error {
	verbose := c.query.flag("verbose", false)
	if c.query.err != nil {
		return c.query.err
	}
	checks := s.Readiness.Ready(c.ctx())
	if slices.ContainsFunc(checks, func(check api.Check) bool { return !check.OK }) {
		c.w.Header().Set("Retry-After", "1")
		return c.answer(http.StatusServiceUnavailable, api.Readiness{Status: "unavailable", Checks: checks})
	}
	answer := api.Readiness{Status: "ok"}
	if verbose {
		answer.Checks = checks
	}
	return c.answer(http.StatusOK, answer)
}
