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
// # How it works
//
// There is one method per route, in the file of its noun. Connections are kept
// and shared, one for each parallel call.
//
// # Failure handling
//
// Nothing is retried: the caller knows what is safe to repeat. A publish that
// got no answer may have been stored; with a dedupId it can be repeated.
// Refusals with status 503 pass by themselves.
//
// # What it does not do
//
// It has no loop that consumes, renews leases or reconnects.
//
// Reading order: client.go, then any noun.
package client
