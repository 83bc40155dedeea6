package httpapi

import (
	"net/http"
	"time"

	"leat/api"
	"leat/commands"
	"leat/queries"
)

var listRelaysDoc = operation{
	id: "listRelays", summary: "List relays by name, with what they moved and what waits",
	answers: ok[api.RelayList]("All relays."),
}

func (s *server) listRelays(c *call) error {
	relays, err := s.Queries.Relays(c.ctx())
	if err != nil {
		return err
	}
	list := api.RelayList{Relays: make([]api.Relay, len(relays))}
	for i := range relays {
		list.Relays[i] = relayOf(&relays[i])
	}
	return c.answer(http.StatusOK, list)
}

var declareRelayDoc = operation{
	id: "declareRelay", summary: "Declare a relay; the same again changes nothing",
	bodies: takes[api.RelaySpec](),
	answers: []answer{
		gives[api.Relay](http.StatusCreated, "It did not exist before."),
		gives[api.Relay](http.StatusOK, "It exists with these settings."),
	},
}

func (s *server) declareRelay(c *call) error {
	var spec api.RelaySpec
	if err := c.decode(&spec); err != nil {
		return err
	}
	if (spec.Topic == "") == (spec.Table == "") {
		return invalid("topic", "must be given, or table instead")
	}
	if spec.From != "" && spec.From != "earliest" && spec.From != "latest" {
		return invalid("from", "must be earliest or latest")
	}
	if spec.Topic != "" {
		spec.Table = "watermill_" + spec.Topic
	}
	created, err := s.Commands.DeclareRelay(c.ctx(), c.actor, commands.RelaySpec{
		Name: c.name(), Schema: spec.Schema, Table: spec.Table, Channel: spec.Channel, Key: spec.Key, Remove: spec.Delete,
		Every: time.Duration(spec.Every), Latest: spec.From == "latest",
	})
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return s.answerRelay(c, status)
}

var getRelayDoc = operation{
	id: "getRelay", summary: "Look at a relay",
	answers: ok[api.Relay]("The relay."),
}

func (s *server) getRelay(c *call) error { return s.answerRelay(c, http.StatusOK) }

func (s *server) answerRelay(c *call, status int) error {
	relay, err := s.Queries.Relay(c.ctx(), c.name())
	if err != nil {
		return err
	}
	return c.answer(status, relayOf(&relay))
}

var deleteRelayDoc = operation{
	id: "deleteRelay", summary: "Delete a relay, and how far it was; the table and the channel stay",
	answers: []answer{{status: http.StatusNoContent, doc: "It is gone."}},
}

func (s *server) deleteRelay(c *call) error {
	if err := s.Commands.DeleteRelay(c.ctx(), c.actor, c.name()); err != nil {
		return err
	}
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

var skipRelayDoc = operation{
	id: "skipRelay", summary: "Leave out the next row, which no channel takes; a relay that deletes rows deletes it",
	bodies:  takes[api.RelaySkip](),
	answers: ok[api.Relay]("The relay as it is now."),
}

func (s *server) skipRelay(c *call) error {
	var skip api.RelaySkip
	if err := c.decode(&skip); err != nil {
		return err
	}
	if err := s.Commands.SkipRelay(c.ctx(), c.actor, c.name(), skip.Offset); err != nil {
		return err
	}
	return s.answerRelay(c, http.StatusOK)
}

func relayOf(r *queries.Relay) api.Relay {
	return api.Relay{
		Relay: r.Name, Table: r.Table, Channel: r.Channel, Key: r.Key, Delete: r.Remove, Every: api.Duration(r.Every),
		Moved: r.Moved, MovedAt: utc(r.MovedAt), Lag: r.Lag, RestoredAt: utc(r.RestoredAt),
		Failure: r.Failure, FailedAt: utc(r.FailedAt), DeclaredAt: r.DeclaredAt.UTC(),
	}
}
