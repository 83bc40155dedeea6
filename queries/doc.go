// Package queries answers questions about channels, messages and the log. It
// only reads.
//
// # Guarantees
//
//   - What comes from the queue views is one state of them: while they are lost
//     or being rebuilt the answer is a views_rebuilding error, never an empty
//     list (TestLostViews).
//   - Events stops at the settled position, so a reader that goes on from its
//     last position misses no event that commits late (TestEventsStopAtSettled).
//   - A page of Events looks at a bounded part of the log, however little its
//     filter chooses (TestEventsLookAtABoundedPart).
//   - A replay, forwards, backwards and going on, is every event of the choice, once and
//     in order (TestReplayIsWhole, TestReplayGoesOn), in pieces whose size is bounded
//     (TestReplayOfHeavyEvents).
//   - As of a moment, by position or by time, every query answers what it answered then,
//     also of names that another channel has by now (TestG1AsOfIsWhatWasThen); moments
//     to come, or not settled, and channels that were not there are refused
//     (TestAsOfAtTheEdges), and so is what has left the log (TestAsOfWhereTheLogIsGone).
//   - The history of a message that has ended does not look beyond its end
//     (TestHistoryStopsAtTheEnd), but for where it was published again (TestG6Republished).
//   - Lineage is the same family from any member (TestG6FamilyFromAnyMember), and
//     what one costs that has come to rest does not grow with the log
//     (TestG6CostOfAFamily). An answer is bounded, and says where something was
//     left out and how to go on (TestG6FamilyInParts).
//   - Cursors name the last message or position seen, not a count: what changes
//     meanwhile makes no page skip or repeat what stayed (TestPagesAreStable).
//
// # How it works
//
//	Channels, Channel      leat.channels + counts of leat.queue_runs
//	Messages, DeadLetters  leat.queue_runs, payloads from leat.events by id
//	Message, History       leat.events: the publish, or the message.copied just
//	                       behind the id of a copy; then batch events of its
//	                       channel that name it, up to the one that ends it, or
//	                       to its death, of which a dead run keeps the position
//	Lineage                up from parent to parent to the origin, then down: the
//	                       histories of a generation, and by their message.routed
//	                       the copies that are the next one
//	StreamMessages         leat.events by offset; a batch of copies is one row, whose
//	                       payloads lie with the origins
//	Events, Replay         leat.events in order of position; times are looked up
//	                       by bisection over the primary key; events of a message
//	                       are its history
//	...AsOf, AsOf          leat.fold and leat.fold_circuits up to a position, for the
//	                       channels that events_channels knows of then
//	Status                 the server, the sequence, pg_stat_activity
//
// What is asked of one message a session plans once; replays for what they ask, each
// time (TestPlansThatAreKept).
//
// There is one file per question. The first page of a standard queue, and a page
// of one routing key or of dead letters, costs what it shows, however long the
// queue is (TestPlans). Later pages of a queue, a page of a FIFO queue without a
// key, and counts look at the runs of the queue, never at its messages.
//
// The history of a message that is not settled looks at each batch event of its channel
// in the 16,384 positions behind its id: one index entry and one list of ids. Beyond, it
// looks up those that name the message (TestHistoryOfWhatIsLate), so what an audit costs
// does not grow with the log, nor with how long the message waited. Message does the
// same. Lineage walks along 100,000 of them in a generation, and shows 100 events of a
// message.
//
// A copy is looked for in the 100,000 message.copied events, and 10,000,000
// positions, behind its id: what an id costs that is nobody's.
//
// What is asked as of a moment reads the log up to it, from the checkpoint if that is
// older: about 8 µs of server time for each event that is read, and 200 bytes of memory for
// each message of the channel. So it is done one at a time, and broken off after a minute.
//
// # Failure handling
//
// Errors are *eventstore.Error where the caller can do something about them:
// not found, a bad cursor, a database that is away. Nothing is retried here.
//
// # What it does not do
//
// It waits for nothing that is yet to come: who reads a stream as it grows
// subscribes (package replication), and who follows the log waits at eventstore.Head.
//
// Reading order: queries.go, channels.go, messages.go, dead_letters.go, stream.go,
// beginning.go, history.go, message.go, lineage.go, family.go, events.go, replay.go, chunk.go, span.go, as_of.go, replays.go, status.go.
package queries
