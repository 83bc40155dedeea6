package api

import (
	"time"

	"leat/eventstore"
)

// The types of frames. Each frame of a WebSocket is one JSON object in a text
// message, and has its type as a member.
const (
	FrameSubscribed = "subscribed" // first frame of a subscription
	FrameMessages   = "messages"
	FrameCommitted  = "committed"
	FrameAssigned   = "assigned"
	FrameConsuming  = "consuming" // first frame of a push consumer
	FrameDeliveries = "deliveries"
	FrameSettled    = "settled"
	FrameHeartbeat  = "heartbeat" // of both sides
	FrameError      = "error"

	FrameAck     = "ack" // of a subscriber, and of a push consumer
	FrameCommit  = "commit"
	FrameNack    = "nack"
	FrameExtend  = "extend"
	FrameRelease = "release"
)

// MaxClientFrame is how many bytes a frame of a client may have.
const MaxClientFrame = 64 << 10

// SubscribedFrame says where a subscription began.
type SubscribedFrame struct {
	Type       string              `json:"type" enum:"subscribed"`
	Stream     string              `json:"stream"`
	Epoch      eventstore.Position `json:"epoch"`
	Next       eventstore.Offset   `json:"next" doc:"of the first message that may come"`
	First      eventstore.Offset   `json:"first" doc:"that the stream keeps"`
	End        eventstore.Offset   `json:"end" doc:"that the next message will get"`
	Point      string              `json:"point,omitempty"`
	Member     string              `json:"member,omitempty" doc:"with a point: as whom"`
	Resumed    bool                `json:"resumed" doc:"it goes on from a point that was there before"`
	Partitions []int               `json:"partitions,omitzero" doc:"of a group: those of this member, at first perhaps none"`
}

// SubscribedFrameOf is the wire form of what a subscription began with.
func SubscribedFrameOf(at eventstore.Subscribed) SubscribedFrame {
	return SubscribedFrame{
		Type: FrameSubscribed, Stream: at.Stream, Epoch: at.Next.Epoch, Next: at.Next.Offset, First: at.First, End: at.End,
		Point: at.Point, Member: at.Member, Resumed: at.Resumed, Partitions: at.Partitions,
	}
}

// MessagesFrame carries messages of a stream.
type MessagesFrame struct {
	Type     string            `json:"type" enum:"messages"`
	Messages []StreamMessage   `json:"messages" nullable:"false"`
	Next     eventstore.Offset `json:"next" doc:"behind these messages, and what did not match; next-1 may be committed when they are processed"`
}

// HeartbeatFrame is a sign of life. That of a client has the type only.
type HeartbeatFrame struct {
	Type string             `json:"type" enum:"heartbeat"`
	Next *eventstore.Offset `json:"next,omitempty" doc:"of a stream: behind what was sent, or did not match"`
	End  *eventstore.Offset `json:"end,omitempty" doc:"of a stream: that the next message will get"`
}

// CommittedFrame says that a point was moved, durably. Commits that came close
// together are answered once, with the last of them.
type CommittedFrame struct {
	Type   string            `json:"type" enum:"committed"`
	Offset eventstore.Offset `json:"offset" doc:"of the commit: this one and all that came before it are done"`
}

// AssignedFrame says that a member of a group has other partitions now.
type AssignedFrame struct {
	Type       string `json:"type" enum:"assigned"`
	Partitions []int  `json:"partitions" nullable:"false"`
}

// ConsumingFrame says how a push consumer began.
type ConsumingFrame struct {
	Type     string   `json:"type" enum:"consuming"`
	Queue    string   `json:"queue"`
	Mode     string   `json:"mode" enum:"standard,fifo"`
	Prefetch int      `json:"prefetch" doc:"how many deliveries may be outstanding"`
	Lease    Duration `json:"lease"`
	Consumer string   `json:"consumer"`
}

// DeliveriesFrame carries deliveries of a queue.
type DeliveriesFrame struct {
	Type       string     `json:"type" enum:"deliveries"`
	Deliveries []Delivery `json:"deliveries" nullable:"false"`
}

// SettledFrame answers an ack, nack, extend or release.
type SettledFrame struct {
	Type           string              `json:"type" enum:"settled"`
	ID             int64               `json:"id" doc:"of the frame that it answers"`
	Settled        int                 `json:"settled" doc:"receipts that did it now"`
	AlreadySettled int                 `json:"alreadySettled" doc:"receipts that had done the same before"`
	Failed         []FailedReceipt     `json:"failed" nullable:"false"`
	LeaseUntil     *time.Time          `json:"leaseUntil,omitempty" doc:"extend: the new end"`
	Position       eventstore.Position `json:"position" doc:"of the log, at which it is visible"`
}

// ErrorFrame tells a problem: of one frame, whose offset or id it names, or of
// the connection, which is closed next.
type ErrorFrame struct {
	Type    string             `json:"type" enum:"error"`
	Problem *Problem           `json:"problem"`
	Offset  *eventstore.Offset `json:"offset,omitempty" doc:"of the ack or commit that was refused"`
	ID      *int64             `json:"id,omitempty" doc:"of the settlement that was refused"`
	Close   CloseCode          `json:"close,omitempty" doc:"that the connection is closed with next; absent: it goes on"`
}

// AckFrame of a subscriber makes room in its window.
type AckFrame struct {
	Type   string            `json:"type" enum:"ack"`
	Offset eventstore.Offset `json:"offset" doc:"of a message: it, and all that were delivered before it, are processed"`
}

// CommitFrame of a subscriber is an ack, and moves its point durably.
type CommitFrame struct {
	Type   string              `json:"type" enum:"commit"`
	Offset eventstore.Offset   `json:"offset" doc:"of a message, or next-1: it, and all that were delivered before it, are processed"`
	Epoch  eventstore.Position `json:"epoch,omitempty" doc:"of the offset, to be refused if the stream is another one"`
}

// SettleFrame of a push consumer is an ack or a release.
type SettleFrame struct {
	Type     string   `json:"type" enum:"ack,release"`
	ID       int64    `json:"id,omitempty" doc:"any number, for the answer"`
	Receipts []string `json:"receipts" nullable:"false" minItems:"1"`
}

// NackFrame of a push consumer says that messages were not processed.
type NackFrame struct {
	Type       string    `json:"type" enum:"nack"`
	ID         int64     `json:"id,omitempty" doc:"any number, for the answer"`
	Receipts   []string  `json:"receipts" nullable:"false" minItems:"1"`
	Action     string    `json:"action,omitempty" enum:"retry,deadLetter,discard" doc:"default retry"`
	Delay      *Duration `json:"delay,omitempty" doc:"retry: instead of the queue's retry policy"`
	Reason     string    `json:"reason,omitempty" doc:"for people; kept in the log"`
	ErrorClass string    `json:"errorClass,omitempty" doc:"for machines; on the queue's nonRetryable list it makes the messages dead at once"`
}

// ExtendFrame of a push consumer sets leases to end lease from now.
type ExtendFrame struct {
	Type     string    `json:"type" enum:"extend"`
	ID       int64     `json:"id,omitempty" doc:"any number, for the answer"`
	Receipts []string  `json:"receipts" nullable:"false" minItems:"1"`
	Lease    *Duration `json:"lease,omitempty" doc:"default: that of the consumer"`
}

// AppendJSON appends the frame to b, payloads byte for byte.
func (f MessagesFrame) AppendJSON(b []byte) []byte {
	o := beginObject(b)
	o.text("type", FrameMessages)
	list(&o, "messages", f.Messages)
	o.number("next", int64(f.Next))
	return o.end()
}

// AppendJSON appends the frame to b, payloads byte for byte.
func (f DeliveriesFrame) AppendJSON(b []byte) []byte {
	o := beginObject(b)
	o.text("type", FrameDeliveries)
	list(&o, "deliveries", f.Deliveries)
	return o.end()
}

// AppendMessagesFrame appends a MessagesFrame of messages whose JSON all
// subscribers share.
func AppendMessagesFrame(b []byte, messages []*eventstore.StreamMessage, next eventstore.Offset) []byte {
	o := beginObject(b)
	o.text("type", FrameMessages)
	o.key("messages")
	o.b = append(o.b, '[')
	for i, m := range messages {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		o.b = append(o.b, m.Encoded(EncodeStreamMessage)...)
	}
	o.b = append(o.b, ']')
	o.number("next", int64(next))
	return o.end()
}
