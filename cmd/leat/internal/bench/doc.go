// Package bench measures a broker against the least that PostgreSQL itself needs
// for the same work, in one run on one server.
//
// # How it works
//
// A case is one piece of work (publish by 64 producers, drain by 8 consumers, ...)
// with several sides: the broker, and the floors, which do the bare minimum with
// SQL of their own. Machines are noisy, so the sides take turns, round after
// round, and a ratio is the median of the ratios of the rounds:
//
//	round 1: floor, leat   round 2: floor, leat   ...
//
// Every side is prepared (connections opened and warmed up, queues filled,
// tables vacuumed) before its clock starts, and checked after it has stopped: a
// message that is missing, or there twice, is an error and not a figure.
//
// A clock reads time, CPU time of all processes of the server (where it runs on
// this machine), CPU time of this process, which holds both the broker and its
// load, and bytes of WAL, of the whole server.
//
// The cases of the audit read one log, whose first messages were published by commands.
// The rest is what batches of 100 leave in it that were published, delivered and acked,
// written into it directly: no view knows more of those than that they have gone.
//
// # Floors
//
//   - copy: binary COPY of the same payloads into a table with the columns,
//     indexes and partitions of the log, one transaction for each batch.
//   - insert: one INSERT and COMMIT for each message, into the same table.
//   - delete: DELETE ... RETURNING of the oldest rows, FOR UPDATE SKIP LOCKED, of a
//     table with a primary key and a payload.
//   - lease+delete: UPDATE of a visibility time, then DELETE by id. It is what pgmq
//     does at read and delete, and stands in for it: no extension is installed.
//   - copy, of the audit cases: COPY of the same events of the log, as text against a
//     replay, and binary, with a SHA-256 of all of it, against the chain of seals.
//   - without: the same messages at the same rate, without projections or seals.
//   - pgoutput: one tail of the write-ahead log that only decodes what is copied
//     into a table like the log, and hands it to as many readers.
//   - pair: insert and delete at once, by as many connections as the broker has
//     producers and consumers. A consumer that finds nothing waits pairPause.
//
// # What it does not do
//
// Nothing but scratch databases of its own is touched, and they are dropped,
// also after an interruption. It does not compare runs: ratios hold within one.
//
// # Reading order
//
// bench.go, lab.go, work.go, publish.go, drain.go, endtoend.go, depth.go,
// rebuild.go, streams.go, audit.go, then floor.go, streams_floor.go, meter.go, aims.go.
package bench
