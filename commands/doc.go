// Package commands is what changes the log: one SQL function per command, which
// locks, validates, appends the event and moves the runs in one transaction.
//
// # Guarantees
//
//   - G3: a receipt that no longer holds changes nothing (settle.sql).
//   - G4: per FIFO key, positions are drawn in commit order behind the key's
//     append lock, and one delivery is in flight at a time (publish.sql, poll.sql).
//   - G8: a refused message refuses its request, and nothing of it is stored.
//
// # When things fail
//
// Every function that needs the queue views raises LE001 while they are lost; a
// publish then only appends. Whatever waits for time (leases, delays, expiry) is
// done by the Sweeper of any number of brokers, which pass over each other's rows.
//
// # Reading order
//
// channel.sql, publish.sql, poll.sql, settle.sql, sweep.sql, surface.sql, sweeper.go.
package commands
