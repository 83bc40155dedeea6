package eventstore

import (
	"fmt"
	"slices"
)

// Kind says what happened, in the past tense. Kinds are never renamed.
type Kind string

// The kinds of events.
const (
	ChannelDeclared     Kind = "channel.declared"
	ChannelAltered      Kind = "channel.altered"
	ChannelDeleted      Kind = "channel.deleted"
	MessagePublished    Kind = "message.published"     // one row per message, holds the payload
	MessageDelivered    Kind = "message.delivered"     // handed out under a lease until DueAt
	MessageExtended     Kind = "message.extended"      // the lease now ends at DueAt
	MessageAcked        Kind = "message.acked"         // done
	MessageRetried      Kind = "message.retried"       // failed, deliverable again at DueAt
	MessageLeaseExpired Kind = "message.lease_expired" // nobody settled it in time
	MessageReleased     Kind = "message.released"      // given back without counting the attempt
	MessageDeadLettered Kind = "message.dead_lettered" // set aside; Data has the reason
	MessageExpired      Kind = "message.expired"       // its time to live was over
	MessagePurged       Kind = "message.purged"        // removed with all that waited
	MessageDiscarded    Kind = "message.discarded"     // dropped by its consumer
	MessageRouted       Kind = "message.routed"        // copied to other channels, by the events that Data names
	MessageCopied       Kind = "message.copied"        // new messages that are copies; their OriginIDs hold the payload
	MessageRecovered    Kind = "message.recovered"     // a dead letter lives again, or has left for another channel
	CircuitOpened       Kind = "circuit.opened"        // what comes of a FIFO key goes to the dead letters
	CircuitHalfOpened   Kind = "circuit.half_opened"   // one message is tried
	CircuitClosed       Kind = "circuit.closed"
	LinkDeclared        Kind = "link.declared"
	LinkAltered         Kind = "link.altered"
	LinkDeleted         Kind = "link.deleted"
	StreamTrimmed       Kind = "stream.trimmed"  // its retention: it now begins at the offset in Data
	PointCreated        Kind = "point.created"   // a replication point
	PointCommitted      Kind = "point.committed" // everything below the offset in Data was processed
	PointReset          Kind = "point.reset"     // moved, back or ahead
	PointDeleted        Kind = "point.deleted"
	LogSealed           Kind = "log.sealed"   // the digest of a range of the log, over the one before; see chain.go
	LogArchived         Kind = "log.archived" // a range was written to an archive
	LogDropped          Kind = "log.dropped"  // a range has left the log by its retention
	LogRestored         Kind = "log.restored" // the database is another one than before: what came behind here once may be lost
	ReplayStarted       Kind = "replay.started"
	ReplayResumed       Kind = "replay.resumed"  // goes on in another run
	ReplayAdvanced      Kind = "replay.advanced" // a page was published again, in the same transaction
	ReplayFinished      Kind = "replay.finished" // so was the last one

	RelayDeclared Kind = "relay.declared"
	RelaySkipped  Kind = "relay.skipped" // the row with the offset in Data was left out
	RelayDeleted  Kind = "relay.deleted"

	// Of asynchronous projections.
	ProjectionStopped        Kind = "projection.stopped"
	ProjectionStarted        Kind = "projection.started"
	ProjectionFailed         Kind = "projection.failed" // cannot take the event at the position in Data, and waits
	ProjectionRetried        Kind = "projection.retried"
	ProjectionSkipped        Kind = "projection.skipped" // went on behind the event at the position in Data
	ProjectionRebuildStarted Kind = "projection.rebuild_started"
	ProjectionRebuilt        Kind = "projection.rebuilt" // the new one took the place of the old one
)

var kinds = []Kind{
	ChannelDeclared, ChannelAltered, ChannelDeleted,
	MessagePublished, MessageDelivered, MessageExtended, MessageAcked,
	MessageRetried, MessageLeaseExpired, MessageReleased, MessageDeadLettered,
	MessageExpired, MessagePurged, MessageDiscarded,
	MessageRouted, MessageCopied, MessageRecovered,
	CircuitOpened, CircuitHalfOpened, CircuitClosed,
	LinkDeclared, LinkAltered, LinkDeleted,
	StreamTrimmed, PointCreated, PointCommitted, PointReset, PointDeleted,
	LogSealed, LogArchived, LogDropped, LogRestored,
	ReplayStarted, ReplayResumed, ReplayAdvanced, ReplayFinished,
	RelayDeclared, RelaySkipped, RelayDeleted,
	ProjectionStopped, ProjectionStarted, ProjectionFailed, ProjectionRetried, ProjectionSkipped,
	ProjectionRebuildStarted, ProjectionRebuilt,
}

// Kinds lists all kinds that this version writes.
func Kinds() []Kind { return slices.Clone(kinds) }

// ParseKind accepts one of Kinds.
func ParseKind(s string) (Kind, error) {
	if !slices.Contains(kinds, Kind(s)) {
		return "", fmt.Errorf("parse kind %q: no such kind of event", s)
	}
	return Kind(s), nil
}
