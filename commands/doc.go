// Package commands is what changes the log: one SQL function per command, which
// locks, validates, appends the event and moves the runs in one transaction, and
// the Broker, which validates, coalesces and waits in front of them.
//
// # Guarantees
//
//   - G3: a receipt that no longer holds changes nothing (settle.sql).
//   - G4: per FIFO key, positions are drawn in commit order behind the key's
//     append lock, and one delivery is in flight at a time (publish.sql, poll.sql).
//   - G5: the circuit of a FIFO key opens in the transaction that dead-letters a
//     message of it, and the rest of the key follows (circuit.sql; TestG5…).
//   - G7: the messages of a stream have gapless offsets in the order of the commits
//     (stream.sql; TestG7OffsetsInCommitOrder, TestG7RepeatableRead), and a snapshot that
//     somebody holds makes them no dearer (TestF40HeldHorizonOfAStream).
//   - G8: a refused message refuses its request, and nothing of it is stored.
//   - Those who wait for a queue at one broker get even shares of what comes, and
//     take turns (TestPollsShareEvenly, TestPollsTakeTurns, TestConsumersShareEvenly).
//   - A replay, wherever it is killed, and resumed, publishes each message of its range
//     once and in order (TestG2RepublishIsResumed, TestRepublishKeepsTheOrderOfKeys), and
//     is run by one at a time (TestRepublishIsTakenOver). Nothing overtakes a message that
//     waits for a publisher (TestRepublishWaitsForPublishers).
//   - A Consumer never has more than its prefetch in hand, does not starve when
//     leases end, and gives everything back when it closes, without counting an
//     attempt (TestFS5Prefetch, TestF02ConsumerDoesNotStarve, TestFS3CloseReleases).
//   - A relay publishes each row of a table of Watermill's SQL publisher once, in the
//     transaction that moves its place on: whatever ends its sessions
//     (TestRelayExactlyOnce), whenever rows are committed (TestF26RelayLateCommits),
//     and when the table is restored into another cluster (TestRelayRestored). A
//     row that no channel takes stops it until that is skipped (TestRelayBadRow).
//
// # How it works
//
//	publish ─▶ validation ─▶ coalescer ─▶ one SQL call, one commit ─▶ answers
//	ack ─────▶ validation ─┐
//	                       ├▶ coalescer ─▶ a round: acks and claims in one commit
//	poll ────▶ dispatcher ─┘
//
// What arrives while a batch is under way makes the next one. A lone caller never
// waits; callers that were answered together are given a moment to be together
// again (gatherer.go). A batch that one member spoils is repeated member by member,
// and what has to wait for a lock then goes by itself. The dispatcher of a queue
// claims for all who wait there; a poll that finds nothing waits for a wake-up, or
// a second. When a claim finds less than all want, leat.share divides it: evenly,
// and under load in portions that are worth a delivery (flow.go). A Consumer, which
// the API pushes from, is a caller that goes back into line whenever it has room.
//
// A stream is like a FIFO queue of one key: behind its append lock the next offset
// is read from leat.stream_heads, so each stream has one writer at a time. A broker
// sends the publishes of a stream in one flight at a time, and waits in line for other
// brokers (leat.await_streams). leat.trim_streams holds streams to their retention.
//
// leat.wake tells other brokers of a publish at its commit: those that read the
// write-ahead log by a message there, and only if there are any (TestWakeAtCommit).
//
// Dead letters are recovered, redriven and removed in pages of whole runs, a FIFO
// key in one transaction (dead_letters.sql, recover.sql, redrive.sql). A page waits
// for nobody: what others hold is passed over, and tried again.
//
// A replay publishes a range of the past again, from the log alone: it needs no queue
// views (replay_range.sql, republish.sql). Each page takes its messages in the order of
// their ids, or offsets, holds what they lead to as a redrive does (ways.sql), copies
// them, and says in leat.replays, the view of replay.* events, where the next begins.
// A resume counts up its run: whoever goes on with an older one is refused.
//
// A circuit moves the runs of its key in one statement, by run and not by message.
// Whoever changes it holds the lane of the key; publishers read it behind the key's
// append lock, which the opening only tries, so that an open publish holds up no
// nack: what that leaves behind ("straggling") is never handed out, and the Sweeper
// sends it after the others. The Sweeper also tries a probe when the cool-down is
// over, and recovers the rest when the probe was acked.
//
// A relay reads rows by (transaction_id, offset), as Watermill's subscribers do, up
// to the oldest transaction of the database that still runs: one that is open for
// long holds relays up, unless they delete the rows that they moved, which needs no
// place. Transaction ids of another cluster are noticed by its identifier, or by a
// place that is ahead of all of them; then the rows that are there are gone
// through once, told by the old place and the greatest offset that was moved, and
// the place is taken anew behind them (relay.sql). Every broker runs all relays; the
// lock of its row lets one at a time work at a relay.
//
// # When things fail
//
// Every function that needs the queue views raises LE001 while they are lost; a
// publish then only appends. Whatever waits for time (leases, delays, expiry) is
// done by the Sweeper of any number of brokers, which pass over each other's rows.
//
// # Reading order
//
// channel.sql, publish.sql, stream.sql, copy.sql, wake.sql, poll.sql, settle.sql, sweep.sql, trim.sql, ways.sql, republish.sql,
// replay_range.sql, surface.sql, relay.sql, then broker.go,
// coalescer.go, gatherer.go, rounds.go, dispatcher.go, waiter.go, flow.go, consume.go,
// sweeper.go.
package commands
