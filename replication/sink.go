package replication

import "leat/eventstore"

// Sink takes what a tail saw committed, in the order of the commits. One goroutine
// calls it; its methods must not block for long, because the tail reads nothing
// meanwhile.
type Sink interface {
	// Live says that from now on every commit is passed on: what a table read that
	// begins later does not show will come. It may be called again without an
	// Interrupted between.
	Live()
	// Interrupted says that commits may be missed until the next Live.
	Interrupted()
	// Wants reports whether somebody here reads the stream, so that no payload is
	// copied for nobody. It is asked about every row, and told where the stream ends
	// with it: who comes to read a moment later may not see that in the table yet.
	Wants(channel eventstore.ChannelID, end eventstore.Offset) bool
	// Message is one message. It is the sink's to keep.
	Message(channel eventstore.ChannelID, message *eventstore.StreamMessage)
	// Batch is a row of copies: n messages from first on, whose payloads lie with
	// their origins.
	Batch(channel eventstore.ChannelID, first eventstore.Offset, n int)
	// Flush says that what was passed on so far may go out: the socket has no more
	// for now, or some hundred messages have gathered.
	Flush()
}

// Silent is a sink that nobody reads from.
type Silent struct{}

// Live does nothing.
func (Silent) Live() {}

// Interrupted does nothing.
func (Silent) Interrupted() {}

// Wants is false.
func (Silent) Wants(eventstore.ChannelID, eventstore.Offset) bool { return false }

// Message does nothing.
func (Silent) Message(eventstore.ChannelID, *eventstore.StreamMessage) {}

// Batch does nothing.
func (Silent) Batch(eventstore.ChannelID, eventstore.Offset, int) {}

// Flush does nothing.
func (Silent) Flush() {}
