package httpapi

import (
	"context"
	"net/http"

	"leat/api"
	"leat/queries"
)

var listProjectionsDoc = operation{
	id: "listProjections", summary: "List the views that follow the log behind its commits, with their lag",
	answers: ok[api.ProjectionList]("The projections."),
}

func (s *server) listProjections(c *call) error {
	list, err := s.projections(c.ctx())
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, api.ProjectionList{Projections: list})
}

func (s *server) projections(ctx context.Context) ([]api.Projection, error) {
	found, err := s.Queries.Projections(ctx)
	list := make([]api.Projection, len(found))
	for i := range found {
		list[i] = projectionOf(&found[i])
	}
	return list, err
}

func projectionOf(p *queries.Projection) api.Projection {
	wire := api.Projection{
		Name: p.Name, Generation: p.Generation, Version: p.Version, State: p.State, Stopped: p.Stopped, Position: p.Position,
		LagPositions: int64(p.Settled - p.Position), Lag: api.Duration(p.Lag), MovedAt: p.MovedAt.UTC(),
	}
	if p.FailedPosition != nil && p.FailedAt != nil {
		wire.Failure = &api.ProjectionFailure{Position: *p.FailedPosition, At: p.FailedAt.UTC(), Error: p.Error}
	}
	return wire
}

func turnDoc(id, summary string) operation {
	return operation{id: id, summary: summary, bodies: mayTake[struct{}](), answers: ok[api.ProjectionResult]("Whether anything changed.")}
}

var (
	stopProjectionDoc  = turnDoc("stopProjection", "Stop a projection, at all brokers, until it is started again")
	startProjectionDoc = turnDoc("startProjection", "Let a projection go on that was stopped")
	retryProjectionDoc = turnDoc("retryProjection", "Let a projection that failed try its event again")
	skipProjectionDoc  = turnDoc("skipProjection", "Let a projection that failed go on behind its event")
)

var rebuildProjectionDoc = operation{
	id: "rebuildProjection", summary: "Build a projection anew from the log, beside the one that queries read",
	about:  "Where old partitions have left the log, the new one would have nothing of before: that is refused as events_gone.",
	bodies: mayTake[struct{}](),
	query: []parameter{
		query[bool]("force", "build it also of a log that has lost its beginning, and let go what the old one has of it; default false"),
	},
	answers: ok[api.ProjectionResult]("Whether anything changed."),
}

func (s *server) rebuildProjection(c *call) error {
	force := c.query.flag("force", false)
	if c.query.err != nil {
		return c.query.err
	}
	return s.turn(func(a Async, ctx context.Context, name, actor string) (bool, error) {
		return a.Rebuild(ctx, name, actor, force)
	})(c)
}

// turn makes a route of what one can do with a projection.
func (s *server) turn(do func(Async, context.Context, string, string) (bool, error)) func(*call) error {
	return func(c *call) error {
		var none struct{}
		if err := c.decode(&none); err != nil {
			return err
		}
		changed, err := do(s.Async, c.ctx(), c.name(), c.actor)
		if err != nil {
			return err
		}
		return c.answer(http.StatusOK, api.ProjectionResult{Changed: changed})
	}
}
