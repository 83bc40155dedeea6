package replication

import (
	"encoding/json"
	"fmt"
	"time"

	"leat/eventstore"
)

// decoder reads what an output plugin of PostgreSQL sends. What it passes on was
// committed: plugins send a transaction at its commit.
type decoder interface {
	// options are those of START_REPLICATION.
	options() []string
	// decode reads one message, whose bytes are only lent, and passes on what it
	// holds. An error says that it is no message of this plugin.
	decode(data []byte, to receiver) error
}

// receiver takes what a decoder found.
type receiver interface {
	Wants(channel eventstore.ChannelID, end eventstore.Offset) bool
	Message(channel eventstore.ChannelID, message *eventstore.StreamMessage)
	Batch(channel eventstore.ChannelID, first eventstore.Offset, n int)
	Wake(channels ...eventstore.ChannelID)
}

// Output plugins that there is a decoder for.
const (
	PgOutput = "pgoutput" // of PostgreSQL itself
	Wal2JSON = "wal2json" // an extension, for servers where it is what there is
)

func newDecoder(plugin string) (decoder, error) {
	switch plugin {
	case PgOutput:
		return &pgoutput{}, nil
	case Wal2JSON:
		return wal2json{}, nil
	default:
		return nil, fmt.Errorf("unknown decoder %q: it is %s or %s", plugin, PgOutput, Wal2JSON)
	}
}

// wakePrefix marks the logical messages that are ours.
const wakePrefix = "leat"

// row is a row of the log that has a stream offset. Its bytes are only lent.
type row struct {
	channel     eventstore.ChannelID
	offset      eventstore.Offset
	position    eventstore.Position
	at          time.Time
	key         []byte
	contentType []byte // empty is application/json
	headers     []byte // empty is {}
	payload     []byte
	origin      eventstore.MessageID // 0 is the message itself
	copies      int                  // of a row of copies, how many; -1 of a message
}

// pass gives the receiver what the row holds, copied.
func (r *row) pass(to receiver) {
	if r.copies >= 0 {
		to.Batch(r.channel, r.offset, r.copies)
		return
	}
	m := &eventstore.StreamMessage{
		Offset:          r.offset,
		MessageID:       eventstore.MessageID(r.position),
		OriginMessageID: r.origin,
		RoutingKey:      string(r.key),
		ContentType:     "application/json",
		PublishedAt:     r.at,
		Payload:         append(make([]byte, 0, len(r.payload)), r.payload...),
	}
	if r.origin == 0 {
		m.OriginMessageID = m.MessageID
	}
	if len(r.contentType) > 0 {
		m.ContentType = string(r.contentType)
	}
	if len(r.headers) > 0 {
		m.Headers = append(json.RawMessage(nil), r.headers...)
	}
	to.Message(r.channel, m)
}
