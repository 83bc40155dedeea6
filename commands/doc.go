// Package commands is what changes the log: one SQL function per command, which
// locks, validates, appends the event and moves the runs in one transaction, and
// the Broker, which validates, coalesces and waits in front of them.
//
// # Guarantees
//
//   - G3: a receipt that no longer holds changes nothing (settle.sql).
//   - G4: per FIFO key, positions are drawn in commit order behind the key's
//     append lock, and one delivery is in flight at a time (publish.sql, poll.sql).
//   - G8: a refused message refuses its request, and nothing of it is stored.
//
// # How it works
//
//	caller ─▶ validation ─▶ coalescer ─▶ one SQL call, one commit ─▶ answers
//	poll   ─▶ dispatcher of the queue ─▶ one claim for all who wait
//
// Publishes and acks that arrive while a batch is under way make the next one. A
// lone caller never waits; callers that were answered together are given a moment
// to be together again (gatherer.go). A batch that one member spoils is repeated
// member by member. A poll that finds nothing waits for a wake-up, or a second.
//
// # When things fail
//
// Every function that needs the queue views raises LE001 while they are lost; a
// publish then only appends. Whatever waits for time (leases, delays, expiry) is
// done by the Sweeper of any number of brokers, which pass over each other's rows.
//
// # Reading order
//
// channel.sql, publish.sql, poll.sql, settle.sql, sweep.sql, surface.sql, then broker.go,
// coalescer.go, gatherer.go, dispatcher.go, sweeper.go.
package commands
