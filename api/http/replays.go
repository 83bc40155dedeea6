package httpapi

import (
	"net/http"

	"leat/api"
	"leat/commands"
	"leat/eventstore"
	"leat/queries"
)

var republishDoc = operation{
	id: "republish", summary: "Publish again what a channel held in a range of the past",
	about: "Messages of the range become new messages of the target, with the payloads, origins, headers, keys and priorities " +
		"of the old ones but without their times, in the old order, and go on along links. The request ends when all is done. Where it ends " +
		"earlier, what it has done stays, and the replay can be resumed: nothing is then missed or repeated.",
	bodies: takes[api.RepublishRequest](),
	answers: []answer{
		gives[api.Replay](http.StatusOK, "What was done."),
		{http.StatusOK, "The replay at its start and after each step, one a line, when Accept asks for it: the last line is the answer.", nil, ndjsonType},
	},
}

func (s *server) republish(c *call) error {
	var wire api.RepublishRequest
	if err := c.decode(&wire); err != nil {
		return err
	}
	req := commands.RepublishRequest{
		Source: wire.Source, Target: wire.Target, Actor: c.actor, From: wire.From, To: wire.To, FromOffset: wire.FromOffset,
		ToOffset: wire.ToOffset, Rate: wire.Rate, DryRun: wire.DryRun,
	}
	if wire.Since != nil {
		req.Since = *wire.Since
	}
	if wire.Until != nil {
		req.Until = *wire.Until
	}
	if wire.Key != nil {
		pattern, err := parsePattern(*wire.Key)
		if err != nil {
			return err
		}
		req.Pattern = pattern
	}
	return inSteps(c, replayOf, func(progress func(eventstore.Replay)) (eventstore.Replay, error) {
		req.Progress = progress
		return s.Commands.Republish(c.ctx(), req)
	})
}

var resumeReplayDoc = operation{
	id: "resumeReplay", summary: "Let a replay go on where it is",
	about: "Whoever runs it elsewhere is told replay_taken, and goes on no more. One that is finished stays as it is.",
	answers: []answer{
		gives[api.Replay](http.StatusOK, "What was done, before and now."),
		{http.StatusOK, "The same after each step, one a line, when Accept asks for it.", nil, ndjsonType},
	},
}

func (s *server) resumeReplay(c *call) error {
	id, err := replayID(c)
	if err != nil {
		return err
	}
	return inSteps(c, replayOf, func(progress func(eventstore.Replay)) (eventstore.Replay, error) {
		return s.Commands.ResumeReplay(c.ctx(), commands.ResumeRequest{ID: id, Actor: c.actor, Progress: progress})
	})
}

var listReplaysDoc = operation{
	id: "listReplays", summary: "List what was published again, or is, the last one first",
	query:   paging(),
	answers: ok[api.ReplayPage]("A page of replays."),
}

func (s *server) listReplays(c *call) error {
	q := &c.query
	filter := queries.ReplaysFilter{Cursor: q.text("cursor"), Limit: q.limit(queries.MaxLimit)}
	if q.err != nil {
		return q.err
	}
	replays, next, err := s.Queries.Replays(c.ctx(), filter)
	if err != nil {
		return err
	}
	page := api.ReplayPage{Replays: make([]api.Replay, len(replays)), NextCursor: next}
	for i := range replays {
		page.Replays[i] = replayOf(replays[i])
	}
	return c.answer(http.StatusOK, page)
}

var getReplayDoc = operation{
	id: "getReplay", summary: "Look how far a replay is",
	answers: ok[api.Replay]("The replay."),
}

func (s *server) getReplay(c *call) error {
	id, err := replayID(c)
	if err != nil {
		return err
	}
	replay, err := s.Queries.ReplayState(c.ctx(), id)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, replayOf(replay))
}

// replayID reads the {id} of the path; what is no id is the id of no replay.
func replayID(c *call) (eventstore.Position, error) {
	id, err := eventstore.ParsePosition(c.param("id"))
	if err != nil {
		return 0, eventstore.NewError(eventstore.ReplayNotFound, "There is no replay %.300q.", c.param("id"))
	}
	return id, nil
}

func replayOf(r eventstore.Replay) api.Replay {
	return api.Replay{
		ID: r.ID, Source: r.Source, Target: r.Target, From: r.From, To: r.To, Rate: r.Rate, Messages: r.Messages, Bytes: r.Bytes,
		Copies: r.Copies, Dead: r.Dead, Unroutable: r.Unroutable, Gone: r.Gone, Done: r.Done, Finished: r.Finished,
		StartedAt: r.StartedAt.UTC(), ChangedAt: r.ChangedAt.UTC(),
	}
}
