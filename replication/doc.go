// Package replication tells a broker at once what others, other brokers and SQL
// callers, have committed, and hands the messages of streams to those who read them.
//
// # The tail
//
// A Tail reads the end of PostgreSQL's write-ahead log by a temporary logical slot,
// which PostgreSQL drops with the connection: a broker that is gone keeps no log.
//
//	commit ─▶ walsender, pgoutput ─▶ Tail ─┬─▶ Sink: rows of streams
//	leat.wake: pg_logical_emit_message ─▶ ─┴─▶ Wake of the commands
//
// One goroutine owns the connection. It confirms what it received, at least every 10 s,
// and never waits for subscribers: history is in the log table. The publication
// leat_streams sends inserted rows with a stream offset, and the columns that the
// decoder reads; what somebody makes of it is noticed within seconds, and mended
// (TestF32PublicationAltered). wal2json, the other decoder, filters less: the server sends it the rows
// of queues too. PostgreSQL sends a transaction when it has committed, from a file if it
// is large, and row by row: memory stays flat (TestF30LargeTransaction).
//
//   - What is committed after Live reaches the Sink once and in order, the same from both
//     decoders (TestTailDecodes), whatever ends the slot meanwhile is told by Interrupted,
//     and a new slot begins (TestF32…, TestF28TailAfterRestart, TestG7ExactThroughLostSlots).
//   - A connection that is dead without a word is noticed within Silence, 30 s
//     (TestF29TailSilenced). One that idles lets the server remove its log
//     (TestF29IdleSlotFollows).
//   - A slot waits for every transaction of the server that writes while it is made. The
//     broker does not: it says for whom (TestTailWaitsForTransaction).
//
// The log tells of a commit before snapshots show it. The hub reads again; whoever waits
// for a queue is woken again after 10 and 100 ms. With synchronous replication slower
// than that a queue's message may take until the next look, a second.
//
// # Modes
//
// Where there is no slot the mode is notify: the Fallback runs, which listens on the
// channel "leat"; payloads are lists of channel ids (leat.channels.id), never data.
//
//	             slot made                      lost, for less than 2 s
//	notify ─────────────────────▶ wal ◀────────────────────────▶ (wal, without a slot)
//	   ▲                           │                                  │
//	   └──── nobody reads a stream ┴────────── for longer ────────────┘
//
// State says why there is none: what the server refuses (no wal_level logical, no right,
// no slot free, no plugin: TestTailRefused, TestTailRights), whom the slot waits for, that
// nobody here reads a stream, or the setting. It tries again, every 30 s where nothing will
// change by itself. After a change to wal the fallback goes on for 15 s, until others know.
//
// PostgreSQL decodes the whole log for each tail. Measured here (version 15, payloads of
// 256 bytes): 4 to 5 us of CPU for each message of a queue that is published in batches of 100,
// against 19 for publishing it; 60 for one that is published alone, against 500; and 11 for
// a message of a stream. Queues alone are not worth that, because NOTIFY outside of
// the transactions costs the same however many messages there are: a tail rests until
// somebody here reads a stream (TestTailRests). The setting tail=wal keeps it: NOTIFY
// locks every commit of the database, which matters where many SQL callers publish.
//
// # Wake-ups
//
// leat.brokers holds who is alive and in which mode: a Registry renews its row every 5 s,
// and knows the others (TestRegistry). leat.wake, inside a publish, tells brokers that read
// the log; the Announcer tells those that listen, and both after other commands, outside
// the transaction, gathered for 5 ms, and nobody if there is nobody (TestAnnouncerTells).
//
// # Streams
//
// The Hub serves all subscriptions of a broker. It takes each message once, from the
// tail, and keeps the newest of a stream in a ring that its subscribers share:
//
//	tail ─▶ Hub (a Sink) ─▶ ring per stream ─▶ Subscription.Next, many
//	log, by offset ─▶ filler ───┘                  ▲
//	log, by offset ─▶ pages of one subscription ───┘ below the ring
//
// What it holds to:
//
//   - A subscriber gets every message exactly once and in order, across the hand-over
//     from the table to the ring and back, whatever the tail loses, repeats or
//     interrupts (TestG7HandOverIsExact, TestG7RingIsContiguous, TestG7TailToSubscribers).
//   - A subscriber that is slow falls below the ring and reads the table; it costs
//     others nothing, and memory is bounded (TestF35NeverReads).
//   - Who resumes from a replication point gets what follows its last commit; members
//     of a group share the stream, and none gets again what was committed
//     (TestF33ResumesBehindCommit, TestG7GroupSharesStream).
//
// A ring holds contiguous offsets. Its slots may be empty for a while: what the tail
// told of without its content (rows of copies, whose payloads lie with their origins),
// what it may have missed before it was live, and, without a tail, all there is. Two
// fillers read those from the table, once for all. Offsets are gapless and in the
// order of the commits, so an offset that is known is proof that all below it are
// committed: nobody waits for what will never come, and what is missing for readers is
// only invisible for a moment. Where a stream ends is asked once per generation of the
// tail, after its Live, then once a second for safety: also whether it still exists and
// what it keeps.
//
// Rings are bounded each and together; pages get smaller the more of them subscriptions
// hold; four subscriptions read the table at a time. A subscription has no goroutine
// but while a page is read for it. Pages find their rows by (channel_id, stream_offset)
// and bound them by position, which rules out the other partitions of the log:
// positions of a stream are in the order of its offsets, because its append lock is.
//
// # Replication points
//
// A point is the durable place of a consumer in a stream, and a view of point events.
// Points changes them; its memberships are the subscribers that read with one.
//
//		commits of many ─▶ committer, one flight at a time ─▶ leat.commit_points, one event per point
//		join ─▶ leat.join_point ─▶ membership: what it holds, Commit, leave
//		Run, once a second and when poked ─▶ leat.watch_members, one query for all memberships
//
//	  - A commit is durable when it is answered, never moves a point back, and is tried
//	    again while the database fails (TestCommitIsMonotonic, TestFS10…), and until
//	    snapshots show what the tail told of (TestCommitBeforeSnapshotsShow). Deliveries
//	    move nothing (TestF33…). A transaction that holds a position makes only those
//	    wait whose commits need it (TestG9Held…).
//	  - Of what was committed nothing is given out again: whoever takes a point or a
//	    partition over locks its position and reads it behind the last commit, and
//	    commits of the former holder are refused (TestTakeoverRace,
//	    TestG7GroupUnderChurn, TestG7GroupOverBrokers).
//	  - A point is never moved in silence: another epoch and retention refuse the join,
//	    with where one can go on (TestG7ResumeBelowRetention).
//
// A point with one partition belongs to who came last; the one before ends with
// point_taken, and may get a little more until it hears of it. The partitions of a
// group, 2 to 64 and fixed, are shared by its members evenly; a change moves as few as
// possible (leat.share_point). A routing key belongs to partition FNV-1a 64 mod n, for
// good.
//
// Two members never read a partition at the same time (TestG7GroupHandOver):
//
//	share_point    a new member is to have it: the holder's row says leaving
//	watch_members  its broker hears of it, and takes the grant away
//	reassign       its reader goes by that, and hands out nothing more of it
//	let_go         the row goes, and share_point gives the partition to the new member,
//	               which reads behind the last commit
//
// What was handed out and not committed comes again to the new member. A commit counts
// by the grant that was read by, so that one from before does not count when the
// partition has been away and is back (TestG7GroupCommitAfterLoss).
//
// Members live in unlogged tables. A broker renews its own every 3 s; after 10 s
// without, others take their partitions (TestGroupOfDeadBroker); its members hand out
// nothing when they are silent for 6 s, or when a look fails, until the database knows
// them again (TestG7GroupSilence). So a crash of the server, which forgets who holds
// what, leaves a partition with two members for a second at most, until the next look.
// A broker that slept, or whose server crashed, finds its members forgotten and enters
// them again under their names; they read on where they were unless somebody else has
// committed meanwhile (TestF28MembersCome…). A reset gives the point another generation, which
// fences commits from before; who read with it ends with point_moved and comes again.
//
// # When things fail
//
// A database that is away makes subscriptions wait, and they go on by themselves
// (TestF28DatabaseAway). What ends one is told by its code: channel_not_found,
// epoch_changed and offset_gone with where reading can go on, shutting_down.
//
// A database that was restored gives streams another epoch (eventstore.NoticeRestore).
// A standby that is promoted, or an earlier copy that is restored, may lack commits that
// readers were given. The hub keeps a mark of each stream, the newest row that somebody
// here was given a message of, and asks for it with each look, and before it believes
// the table in a new generation. When others have these offsets, the subscriptions of
// the stream end with offset_ahead, which says from where on, and so does the commit of
// what is lost (TestF28ReplacedCommits, TestF28EarlierCopy). When the table stays below
// the mark for 10 s, and no publish is on its way that explains it, they end in the same
// way, with where the stream ends now (TestF28LostCommits, TestNothingLostYet). Who was
// not connected meanwhile, and comes with an offset, is not found out by that.
//
// A wake-up is a hint. The listener proves its connection by a notification to
// itself (TestListenerProves), and connects again when that stays out. After that, as
// after a new slot, everything is woken, because nobody can know what was missed;
// waiting polls look by themselves every second.
//
// # Reading order
//
// tail.go, session.go, slot.go, publication.go; decoder.go, pgoutput.go, wal2json.go;
// state.go, wanted.go, fallback.go; waker.go, listener.go, registry.go, announcer.go;
// sink.go, hub.go, ring.go, fill.go, lost.go, mark.go, reader.go, content.go, subscription.go, next.go, fetch.go,
// share.go, ahead.go, progress.go; start.sql, points.sql, points.go, commits.go, members.sql,
// membership.go, group.go.
package replication
