// Package client calls Leat's HTTP API from Go.
//
//	leat, err := client.New("http://127.0.0.1:8080", client.Options{Client: "billing"})
//	…
//	result, err := leat.Publish(ctx, "orders", api.PublishRequest{Messages: …}, false)
//	if p, ok := errors.AsType[*api.Problem](err); ok && p.Code == eventstore.DedupConflict {
//		…
//	}
//
// # Guarantees
//
//   - Each method is one request, and returns the wire types of package api.
//   - What the server refuses comes back as an *api.Problem; what never reached
//     it, or was lost on the way, as another error.
//   - Payload bytes are sent and received as they are (TestExactBytes).
//
//   - A Publisher sends the messages of many callers in few requests
//     (TestPublisherGathers). It tries again only what is not stored, or has a
//     dedupId (TestPublisherRetries); a bad message fails its own caller only
//     (TestPublisherBadMessages).
//
// # How it works
//
// There is one method per route, in the file of its noun. Connections are kept
// and shared, one for each parallel call.
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
// It has no loop that consumes, renews leases or reconnects.
//
// Reading order: client.go, then any noun; publisher.go, flight.go.
package client
