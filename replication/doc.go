// Package replication tells brokers at once what other brokers, and SQL callers,
// have committed.
//
// In this version the wake-ups travel by LISTEN and NOTIFY on the channel "leat";
// the payload is a list of channel ids (leat.channels.id), never data, and so far
// below NOTIFY's limit of 8,000 bytes.
//
// # How it works
//
//	commit ─▶ Announcer (debounced, outside the transaction) ─▶ NOTIFY
//	SQL callers: pg_notify inside leat.publish_batch         ─▶ NOTIFY
//	NOTIFY ─▶ Listener (a connection of its own) ─▶ Wake of the commands
//
// # When things fail
//
// A wake-up is a hint. The listener proves its connection by a notification to
// itself (TestListenerProves), connects again when that stays out, and then wakes everything, because
// it cannot know what it missed; waiting polls look by themselves every second.
//
// # Reading order
//
// listener.go, announcer.go.
package replication
