// Package api holds what goes over the wire: the JSON shapes of Leat's HTTP
// API, as plain structs that server, client and CLI share.
//
// # Guarantees
//
//   - Payloads are opaque: the bytes that were published are the bytes that are
//     delivered (TestContentIsExact). AppendJSON copies them; encoding/json
//     would compact them and escape <, > and &.
//   - AppendJSON and encoding/json write the same document otherwise
//     (TestAppendJSONMatchesEncodingJSON).
//   - Every error code has one status and one title (TestEveryCodeHasAStatus), and
//     a close code of WebSockets (TestCloseCodes).
//
// # How it works
//
// Names are camelCase. Durations are Go's ("5s"), times RFC 3339 in UTC with
// nanoseconds, ids and positions JSON numbers. A message carries its payload
// in one of two fields:
//
//	payload        the JSON value itself, byte for byte
//	payloadBase64  anything else
//
// NewContent chooses: payload is used when the content type is JSON and the
// bytes are a JSON text that survives inside another one.
//
// # What it does not do
//
// It neither checks requests (package httpapi does, strictly) nor knows what
// HTTP is, but for the statuses of problems.
//
// Reading order: message.go, content.go, channel.go, queue.go, stream.go, frames.go,
// close.go, event.go, status.go, problem.go, encode.go.
package api
