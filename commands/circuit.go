package commands

import (
	"context"

	"github.com/jackc/pgx/v5"

	"leat/eventstore"
)

// CircuitRequest names the circuit of a routing key in a FIFO queue.
type CircuitRequest struct {
	Queue      string
	RoutingKey string // may be empty
	Actor      string
}

// CircuitResult says what became of a circuit.
type CircuitResult struct {
	Changed  bool  // false: it was like that before
	Messages int64 // how many died with the opening, or were recovered with the closing
}

const openCircuitSQL = `-- commands.openCircuit
select o.changed, o.messages
from leat.open_circuit($1, $2, nullif($3, '')) o`

// OpenCircuit opens a circuit by hand: what waits under the key goes to the dead
// letters, and so does what comes, until somebody closes it. A cool-down does not
// count for it. busy: an open transaction holds the key.
func (b *Broker) OpenCircuit(ctx context.Context, req CircuitRequest) (CircuitResult, error) {
	leave, err := b.enter()
	if err != nil {
		return CircuitResult{}, err
	}
	defer leave()
	return b.turnCircuit(ctx, b.cfg.Pool, req, afterCommit, openCircuitSQL)
}

// OpenCircuitTx is OpenCircuit in a transaction.
func (b *Broker) OpenCircuitTx(ctx context.Context, tx pgx.Tx, req CircuitRequest) (CircuitResult, error) {
	return b.turnCircuit(ctx, tx, req, afterCommit, openCircuitSQL)
}

const closeCircuitSQL = `-- commands.closeCircuit
select c.changed, c.messages
from leat.close_circuit($1, $2, $4, nullif($3, '')) c`

// CloseCircuit closes a circuit by hand. With revive the dead letters of the key
// wait again, in order and before what comes now; without, they stay dead. busy:
// an open transaction holds the key.
func (b *Broker) CloseCircuit(ctx context.Context, req CircuitRequest, revive bool) (CircuitResult, error) {
	leave, err := b.enter()
	if err != nil {
		return CircuitResult{}, err
	}
	defer leave()
	return b.turnCircuit(ctx, b.cfg.Pool, req, b.ready, closeCircuitSQL, revive)
}

// CloseCircuitTx is CloseCircuit in a transaction.
func (b *Broker) CloseCircuitTx(ctx context.Context, tx pgx.Tx, req CircuitRequest, revive bool) (CircuitResult, error) {
	return b.turnCircuit(ctx, tx, req, afterCommit, closeCircuitSQL, revive)
}

func (b *Broker) turnCircuit(
	ctx context.Context, db querier, req CircuitRequest, ready func(...eventstore.ChannelID), sql string, more ...any,
) (result CircuitResult, err error) {
	if err := req.check(); err != nil {
		return CircuitResult{}, err
	}
	ch, err := b.channels.findQueue(ctx, db, req.Queue)
	if err != nil {
		return CircuitResult{}, err
	}
	if !ch.fifo {
		return CircuitResult{}, notFIFO(req.Queue)
	}
	err = queryRow(ctx, db, sql, append([]any{req.Queue, req.RoutingKey, req.Actor}, more...), &result.Changed, &result.Messages)
	if isGone(err) {
		b.channels.forget(req.Queue)
	}
	if err == nil && result.Messages > 0 {
		ready(ch.id)
	}
	return result, err
}

func (r CircuitRequest) check() error {
	var f faults
	f.label("actor", r.Actor)
	f.key(-1, "routingKey", r.RoutingKey)
	return f.err()
}

func notFIFO(queue string) *eventstore.Error {
	e := eventstore.NewError(eventstore.InvalidField, "%.300q is not a FIFO queue: it has no circuits", queue)
	e.Field = "name"
	return e
}
