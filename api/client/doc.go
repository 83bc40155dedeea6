// Package client calls Leat's HTTP API from Go.
//
//	leat, err := client.New("http://127.0.0.1:8080", client.Options{Client: "billing"})
//	…
//	result, err := leat.Publish(ctx, "orders", api.PublishRequest{Messages: …}, false)
//	if p, ok := errors.AsType[*api.Problem](err); ok && p.Code == eventstore.DedupConflict {
//		…
//	}
//
// The examples are tests, on a real broker.
//
// # Guarantees
//
//   - Each method is one request, and returns the wire types of package api.
//
//   - What the server refuses comes back as an *api.Problem; what never reached
//     it, or was lost on the way, as another error.
//
//   - Payload bytes are sent and received as they are (TestExactBytes).
//
//   - A Publisher sends the messages of many callers in few requests
//     (TestPublisherGathers). It tries again only what is not stored, or has a
//     dedupId (TestPublisherRetries); a bad message fails its own caller only
//     (TestPublisherBadMessages). Messages that are to stand or fall together are
//     one request (TestPublishAll).
//
//   - A subscription delivers every message in order, over connections that break
//     in any way, and each once while the process lives
//     (TestF33SubscribeReconnects). Only what was handled without a gap is
//     committed (TestF33CommitsContiguousPrefix); a gap would be an error. The same
//     holds for each routing key of a group, whose members come and go
//     (TestG7GroupOfClients).
//
//   - CopyEvents writes whole lines of the log, and following it goes on behind the last
//     one over connections that break (TestCopyEvents).
//
//   - What cannot go on says why, and where it can (TestSubscribeEnds).
//
//   - A consumer of a queue acks what its handler handled, keeps its leases
//     (TestConsumeExtendsLeases), tells the handler when one is lost
//     (TestConsumeLeaseLost), and gives back what it did not handle
//     (TestConsumeStops). Messages of a key of a FIFO queue never overtake each
//     other (TestConsumeKeepsTheOrderOfKeys).
//
// # How it works
//
// There is one method per route, in the file of its noun. Connections are kept
// and shared, one for each parallel call.
//
// What came over a WebSocket outlives it:
//
//	Subscribe -> hold: dial, again and again -> session
//	                                             |- listen: frames -> subscription -> handlers
//	                                             '- pen: acks, commits <-----------------'
//
// The subscription knows what is handled; each connection's pen tells its server.
// A new connection asks for what did not come yet, and drops what it brings again.
// Consume works in the same way, with a consumer and a clerk; but there the end
// of a connection gives back what it brought, so handlers are told to end.
//
// # Failure handling
//
// The methods that are one request retry nothing: the caller knows what is safe
// to repeat. A publish that got no answer may have been stored; with a dedupId
// it can be repeated, which a Publisher does by itself. Refusals with status 503
// pass by themselves, and say (Problem.Uncertain) if the request may have been
// carried out.
//
// # What it does not do
//
// No call of one request is repeated. Messages that wait for a handler are kept
// in memory: as many as the window, of any size.
//
// Reading order: client.go, then any noun; publisher.go, publisher_all.go, flight.go; subscribe.go,
// socket.go, subscription.go, subscription_session.go, pen.go, order.go, lanes.go,
// messages_frame.go; consume.go, consumer.go, consumer_session.go, clerk.go,
// nack.go.
package client
