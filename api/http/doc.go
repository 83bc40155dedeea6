// Package httpapi serves Leat's HTTP API: JSON over routes under /v1, health
// routes, and the OpenAPI document of it all.
//
// # Guarantees
//
//   - Bad input is a 4xx problem that names the code, the field and the index of
//     the item; it stores nothing and is never a 500 (TestBadInput).
//   - Payload bytes come out as they went in (TestExactBytes), header names of
//     messages too (TestHeaderNames).
//   - The OpenAPI document lists exactly the routes that are served, and the
//     answers are valid by it (TestContract).
//   - Every error, 404 and 405 included, is application/problem+json
//     (TestProblems); 503 says when to come again.
//   - A waiting poll ends when its client goes (TestPollEndsWithClient).
//   - A subscription as NDJSON or Server-Sent Events says why it ends
//     (TestSubscribeNDJSON, TestSubscribeSSE, TestSubscribeEndsAtStop), and one
//     that is not read holds nobody up (TestF35LinesNeverRead).
//   - Whoever follows the log gets each event once and in order, none above an append
//     that is open (TestF26FollowEvents), and is told of the broker's stop
//     (TestFollowEndsWithTheBroker). One that reads slowly holds no snapshot.
//   - Pages of other hosts read streams where the operator allows it, and nothing
//     else (TestSubscribeOrigins, TestBrowser).
//
// # How it works
//
//	request -> middleware (id, log, recovery, cross-origin) -> gin's router
//	        -> route's handler: strict decoding -> Commands or Queries
//	        -> wire types of package api, written by AppendJSON
//
// routes.go has every route in one table. A handler gets a call, which knows
// the request, and returns an error that is turned into a problem in one place.
// gin routes; its binding, rendering and logging are not used.
//
// A subscription is answered line by line here, or handed to package ws when the
// client asks for a WebSocket; that one outlives the request, and is logged at its
// end. Where a WebSocket is asked for, refusals are told on it, too.
//
// # Publishing without JSON
//
// A body of any content type but JSON and NDJSON is the payload of one message,
// byte for byte. Its fields come as query parameters (routingKey, priority,
// delay, deliverAt, ttl, expiresAt, dedupId) or as headers (Leat-Routing-Key,
// Leat-Priority, ...), each once. Headers of the message come as
// Leat-Header-<name>; CloudEvents attributes (ce-*), traceparent and tracestate
// are taken as they are. HTTP does not keep the case of header names: here they
// are lower case, and repeated ones are joined with ", ". Where the case
// matters, publish JSON.
//
// # Failure handling
//
// A panic in a handler is logged with its stack and answered with 500. An error
// that is no *eventstore.Error is logged with the request's id and answered
// with 500, without its text. When an NDJSON answer cannot go on, a last line
// {"error": Problem} says why; without one, the end is the end of what was asked for.
//
// # What it does not do
//
// It neither listens nor knows TLS, users or limits of rate: that is the
// caller's http.Server and later issues. Goroutines are those of package ws and, one for
// each, of replays. Shutdown ends what has no end of its own.
//
// Reading order: routes.go, server.go, call.go, problem.go, then the file of
// the noun (subscribe.go with lines.go, accept.go and origin.go; events.go with replay.go); route.go and
// openapi.go for the document.
package httpapi
