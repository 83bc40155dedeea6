// Package ws serves what needs a WebSocket: subscriptions to streams that
// commit, and push consumers of queues.
//
// # Guarantees
//
//   - Whoever is refused or closed is told why, with a close code that says
//     whether to reconnect; package api has the table (TestRefusals,
//     TestEndsAreTold).
//   - Nothing that a client sends, or does not read, hurts another client or the
//     broker's memory (TestF35NeverReads, TestF35ReadsSlowly, TestBadFrames).
//   - Commits are answered when they are durable, in order; one that is refused
//     is told and costs no other (TestCommits).
//   - What a push consumer has in hand when its connection ends is released at
//     once, after the settlements that came before (TestFS3DisconnectReleases,
//     TestFS3KilledConsumer, TestAcksBeforeTheEnd).
//   - An idle connection stays open, and a dead one is noticed (TestPings,
//     TestF35HalfOpen). It costs a broker about 30 KB (TestIdleSubscribersAreCheap).
//
// # How it works
//
//	request -> accept (origin, handshake) -> session
//	                                          |- reader: frames -> handler.receive
//	                                          |- handler.run: writes frames
//	                                          |- pinger: a timer
//	                                          '- close: once, for the first reason
//
// A session goes on when the request has returned, so that net/http lets go of
// its goroutine and buffers. It is the same for all kinds of connections;
// subscribe.go and consume.go are its handlers. Frames are written one at a time.
// Messages are encoded once for all subscribers, and go into frames of about
// 256 KiB under load, or one by one when they come one by one.
//
// # Failure handling
//
// The library closes a connection without a word when a context ends in a read
// or a write. So neither gets one: a timer notices that a frame is stuck, and
// every end goes through close, which tells the peer why if it still reads, and
// gives up after some seconds. A subscription is closed before that, so that its
// point is free at once.
//
// A peer that answers no ping for 10 s is gone; if messages were sent to it
// before the ping it has a minute, because it reads them first, and so on while
// it takes more or sends something. One that does not take a frame for a minute
// is closed, too; it comes back with its position.
//
// # What it does not do
//
// No compression: it costs a megabyte for each connection. No rate limits.
//
// examples/page.html is a page for browsers.
//
// Reading order: server.go, session.go, subscribe.go, commit.go, consume.go,
// settle.go, accept.go.
package ws
