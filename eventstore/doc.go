// Package eventstore is the root of the domain: the event log, its positions,
// kinds and receipts, and the one list of errors.
//
// # Guarantees
//
//   - A reader that follows the log up to the settled position misses no event
//     and sees none twice, whatever commits late or rolls back, and no
//     transaction that does not append holds it back (TestSettledPosition).
//   - Whoever waits at the Head hears of every append, told of or not, once it is
//     settled (TestF26HeadWaitsForTheSettled).
//   - No event is ever changed or removed one by one (TestG1LogIsAppendOnly, in
//     commands).
//   - Whatever is changed, removed or added in the sealed part of the log, by whatever
//     means, is found and located, unless the whole chain from there on is made anew
//     (TestTamperingIsFound). Seals survive dump and restore (TestChainSurvivesRestore),
//     and their digests are the same for all versions and settings (TestSealIsStable).
//   - Retention drops what nothing that lives points into (TestRetentionPins,
//     TestRetentionKeepsOrigins), and what is left is all that verify and rebuild need
//     (TestRetention; TestG1G4G5G7Model, in projections). Who asks for what is gone is
//     told so. The chain goes on behind it, and what was dropped by hand is found
//     (TestRetentionAndChain). Nobody waits for it for long (TestRetentionDoesNotWait).
//   - A maker of partitions that comes late loses nothing
//     (TestPartitionsMadeLate, in commands).
//
// # How it works
//
// Every action of the broker is a row of leat.events. A published message is a
// row of its own, with the payload; everything else is one row per batch, which
// lists its messages.
//
// Positions come from a sequence, whose order is not the order of the commits.
// Before its first position, an appending transaction therefore takes a shared
// advisory lock on the sequence's value of that moment (the view leat.fence):
//
//	reader   1. last value of the sequence          s
//	         2. lowest value that somebody locks    l   (none: s)
//	         settled = min(s, l): read up to here, in a later statement
//
// Whoever drew a position up to s before step 1 still holds its lock at step 2
// or has ended, and so is visible to the statement after.
//
// The log is partitioned by position. Run makes partitions ahead of the
// sequence; a default partition takes the rows if it is late, and is then made
// an ordinary one without moving a row (partitions.sql).
//
// # The chain
//
// A log.sealed event holds a digest of the events behind the seal before, in the
// order of their positions, over that seal's digest. It is made in the background and
// up to the settled position, where nothing can come between any more. Its range is
// cut into blocks of 1024 events with digests of their own, which locate a change.
//
//	seal n-1 ◀── digest(previous, from, to, events, bytes, blocks) = seal n ◀── seal n+1
//	                                                        │
//	                                              digest of 1024 events each
//
// What is digested of an event are all its columns in PostgreSQL's binary format
// (canonical.go). A superuser can rewrite events and every seal since; then the
// digests are others than before. Who keeps one elsewhere, finds that out: VerifyChain
// looks for it. Seals that were removed from the end are found in the same way only.
// What is behind the last seal is not covered.
//
// # Retention
//
// Whole partitions leave the log, from its beginning on, when all of their events are
// older than an age, and they are settled, sealed if the log has seals, and archived
// if that is asked for. What pins them is in leat.log_pins (projections): waiting,
// leased and dead messages and the origins of copies, what streams keep, circuits that
// are not closed, dedup entries, what asynchronous projections and replays that go on
// have not read, and the checkpoint of the queue views, which is renewed. The log.dropped event has what the log said of streams and replication
// points up to there, so that nothing else is needed of what is gone; leat.log_begin
// leads to it. At the moment of that event nothing that lived pointed to what it
// dropped; a state in the past, between the two, may have held messages whose
// beginning is gone.
//
// # Gaps
//
// A partition that somebody has dropped by hand leaves a gap (leat.log_gaps), which
// costs nothing to know: it is what no partition covers. Store.Run says so; queries
// refuse what lies there (queries/gone.go), TrimGaps lets streams begin behind it, and
// make_partitions makes room again when it was the partition that is written to
// (TestGapInLog, TestGapInStream, TestGapWhereItIsWritten). Of the last partition, with
// none behind it, only the chain of seals tells.
//
// # Restores
//
// leat.home has which database this is: the system identifier of the server, the oid
// of the database, and the timeline of its write-ahead log. NoticeRestore compares.
// Where another one is found, readers may have had what is not there: log.restored says
// so, and begins an epoch of each stream (leat.epochs, a view) at the offset where it
// ends. The time names it, as a position would come again when a dump is restored
// twice. An offset of an older epoch holds up to where the next one began
// (leat.same_below, TestNoticeRestore, TestRestoredFromDump).
//
// # Failure handling
//
// FromPg makes an *Error with a stable Code of what PostgreSQL or the network
// refused; every other package uses it.
//
// # What it does not do
//
// It knows nothing about queues: commands append through SQL functions that
// change the queue views in the same transaction. Who reads the log brings a
// statement of its own and stops at SettledPosition.
//
// Reading order: event.go, kind.go, position.go, receipt.go, stream.go,
// pattern.go, errors.go, sqlstate.go, append.sql, stream.sql, store.go, head.go, partitions.go,
// gaps.go, gaps.sql, restore.go, restore.sql,
// chain.go, canonical.go, seal.go, verify.go, seal.sql,
// retention.go, retention.sql, archive.go, archive.sql.
package eventstore
