package eventstore

import (
	"encoding/json"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"
)

// Offset is the place of a message in its stream: gapless, from 0, in the order
// of the commits.
type Offset int64

// String is the offset in decimal.
func (o Offset) String() string { return strconv.FormatInt(int64(o), 10) }

// ParseOffset reads what String wrote, with the strictness of ParsePosition.
func ParseOffset(s string) (Offset, error) {
	n, err := parseNumber(s)
	if err != nil {
		return 0, fmt.Errorf("parse offset %q: %w", s, err)
	}
	return Offset(n), nil
}

// StreamPosition is a place in a stream for good: offsets of another epoch are
// those of another stream of the same name.
type StreamPosition struct {
	Epoch  Position // the position of the stream's channel.declared event, until the database is restored
	Offset Offset
}

// StreamMessage is a message of a stream. Subscribers share it: nobody changes it.
type StreamMessage struct {
	Offset          Offset
	MessageID       MessageID
	OriginMessageID MessageID
	RoutingKey      string
	Payload         []byte
	ContentType     string          // never ""
	Headers         json.RawMessage // nil is {}
	PublishedAt     time.Time       // of a copy: when it was copied

	encoded atomic.Pointer[[]byte]
}

// Encoded is what encode makes of the message, made once for all its subscribers.
// They all use the same encode.
func (m *StreamMessage) Encoded(encode func(*StreamMessage) []byte) []byte {
	if data := m.encoded.Load(); data != nil {
		return *data
	}
	data := encode(m)
	m.encoded.Store(&data)
	return data
}

// Size is about the memory that the message takes, in bytes, its encoded form
// included.
func (m *StreamMessage) Size() int {
	return 2*(len(m.Payload)+len(m.Headers)+len(m.RoutingKey)+len(m.ContentType)) + 400
}

// StartKind says where a subscription begins.
type StartKind int

// Where a subscription may begin.
const (
	StartLatest   StartKind = iota // with what is published from now on
	StartEarliest                  // with the first message that the stream keeps
	StartOffset                    // with this offset
	StartTime                      // with the first message that was published then or later
)

// Start is where a subscription begins. A replication point that exists beats it.
type Start struct {
	Kind   StartKind
	Offset Offset    // of StartOffset
	Time   time.Time // of StartTime
	// Epoch of the offset, 0 when the caller does not know: then no check is made.
	Epoch Position
}

// SubscribeRequest asks for the messages of a stream.
type SubscribeRequest struct {
	Stream string
	Start  Start
	// Point names the replication point to resume from, "" for none. It is made,
	// at Start, if there is none of that name.
	Point string
	// Partitions greater than 1 makes the subscriber a member of a group that shares
	// the stream: each routing key belongs to one partition, each partition to one
	// member. 0 takes what the point was made with; a new one has 1.
	Partitions int
	// Member names the subscriber towards a point; "" draws a name. The same name
	// again takes over.
	Member string
	// Pattern chooses by routing key: words split by dots, * is one word, # zero or
	// more; "" is every message.
	Pattern string
	// Window is how many messages may be delivered and not acknowledged, 0 for no
	// bound.
	Window int
	Actor  string // who subscribes, for the log
}

// Subscribed says what a subscription began with.
type Subscribed struct {
	Stream string
	Next   StreamPosition // of the first message that may come
	First  Offset         // that the stream keeps
	End    Offset         // that the next message will get
	Point  string
	Member string
	// Resumed: it goes on from a point that was there before.
	Resumed bool
	// Partitions are those of the group that this member has now; nil without a group.
	Partitions []int
}

// StreamBatch is what a subscription hands over at once.
type StreamBatch struct {
	Messages []*StreamMessage // at least one, unless Assigned is set or the batch is a sign of life
	// Next is behind everything that was handed over or did not match the pattern:
	// Next-1 may be committed once Messages are processed.
	Next StreamPosition
	// End is the offset that the next message of the stream will get, as far as known.
	End Offset
	// Assigned: the member's partitions changed, to Partitions. Messages of
	// partitions that it lost may be under way to their new member.
	Assigned   bool
	Partitions []int
}

// Point is a replication point.
type Point struct {
	Stream     string
	Name       string
	Next       StreamPosition // the first message that was not committed; of a group, the least
	Partitions []PointPartition
	CreatedAt  time.Time
	End        Offset        // that the stream's next message will get
	Lag        int64         // messages from Next on
	Age        time.Duration // of the oldest message that was not committed, 0 if none
	Members    []PointMember
}

// PointPartition is the place of a point in one partition; a point without a
// group has one.
type PointPartition struct {
	Partition   int
	Next        Offset
	CommittedAt time.Time
	Member      string // who reads it now, "" for nobody
}

// PointMember is a consumer that reads with a point now.
type PointMember struct {
	Name   string
	Broker string // the id of the broker that it is connected to
}
