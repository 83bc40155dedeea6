package api

import (
	"context"
	"time"

	"leat/eventstore"
)

// Streams is what the API needs of the streams.
type Streams interface {
	// Subscribe begins at once. The error is an *eventstore.Error where the request
	// cannot be served as it is.
	Subscribe(ctx context.Context, request eventstore.SubscribeRequest) (Subscription, error)
}

// Points is what the API needs to change replication points; queries read them.
type Points interface {
	// Declare makes a point, or finds that it exists; partitions 0 is any, and 1 for
	// a new one.
	Declare(ctx context.Context, actor, stream, point string, partitions int, start eventstore.Start) (created bool, err error)
	// Commit says that everything up to and with the position was processed, in all
	// partitions.
	Commit(ctx context.Context, actor, stream, point string, last eventstore.StreamPosition) error
	// Reset moves a point anywhere. Who reads with it is told to begin again.
	Reset(ctx context.Context, actor, stream, point string, start eventstore.Start) error
	// Delete ends the subscriptions that read with the point.
	Delete(ctx context.Context, actor, stream, point string) error
}

// Subscription is a consumer's way through a stream. Next has one caller at a
// time; the other methods may be called beside it.
type Subscription interface {
	// Subscribed says where it began.
	Subscribed() eventstore.Subscribed
	// Next waits for messages that the window has room for. It answers a batch
	// without messages as a sign of life after idle at the latest, which is its
	// chance to say how far Next got past messages that were filtered out. An
	// *eventstore.Error ends the subscription, and says why; a database that is away
	// does not: it waits.
	Next(ctx context.Context, idle time.Duration) (eventstore.StreamBatch, error)
	// Ack says that everything delivered so far, up to and with the message of this
	// offset, needs no room in the window any more.
	Ack(offset eventstore.Offset) error
	// Commit is Ack, and moves the replication point durably.
	Commit(ctx context.Context, last eventstore.StreamPosition) error
	// Close gives the point up. It may be called at any time, and again.
	Close()
}

// StreamPosition is a place in a stream.
type StreamPosition struct {
	Epoch  eventstore.Position `json:"epoch" doc:"of the stream: one that was deleted and declared again, or restored with its database, has another"`
	Offset eventstore.Offset   `json:"offset"`
}

// StreamMessage is a message of a stream.
type StreamMessage struct {
	Offset          eventstore.Offset    `json:"offset" doc:"gapless, from 0, in the order of the commits"`
	MessageID       eventstore.MessageID `json:"messageId"`
	OriginMessageID eventstore.MessageID `json:"originMessageId"`
	RoutingKey      string               `json:"routingKey"`
	Content
	PublishedAt time.Time `json:"publishedAt" doc:"of a copy: when it was copied"`
}

// StreamPage is a page of a stream.
type StreamPage struct {
	Stream   string              `json:"stream"`
	Epoch    eventstore.Position `json:"epoch"`
	First    eventstore.Offset   `json:"first" doc:"the first offset that the stream keeps"`
	End      eventstore.Offset   `json:"end" doc:"that the next message will get"`
	Messages []StreamMessage     `json:"messages" nullable:"false"`
	Next     eventstore.Offset   `json:"next" doc:"from of the next page; end when there is no more for now"`
}

// Point is a replication point: a named, durable place of a consumer in a stream.
type Point struct {
	Stream     string              `json:"stream"`
	Point      string              `json:"point"`
	Epoch      eventstore.Position `json:"epoch"`
	Next       eventstore.Offset   `json:"next" doc:"where a subscriber resumes; of a group, the least of its partitions"`
	End        eventstore.Offset   `json:"end" doc:"that the stream's next message will get"`
	Lag        int64               `json:"lag" doc:"messages from next on; of a group, some of them may be committed"`
	Age        Duration            `json:"age" doc:"of the oldest message that was not committed; 0s if there is none"`
	CreatedAt  time.Time           `json:"createdAt"`
	Partitions []PointPartition    `json:"partitions,omitempty" nullable:"false" doc:"of a group"`
	Members    []PointMember       `json:"members" nullable:"false" doc:"who reads with it now"`
}

// PointPartition is the place of a group in one partition.
type PointPartition struct {
	Partition   int               `json:"partition"`
	Next        eventstore.Offset `json:"next"`
	CommittedAt time.Time         `json:"committedAt"`
	Member      string            `json:"member,omitempty" doc:"who reads it now"`
}

// PointMember is a consumer that is connected.
type PointMember struct {
	Member string `json:"member"`
	Broker string `json:"broker" doc:"the id of the broker that it is connected to, as in the status"`
}

// PointPage answers the points of a stream.
type PointPage struct {
	Points []Point `json:"points" nullable:"false"`
}

// PointSpec declares a point.
type PointSpec struct {
	From       string              `json:"from,omitempty" doc:"earliest, latest (the default), an offset, or a time (RFC 3339)"`
	Epoch      eventstore.Position `json:"epoch,omitempty" doc:"of the offset, to be refused if the stream is another one"`
	Partitions int                 `json:"partitions,omitempty" doc:"2 to 64: a group shares the stream by routing key; default what the point has, 1 for a new one"`
}

// PointStart says where a point is moved to.
type PointStart struct {
	From  string              `json:"from" doc:"earliest, latest, an offset, or a time (RFC 3339)"`
	Epoch eventstore.Position `json:"epoch,omitempty" doc:"of the offset, to be refused if the stream is another one"`
}

// PointCommit moves a point.
type PointCommit struct {
	Epoch  eventstore.Position `json:"epoch,omitempty" doc:"of the stream, to be refused if it is another one"`
	Offset *eventstore.Offset  `json:"offset" doc:"the last one that was processed"`
}
