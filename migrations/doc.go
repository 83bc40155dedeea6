// Package migrations brings a database to the schema of this binary: numbered
// migrations for tables, and the SQL functions of the other packages.
//
// # Guarantees
//
//   - Any number of brokers may call Run at once on an empty database; all of
//     them succeed (TestRunConcurrently).
//   - A broker that is killed in the middle leaves whole steps only: a
//     migration and its version row, and the replacement of all functions and
//     its digest, are one transaction each (TestRunKilled).
//   - A database that a newer binary has migrated is refused, not harmed
//     (TestRunRefusesNewerDatabase).
//
// # How it works
//
//	check server  →  read state  →  nothing to do? return, no lock taken
//	                      │
//	                  bootstrap      schema leat, leat.schema_versions, leat.sql_functions
//	                      │
//	                    goose        00001_*.sql and up, each in a transaction
//	                      │
//	                  functions      drop all, create all, record the digest
//
// Each of the three steps holds one advisory lock in the session that does the
// work, so a step never outlives its lock. The lock is polled with the try
// variant: a statement that blocks on an advisory lock holds a snapshot, which
// would deadlock with a migration that runs CREATE INDEX CONCURRENTLY.
//
// # Functions
//
// Tables change by numbered files only. Functions change by editing their text:
// when the SHA-256 over all function files (and the schema version) differs
// from the recorded one, every function of schema leat is dropped and all files
// are run again in one transaction, so a changed signature needs no migration.
// Kept are functions that something other than a function of the schema depends
// on (a trigger, default, index, view, policy, or a function of somebody else)
// and members of extensions; such functions belong into a numbered migration,
// or must be written as "create or replace". Privileges that were granted on a
// function survive if its signature does.
//
// Brokers of two versions may share a database for the time of a rolling
// upgrade. If their schema version is the same, the functions of the one that
// started last are in force; a release whose functions older brokers cannot
// call therefore carries a numbered migration, after which older binaries are
// refused at their start.
//
// # What it does not do
//
// There are no down migrations. Run needs a direct connection: the goose step
// holds a session lock, which a transaction pooler (PgBouncer) would leave
// behind on a connection it shares.
//
// Reading order: migrations.go, state.go, lock.go, functions.go.
package migrations
