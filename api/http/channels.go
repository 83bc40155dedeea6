package httpapi

import (
	"errors"
	"net/http"
	"slices"
	"time"

	"leat/api"
	"leat/commands"
	"leat/eventstore"
	"leat/queries"
)

var listChannelsDoc = operation{
	id: "listChannels", summary: "List channels by name, with counts",
	about:   asOfAbout + " Streams are left out of it: they keep their past themselves.",
	query:   []parameter{asOfParameter()},
	answers: ok[api.ChannelList]("All channels."),
}

func (s *server) listChannels(c *call) error {
	moment, err := s.asOf(c)
	if err != nil {
		return err
	}
	var channels []queries.ChannelStatus
	if moment != nil {
		channels, err = s.Queries.ChannelsAsOf(c.ctx(), *moment)
	} else {
		channels, err = s.Queries.Channels(c.ctx())
	}
	if err != nil {
		return err
	}
	list := api.ChannelList{Channels: make([]api.Channel, len(channels))}
	for i, channel := range channels {
		list.Channels[i] = channelWithCounts(channel)
	}
	return c.answer(http.StatusOK, list)
}

var declareChannelDoc = operation{
	id: "declareChannel", summary: "Declare a channel; the same again changes nothing",
	bodies: mayTake[api.ChannelSpec](),
	answers: []answer{
		gives[api.Channel](http.StatusCreated, "It did not exist before."),
		gives[api.Channel](http.StatusOK, "It exists with these settings."),
	},
}

func (s *server) declareChannel(c *call) error {
	var spec api.ChannelSpec
	if err := c.decode(&spec); err != nil {
		return err
	}
	channel, created, err := s.Commands.DeclareChannel(c.ctx(), c.actor, commands.ChannelSpec{
		Name: c.name(), Kind: spec.Kind, Mode: spec.Mode, Type: spec.Type, Policy: policyPatch(spec.Policy),
	})
	if err != nil {
		return inPolicy(err)
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return c.answer(status, channelOf(channel))
}

var getChannelDoc = operation{
	id: "getChannel", summary: "Look at a channel, with counts", about: asOfAbout,
	query:   []parameter{asOfParameter()},
	answers: ok[api.Channel]("The channel."),
}

func (s *server) getChannel(c *call) error {
	moment, err := s.asOf(c)
	if err != nil {
		return err
	}
	var channel queries.ChannelStatus
	if moment != nil {
		channel, err = s.Queries.ChannelAsOf(c.ctx(), c.name(), *moment)
	} else {
		channel, err = s.Queries.Channel(c.ctx(), c.name())
	}
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, channelWithCounts(channel))
}

var alterChannelDoc = operation{
	id: "alterChannel", summary: "Change settings of a channel's policy",
	bodies:  takes[api.ChannelPatch](),
	answers: ok[api.Channel]("The channel as it is now."),
}

func (s *server) alterChannel(c *call) error {
	var patch api.ChannelPatch
	if err := c.decode(&patch); err != nil {
		return err
	}
	channel, err := s.Commands.AlterChannel(c.ctx(), c.actor, c.name(), policyPatch(patch.Policy))
	if err != nil {
		return inPolicy(err)
	}
	return c.answer(http.StatusOK, channelOf(channel))
}

var deleteChannelDoc = operation{
	id: "deleteChannel", summary: "Delete a channel and its links; its history stays",
	query:   []parameter{query[bool]("force", "also when it holds messages, or takes the dead letters of queues")},
	answers: []answer{{status: http.StatusNoContent, doc: "It is gone."}},
}

func (s *server) deleteChannel(c *call) error {
	force := c.query.flag("force", false)
	if c.query.err != nil {
		return c.query.err
	}
	if err := s.Commands.DeleteChannel(c.ctx(), c.actor, c.name(), force); err != nil {
		return err
	}
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

// outsidePolicy are the fields of a declaration that are not in its policy.
var outsidePolicy = []string{"", "name", "kind", "mode", "type", "policy", "actor"}

// inPolicy gives the fields of an error the path that they have in the body.
func inPolicy(err error) error {
	e, ok := errors.AsType[*eventstore.Error](err)
	if !ok {
		return err
	}
	renamed := *e
	renamed.Field = policyPath(e.Field)
	renamed.Errors = slices.Clone(e.Errors)
	for i := range renamed.Errors {
		renamed.Errors[i].Field = policyPath(renamed.Errors[i].Field)
	}
	return &renamed
}

func policyPath(field string) string {
	if slices.Contains(outsidePolicy, field) {
		return field
	}
	return "policy." + field
}

func policyPatch(p api.PolicyPatch) commands.PolicyPatch {
	return commands.PolicyPatch{
		Lease:         (*time.Duration)(p.Lease),
		MaxDeliveries: p.MaxDeliveries,
		Retry: commands.RetryPatch{
			Strategy:  p.Retry.Strategy,
			BaseDelay: (*time.Duration)(p.Retry.BaseDelay),
			MaxDelay:  (*time.Duration)(p.Retry.MaxDelay),
			Jitter:    p.Retry.Jitter,
		},
		NonRetryable:      p.NonRetryable,
		DeadLetterExpired: p.DeadLetterExpired,
		DedupWindow:       (*time.Duration)(p.DedupWindow),
		PriorityAgeing:    (*time.Duration)(p.PriorityAgeing),

		DeadLetterTo:        p.DeadLetterTo,
		DeadLetterRetention: (*time.Duration)(p.DeadLetterRetention),
		Circuit: commands.CircuitPatch{
			Enabled:   p.Circuit.Enabled,
			CoolDown:  (*time.Duration)(p.Circuit.CoolDown),
			Threshold: p.Circuit.Threshold,
		},
		Retention: commands.RetentionPatch{
			Age:      (*time.Duration)(p.Retention.Age),
			Bytes:    p.Retention.Bytes,
			Messages: p.Retention.Messages,
		},
	}
}

func channelOf(c commands.Channel) api.Channel {
	channel := api.Channel{
		Name:       c.Name,
		Kind:       c.Kind,
		Mode:       c.Mode,
		Type:       c.Type,
		DeclaredAt: c.DeclaredAt.UTC(),
		Epoch:      c.Epoch,
	}
	switch c.Kind {
	case commands.Queue:
		channel.Policy = &api.Policy{QueuePolicy: queuePolicyOf(c.Policy), DedupWindow: api.Duration(c.Policy.DedupWindow)}
	case commands.Stream:
		r := c.Policy.Retention
		channel.Policy = &api.Policy{
			DedupWindow: api.Duration(c.Policy.DedupWindow),
			Retention:   &api.Retention{Age: api.Duration(r.Age), Bytes: r.Bytes, Messages: r.Messages},
		}
	}
	return channel
}

func queuePolicyOf(p commands.Policy) *api.QueuePolicy {
	policy := &api.QueuePolicy{
		Lease:         api.Duration(p.Lease),
		MaxDeliveries: p.MaxDeliveries,
		Retry: api.Retry{
			Strategy:  p.Retry.Strategy,
			BaseDelay: api.Duration(p.Retry.BaseDelay),
			MaxDelay:  api.Duration(p.Retry.MaxDelay),
			Jitter:    p.Retry.Jitter,
		},
		NonRetryable:      notNil(p.NonRetryable),
		DeadLetterExpired: p.DeadLetterExpired,
		PriorityAgeing:    api.Duration(p.PriorityAgeing),

		DeadLetterTo:        p.DeadLetterTo,
		DeadLetterRetention: api.Duration(p.DeadLetterRetention),
	}
	if p.Circuit != (commands.Circuit{}) {
		policy.Circuit = &api.Circuit{
			Enabled: p.Circuit.Enabled, CoolDown: api.Duration(p.Circuit.CoolDown), Threshold: p.Circuit.Threshold,
		}
	}
	return policy
}

func channelWithCounts(c queries.ChannelStatus) api.Channel {
	channel := channelOf(commands.Channel{
		Name: c.Name,
		Kind: c.Kind,
		Mode: c.Mode,
		Type: c.Type,
		Policy: commands.Policy{
			Lease:         c.Lease,
			MaxDeliveries: c.MaxDeliveries,
			Retry: commands.Retry{
				Strategy: c.RetryStrategy, BaseDelay: c.BaseDelay, MaxDelay: c.MaxDelay, Jitter: c.Jitter,
			},
			NonRetryable:      c.NonRetryable,
			DeadLetterExpired: c.DeadLetterExpired,
			DedupWindow:       c.DedupWindow,
			PriorityAgeing:    c.PriorityAgeing,

			DeadLetterTo:        c.DeadLetterTo,
			DeadLetterRetention: c.DeadLetterRetention,
			Circuit:             commands.Circuit{Enabled: c.Circuit, CoolDown: c.CircuitCoolDown, Threshold: c.CircuitThreshold},
			Retention:           commands.Retention{Age: c.RetentionAge, Bytes: c.RetentionBytes, Messages: c.RetentionMessages},
		},
		DeclaredAt: c.DeclaredAt,
		Epoch:      c.Epoch,
	})
	switch c.Kind {
	case commands.Stream:
		channel.Stream = &api.StreamStatus{
			First: c.Stream.First, End: c.Stream.End, Messages: int64(c.Stream.End - c.Stream.First),
			Bytes: c.Stream.Bytes, Points: c.Stream.Points,
		}
	case commands.Queue:
		channel.Counts = &api.Counts{
			Ready: c.Ready, Delayed: c.Delayed, InFlight: c.InFlight, Dead: c.Dead, OpenCircuits: c.OpenCircuits,
			OldestReadyAge: api.Duration(c.OldestReadyAge),
		}
	}
	return channel
}

// notNil makes an empty list of none: JSON tells them apart.
func notNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
