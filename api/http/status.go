package httpapi

import (
	"net/http"
	"time"

	"leat/api"
	"leat/queries"
)

var getStatusDoc = operation{
	id: "getStatus", summary: "How broker and database are",
	answers: ok[api.Status]("The status."),
}

func (s *server) getStatus(c *call) error {
	status, err := s.Queries.Status(c.ctx())
	if err != nil {
		return err
	}
	wire := api.Status{
		Version:         s.Version,
		StartedAt:       s.started,
		DatabaseURL:     s.DatabaseURL,
		Database:        api.Database{ServerVersion: status.ServerVersion, Name: status.Database, StartedAt: status.StartedAt.UTC()},
		LastPosition:    status.LastPosition,
		SettledPosition: status.SettledPosition,
		SettledHolder:   holderOf(status.SettledHolder),
		PartitionedTo:   status.PartitionedTo,
		Checkpoint:      status.Checkpoint,
		CheckpointAt:    utc(status.CheckpointAt),
		ViewsAlive:      status.ViewsAlive,
		OpenCircuits:    status.OpenCircuits,
		Unplaced:        status.Unplaced,
		Horizon:         holderOf(status.Horizon),
		Sessions:        make([]api.Sessions, len(status.Sessions)),
		Tail:            s.Tail(status.WALEnd),
		Brokers:         make([]api.Broker, len(status.Brokers)),
	}
	if status.Restored != nil {
		wire.Restored = &api.Restored{Position: status.Restored.Position, At: status.Restored.At.UTC()}
	}
	if !status.ViewsAlive {
		wire.Rebuild = &api.Progress{Done: status.Rebuild.Done, Total: status.Rebuild.Total}
	}
	if wire.Projections, err = s.projections(c.ctx()); err != nil {
		return err
	}
	for i, b := range status.Brokers {
		wire.Brokers[i] = api.Broker{ID: b.ID, Tail: b.Tail, Reason: b.Reason, Since: b.Since.UTC()}
	}
	for i, n := range status.Sessions {
		wire.Sessions[i] = api.Sessions{Application: n.Application, Count: n.Count}
	}
	return c.answer(http.StatusOK, wire)
}

func holderOf(h *queries.Holder) *api.Holder {
	if h == nil {
		return nil
	}
	return &api.Holder{PID: h.PID, Application: h.Application, Database: h.Database, State: h.State, Since: h.Since.UTC()}
}

var verifyDoc = operation{
	id: "verifyProjections", summary: "Compare the queue views with the log, message by message",
	bodies: mayTake[struct{}](),
	query: []parameter{
		query[bool]("fromCheckpoint", "replay from the last checkpoint only; default false"),
		query[int]("limit", "of the differences, 1 to 1000, default 100"),
	},
	answers: ok[api.VerifyResult]("What differs."),
}

func (s *server) verify(c *call) error {
	fromCheckpoint := c.query.flag("fromCheckpoint", false)
	limit := c.query.limit(1000)
	if c.query.err != nil {
		return c.query.err
	}
	if limit == 0 {
		limit = 100
	}
	var none struct{}
	if err := c.decode(&none); err != nil {
		return err
	}
	differences, err := s.Projections.Verify(c.ctx(), fromCheckpoint, limit)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, api.VerifyResult{Equal: len(differences) == 0, Differences: notNil(differences)})
}

var rebuildDoc = operation{
	id: "rebuildProjections", summary: "Make the queue views anew from the log; polls and settlements wait",
	bodies:  mayTake[struct{}](),
	answers: ok[api.RebuildResult]("They are whole again."),
}

func (s *server) rebuild(c *call) error {
	var none struct{}
	if err := c.decode(&none); err != nil {
		return err
	}
	started := time.Now()
	messages, err := s.Projections.Rebuild(c.ctx())
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, api.RebuildResult{Messages: messages, Took: api.Duration(time.Since(started))})
}
