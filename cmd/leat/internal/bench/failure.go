package bench

import (
	"context"
	"fmt"

	"leat/commands"
)

// failedMessages wait under the key whose circuit opens.
const failedMessages = 1_000_000

// failureWorks move all messages of a FIFO key to the dead letters, by opening its
// circuit, and back.
func (l *lab) failureWorks() []work {
	messages := max(1000, failedMessages/l.cfg.Scale)
	return []work{
		{name: "failure/open", sides: []side{{name: leat, take: func(ctx context.Context, c *clock) (tally, error) {
			return l.failKey(ctx, c, &clock{m: l.meter}, messages)
		}}}},
		{name: "failure/recover", sides: []side{{name: leat, take: func(ctx context.Context, c *clock) (tally, error) {
			return l.failKey(ctx, &clock{m: l.meter}, c, messages)
		}}}},
	}
}

// vacuumLogSQL does what autovacuum would do in the middle of a short sample, with
// more WAL than that has itself.
const vacuumLogSQL = `-- bench.vacuumLog
vacuum leat.events`

// failKey opens a circuit under one clock, and recovers what died under the other.
func (l *lab) failKey(ctx context.Context, opening, recovery *clock, messages int) (tally, error) {
	broker := l.main.node.Commands
	queue, err := declare(ctx, l.main, commands.FIFO)
	if err != nil {
		return tally{}, err
	}
	key := l.keys[0]
	_, err = produce(ctx, l.main.driver(ViaCommands), queue, 1, 1000, newQuota(messages, 0), func(int) *deck {
		return &deck{keys: []string{key}, payload: l.payload(0)}
	})
	if err != nil {
		return tally{}, err
	}

	if _, err := l.main.node.Pool.Exec(ctx, vacuumLogSQL); err != nil {
		return tally{}, fmt.Errorf("vacuum log: %w", err)
	}
	circuit := commands.CircuitRequest{Queue: queue, RoutingKey: key, Actor: actor}
	if err := opening.start(ctx); err != nil {
		return tally{}, err
	}
	opened, err := broker.OpenCircuit(ctx, circuit)
	if err != nil {
		return tally{}, fmt.Errorf("open circuit: %w", err)
	}
	if err := opening.stop(ctx); err != nil {
		return tally{}, err
	}
	if opened.Messages != int64(messages) {
		return tally{}, fmt.Errorf("%w: %d of %d died", errCount, opened.Messages, messages)
	}
	if _, err := broker.CloseCircuit(ctx, circuit, false); err != nil {
		return tally{}, fmt.Errorf("close circuit: %w", err)
	}

	if err := recovery.start(ctx); err != nil {
		return tally{}, err
	}
	recovered, err := broker.Recover(ctx, commands.RecoverRequest{DeadLetters: commands.DeadLetters{Queue: queue, Actor: actor, All: true}})
	if err != nil {
		return tally{}, fmt.Errorf("recover: %w", err)
	}
	if err := recovery.stop(ctx); err != nil {
		return tally{}, err
	}
	if recovered.Done != int64(messages) {
		return tally{}, fmt.Errorf("%w: %d of %d recovered", errCount, recovered.Done, messages)
	}
	if err := broker.DeleteChannel(ctx, actor, queue, true); err != nil {
		return tally{}, fmt.Errorf("delete queue: %w", err)
	}
	return tally{messages: messages}, l.main.settle(ctx)
}
