package httpapi

import (
	"net/http"
	"time"

	"leat/api"
	"leat/commands"
)

const settleAnswer = "What became of each receipt; those in failed changed nothing."

var ackDoc = operation{
	id: "ack", summary: "Say that messages are processed", hot: true,
	bodies: takes[api.SettleRequest](), answers: ok[api.SettleResult](settleAnswer),
}

func (s *server) ack(c *call) error {
	var wire api.SettleRequest
	if err := c.decode(&wire); err != nil {
		return err
	}
	result, err := s.Commands.Ack(c.ctx(), c.settle(wire.Receipts))
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, settled(result))
}

var nackDoc = operation{
	id: "nack", summary: "Say that messages were not processed: retry, dead-letter or discard them", hot: true,
	bodies: takes[api.NackRequest](), answers: ok[api.SettleResult](settleAnswer),
}

func (s *server) nack(c *call) error {
	var wire api.NackRequest
	if err := c.decode(&wire); err != nil {
		return err
	}
	if wire.Action == "" {
		wire.Action = "retry"
	}
	result, err := s.Commands.Nack(c.ctx(), commands.NackRequest{
		SettleRequest: c.settle(wire.Receipts),
		Action:        wire.Action,
		Delay:         (*time.Duration)(wire.Delay),
		Reason:        wire.Reason,
		ErrorClass:    wire.ErrorClass,
	})
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, settled(result))
}

var extendDoc = operation{
	id: "extend", summary: "Set leases to end later", hot: true,
	bodies: takes[api.ExtendRequest](), answers: ok[api.SettleResult](settleAnswer),
}

func (s *server) extend(c *call) error {
	var wire api.ExtendRequest
	if err := c.decode(&wire); err != nil {
		return err
	}
	lease, err := leaseOf(wire.Lease)
	if err != nil {
		return err
	}
	result, until, err := s.Commands.Extend(c.ctx(), commands.ExtendRequest{
		SettleRequest: c.settle(wire.Receipts), Lease: lease,
	})
	if err != nil {
		return err
	}
	answer := settled(result)
	if result.Settled > 0 {
		until = until.UTC()
		answer.LeaseUntil = &until
	}
	return c.answer(http.StatusOK, answer)
}

var releaseDoc = operation{
	id: "release", summary: "Give messages back without counting the attempt", hot: true,
	bodies: takes[api.SettleRequest](), answers: ok[api.SettleResult](settleAnswer),
}

func (s *server) release(c *call) error {
	var wire api.SettleRequest
	if err := c.decode(&wire); err != nil {
		return err
	}
	result, err := s.Commands.Release(c.ctx(), c.settle(wire.Receipts))
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, settled(result))
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

func settled(r commands.SettleResult) api.SettleResult {
	result := api.SettleResult{
		Settled: r.Settled, AlreadySettled: r.AlreadySettled, Position: r.Position,
		Failed: make([]api.FailedReceipt, len(r.Failed)),
	}
	for i, f := range r.Failed {
		result.Failed[i] = api.FailedReceipt{Receipt: f.Receipt, Code: f.Code, Detail: f.Message}
	}
	return result
}
