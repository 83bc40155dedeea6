// Package pubsub lets applications of Watermill publish to Leat and subscribe to
// it: a message.Publisher and a message.Subscriber over the Go client, and an
// inbox for handlers whose effects are in PostgreSQL.
//
//	leat, err := client.New("http://127.0.0.1:8080", client.Options{Client: "billing"})
//	…
//	publisher, err := pubsub.NewPublisher(leat, pubsub.PublisherConfig{}, logger)
//	subscriber, err := pubsub.NewSubscriber(leat, pubsub.SubscriberConfig{}, logger)
//
// # Topics
//
//	Kind      | a topic is | a group is                | a subscriber without a group
//	Queues    | a queue    | all subscribers           | shares the messages with the others
//	Exchanges | an exchange| a queue that it leads to  | is refused
//	Streams   | a stream   | a replication point       | reads all of it, and keeps no position
//
// Topics are named like channels: 1 to 255 letters, digits, dots, underscores and
// hyphens. Publishers and subscribers of a topic are given the same Topics; what
// is missing is declared, what is there is used as it is (TestDeclarations). So
// an exchange with other links (TestGroupsOfExchanges), a queue with another policy
// or a stream with a retention is declared beforehand.
//
// A group of an exchange gets what is published from its declaration on:
// SubscribeInitialize, or the first Subscribe. A group of a stream, and a
// subscriber without one, begins at the earliest message, unless From says
// otherwise. Its members share the stream by routing key: messages without one go
// to one member, and the others stand by (TestGroupsOfStreams).
//
// # Guarantees
//
//   - It passes Watermill's universal suite, for all kinds (TestSuite). CI runs every
//     test of it with fewer messages and subscribers, and the stress variant;
//     LEAT_WATERMILL_SUITE=full runs it with all of them and restarts the broker,
//     LEAT_WATERMILL_SUITE=stress is the stress variant.
//
//   - A message is published when Publish returns: all messages of a call or none, in
//     their order (TestPublishInOrder, TestBadMessages).
//
//   - UUID, metadata and payload come out as they went in (TestExactBytes). Messages
//     of others are read, and FromContext says what Leat knows of any (TestForeignMessages).
//
//   - Each message comes at least once. A nacked one comes again: in a queue by its
//     policy, while others go on; in a stream after NackDelay, before those behind it.
//     What is out when a subscriber closes may still be acked (TestCloseWaitsForAcks).
//
//   - Order: streams keep that of the commits; FIFO queues that of the commits for
//     each routing key; other queues, to one subscriber, that of the publishes, except
//     for what is nacked.
//
//   - Delays of Watermill's delay component are honoured, and once (TestDelays).
//     Streams refuse them.
//
//   - The context of a message has the values of the subscription's, and ends with its
//     ack or nack, with that context, and after Close (TestContexts).
//
//   - An inbox lets each message take effect exactly once (TestInboxExactlyOnce).
//
// # Failure handling
//
// Connections are made again; messages that were out come again. Publish repeats
// what is known not to be stored, for RetryFor; a *client.UnansweredError says that
// nobody knows, and a caller that publishes again may publish twice, unless
// DefaultMarshaler.Deduplicate makes the UUID a dedupId (TestDeduplicate). Where
// going on makes no sense, as when a queue is deleted, the channel of the
// subscription is closed and the logger told (TestSubscriptionEnds).
//
// A message that is nacked 1,000 times, the default of declared queues, or that
// cannot be unmarshalled, goes to the dead letters of its queue
// (TestUnreadableMessages). A stream has none: its group waits.
//
// # What it does not do
//
// A message that is neither acked nor nacked is out for as long as its subscriber
// lives; Watermill's Timeout middleware bounds that. Nothing is published in the
// transaction of an application: leat.publish does that from SQL, and a relay moves
// what Watermill's SQL publisher wrote.
//
// Reading order: topics.go; publisher.go, marshaler.go, delay.go; subscriber.go,
// subscription.go, received.go; inbox.go.
package pubsub
