package httpapi

import (
	"net/http"
	"time"

	"leat/api"
	"leat/api/internal/wire"
	"leat/commands"
)

const settleAnswer = "What became of each receipt; those in failed changed nothing."

var ackDoc = operation{
	id: "ack", summary: "Say that messages are processed", hot: true,
	bodies: takes[api.SettleRequest](), answers: ok[api.SettleResult](settleAnswer),
}

func (s *server) ack(c *call) error {
	var body api.SettleRequest
	if err := c.decode(&body); err != nil {
		return err
	}
	result, err := s.Commands.Ack(c.ctx(), c.settle(body.Receipts))
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, wire.Settled(result))
}

var nackDoc = operation{
	id: "nack", summary: "Say that messages were not processed: retry, dead-letter or discard them", hot: true,
	bodies: takes[api.NackRequest](), answers: ok[api.SettleResult](settleAnswer),
}

func (s *server) nack(c *call) error {
	var body api.NackRequest
	if err := c.decode(&body); err != nil {
		return err
	}
	if body.Action == "" {
		body.Action = "retry"
	}
	result, err := s.Commands.Nack(c.ctx(), commands.NackRequest{
		SettleRequest: c.settle(body.Receipts),
		Action:        body.Action,
		Delay:         (*time.Duration)(body.Delay),
		Reason:        body.Reason,
		ErrorClass:    body.ErrorClass,
	})
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, wire.Settled(result))
}

var extendDoc = operation{
	id: "extend", summary: "Set leases to end later", hot: true,
	bodies: takes[api.ExtendRequest](), answers: ok[api.SettleResult](settleAnswer),
}

func (s *server) extend(c *call) error {
	var body api.ExtendRequest
	if err := c.decode(&body); err != nil {
		return err
	}
	lease, err := wire.Lease(body.Lease)
	if err != nil {
		return err
	}
	result, until, err := s.Commands.Extend(c.ctx(), commands.ExtendRequest{
		SettleRequest: c.settle(body.Receipts), Lease: lease,
	})
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, wire.Extended(result, until))
}

var releaseDoc = operation{
	id: "release", summary: "Give messages back without counting the attempt", hot: true,
	bodies: takes[api.SettleRequest](), answers: ok[api.SettleResult](settleAnswer),
}

func (s *server) release(c *call) error {
	var body api.SettleRequest
	if err := c.decode(&body); err != nil {
		return err
	}
	result, err := s.Commands.Release(c.ctx(), c.settle(body.Receipts))
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, wire.Settled(result))
}

var purgeDoc = operation{
	id: "purge", summary: "Remove what is ready or delayed; what is in flight or dead stays",
	bodies: mayTake[struct{}](), answers: ok[api.PurgeResult]("How many messages went."),
}

func (s *server) purge(c *call) error {
	var none struct{}
	if err := c.decode(&none); err != nil {
		return err
	}
	purged, err := s.Commands.Purge(c.ctx(), c.name(), c.actor)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, api.PurgeResult{Purged: purged})
}

func (c *call) settle(receipts []string) commands.SettleRequest {
	return commands.SettleRequest{Queue: c.name(), Actor: c.actor, Receipts: receipts}
}
