// Package projections keeps the queue views: runs and lanes, derived from the log.
//
// # Guarantees
//
//   - G1: the views are what a fold of the log gives, message by message
//     (leat.verify_views compares the two in one snapshot).
//   - G1: the fold up to an earlier position, of a channel that may be gone by now, is
//     what the views held there (TestG1G4G5G7Model).
//   - G2: a crash of PostgreSQL, which empties the unlogged views, loses
//     nothing: the first broker that sees it rebuilds them.
//
// # How it works
//
//	commands ── append event ──▶ leat.events ── leat.fold ──▶ what must be
//	         └─ move the runs ─▶ leat.queue_runs, leat.lanes ◀─ rebuild
//
// Live commands move runs in the transaction that appends the event. The fold
// reads the log from the last checkpoint on: the last event of a message decides
// its state. The same fold answers for the past: up to a position, of some channels; from
// the checkpoint where that is not later, else from the beginning of the log.
// leat.rebuild_views writes what the fold says, and leat.views_alive
// holds one row while the views are whole.
//
// Streams and replication points are logged tables that commands and replication
// move; verify compares them with the log too, and a rebuild by hand restores them
// (streams.sql; TestG1G4G5G7Model). So are the replays that publish the past again, and
// any rebuild restores them (replays.sql; TestG1G4G5G7Model).
//
// A log whose beginning was dropped begins with what its log.dropped event says of
// streams and points; of queues nothing is needed, because what pins the log
// (leat.log_pins, in retention.sql) kept it.
//
// # When things fail
//
// While the views are lost, publishes only append and note their ids in
// leat.unplaced; polls and settlements answer SQLSTATE LE001. The rebuild clears
// leat.unplaced in the statement that reads the log, so a publish that commits
// later is placed later, never twice and never out of its key's order.
//
// Durable views (SetDurable, `leat serve --durable-views`) are logged tables: a
// crash leaves them whole, and each change of theirs costs WAL
// (TestDurableViewsSurviveACrash).
//
// Views that follow the log behind the commits, such as statistics, are in package async.
//
// # Reading order
//
// ids.sql, place.sql, lanes.sql, fold.sql, rebuild.sql, streams.sql, retention.sql, durable.sql, views.go.
package projections
