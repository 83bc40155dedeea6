// Package async keeps the asynchronous projections: views that follow the log behind
// its commits, in transactions of their own. Commands do not know of them.
//
// # Guarantees
//
//   - Each event counts once in each projection, whatever ends a batch, and when: its
//     effects and the checkpoint commit together (TestExactlyOnceKilledAtEveryStep,
//     TestExactlyOnceStoppedAtAnyMoment, TestManyBrokersTakeEachBatchOnce).
//   - The views are what a fold of the log gives, message by message
//     (TestStatisticsEqualTheLog).
//   - An event that a projection cannot take stops that one alone, visibly, and until a
//     person lets it try again or go on, which is recorded (TestPoisonStopsOneProjection,
//     TestPoisonOfTheLog).
//   - A rebuild changes nothing for readers until it has caught up
//     (TestRebuildBesideTheLiveOne, TestRebuildRepairs).
//   - When Stop returns no batch is under way (TestStopAndStart).
//   - After a restore from a dump, or a crash of the server, they go on where they were
//     (TestRestoredAndKilled).
//   - No event is missed that commits late: a batch ends at the settled position
//     (TestF26LateCommits).
//
// # How it works
//
//	wake ─▶ backoff ─▶ subscriber of watermill-sql ─▶ router ─▶ runner ─▶ Projection.Apply
//	          ▲          │ 1. leat.next_batch: lock the            │ 2. read the range,
//	          └──────────┤    checkpoint, choose a range           │    write the view
//	                     └ 3. move the checkpoint, commit ◀── ack ─┘
//
// One watermill message carries a range of positions, not one event: the log has a row
// for each published message, and a message for each would cost more than the work. A
// range has at most BatchSize positions; a projection that has caught up looks again
// after Gather, so that under load a transaction has many events.
//
// Any number of brokers may run a Service. The row of a generation in leat.projections
// is locked while a batch is taken, and who finds it locked comes again later. Nothing
// is kept in memory between batches, so it does not matter who takes the next one.
//
// A wake-up ends the rest of a projection (TestWakeMovesIt). Without one it looks once
// a second: acks, for example, wake nobody.
//
// # What watermill-sql is kept from
//
// Its subscriber (v4.1.2) would, by itself:
//
//   - take an error of fetching for "no messages": leat.next_batch always answers a
//     row, and backoff misses it (TestWatermillHidesErrorsOfFetching);
//   - only log an error of a commit: batchTx keeps it for backoff
//     (TestWatermillHidesErrorsOfCommits);
//   - send a nacked message again into the same transaction, which an SQL error has
//     ended: the handler never nacks, and each try has a savepoint
//     (TestPoisonStopsOneProjection);
//   - commit what a handler has done so far when it is closed, or when the deadline for acks
//     is over: batchTx waits for the handler, and commits nothing without the checkpoint;
//     there is no deadline (TestWatermillCommitsHalfABatchWhenClosed);
//   - run at serializable through its adapter for pgx, which does not know read
//     committed: beginner begins the transactions (TestWatermillKnowsNoReadCommitted);
//   - never ack position 0, and make tables: the first event has 1, and migrations own the
//     tables (TestWatermillPositionsAndTables).
//
// # Generations
//
// The rows of a view bear the generation that made them. A rebuild is a second
// generation, from the beginning of the log, beside the live one that queries read. When
// it has caught up it takes the place of the live one, in the transaction of a batch,
// and the rows of the old one are removed. A newer Version of the code is such a rebuild.
//
// # The projections
//
// Statistics counts what happens in each channel and minute, and keeps sketches of the
// latencies from publish (or due time) to the first delivery and to the ack. For these it
// keeps what may still be delivered or acked in leat.pending_messages, two or three bytes
// a message. What comes back after it had expired is delivered and acked without a latency.
// Consumers keeps who was last seen where, and what it did; Failures which keys fail, and why.
//
// Measured here, all three together, for messages that are published, delivered and acked in
// batches of 100: 8 us of processor time a message, 4.5 of it in PostgreSQL, so 8 % of one
// processor at 10,000 messages/s; they catch up at more than 60,000/s (BenchmarkCatchUp).
//
// # When things fail
//
// What may pass (no connection, a time-out, a lock, no disk) is tried again, after
// 50 ms to 5 s, with smaller batches. An error that stays is narrowed down, by savepoints,
// to one event: what is before it is kept, the projection waits there
// (projection.failed), and the others go on. A person lets it try again or skip the
// event (projection.retried, projection.skipped). What keeps the service from finding out
// what is to run is tried again as soon (TestLooksAgainSoonAfterAnError).
//
// # What it does not do
//
// It keeps rows for ever: a row per channel and minute with traffic, per consumer and
// channel, per key and reason that failed. A rebuild only knows what the log still has.
//
// # Reading order
//
// projection.go, service.go, runner.go, projections.sql, adapters.go, tx.go, backoff.go,
// poison.go, control.go; log.go, statistics.go, statistics_fold.go, pending.go, sketch.go,
// statistics_rows.go, consumers.go, failures.go.
package async
