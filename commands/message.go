package commands

import (
	"encoding/json"
	"time"

	"leat/eventstore"
)

// JSON is the content type of a message that names none.
const JSON = "application/json"

// Message is what a publisher hands over. Delay and DeliverAt exclude each
// other, as do TTL and ExpiresAt.
type Message struct {
	RoutingKey  string          // 0 to 255 bytes: the FIFO group, the filter
	Payload     []byte          // opaque: what goes in comes out, byte for byte
	ContentType string          // default JSON
	Headers     json.RawMessage // a flat JSON object; names are kept as given, order and number format are not
	Priority    int             // 0 to 9, higher first; 0 in a FIFO queue and in a stream
	Delay       time.Duration   // deliverable so much later; none in a stream
	DeliverAt   time.Time       // deliverable from then on; at most 24 h past; none in a stream
	TTL         time.Duration   // never delivered when so much older; 0: no end; none in a stream
	ExpiresAt   time.Time       // never delivered from then on; none in a stream
	DedupID     string          // the same id within the channel's window is the same message
}

// weight is about what the message costs on the wire.
func (m *Message) weight() int { return len(m.Payload) + len(m.Headers) + len(m.RoutingKey) + 64 }

// check notes what is wrong with message i.
func (m *Message) check(f *faults, i int, limits Limits, ch channel, now time.Time) {
	if len(m.Payload) > limits.Payload {
		f.add(eventstore.PayloadTooLarge, i, "payload", "is %d bytes, more than %d", len(m.Payload), limits.Payload)
	}
	f.key(i, "routingKey", m.RoutingKey)
	f.text(i, "contentType", m.ContentType, maxLabel)
	f.text(i, "dedupId", m.DedupID, maxLabel)
	if len(m.Headers) > limits.Headers {
		f.add(eventstore.HeadersTooLarge, i, "headers", "are %d bytes, more than %d", len(m.Headers), limits.Headers)
	} else if err := checkHeaders(m.Headers); err != nil {
		f.invalid(i, "headers", "%v", err)
	}
	if m.Priority < 0 || m.Priority > maxPriority {
		f.invalid(i, "priority", "must be from 0 to %d", maxPriority)
	} else if ch.fifo && m.Priority != 0 {
		f.invalid(i, "priority", "must be 0 in a FIFO queue")
	}
	m.checkTimes(f, i, now)
	if field := m.notOfStreams(); ch.stream && field != "" {
		f.invalid(i, field, notInStream)
	}
}

const notInStream = "does not go with a stream, which every consumer reads as it was written"

// notOfStreams is the first field that a message of a stream may not have, "" if
// there is none.
func (m *Message) notOfStreams() string {
	switch {
	case m.Priority != 0:
		return "priority"
	case m.Delay != 0:
		return "delay"
	case !m.DeliverAt.IsZero():
		return "deliverAt"
	case m.TTL != 0:
		return "ttl"
	case !m.ExpiresAt.IsZero():
		return "expiresAt"
	default:
		return ""
	}
}

func (m *Message) checkTimes(f *faults, i int, now time.Time) {
	f.between(i, "delay", m.Delay, 0, maxAhead)
	f.between(i, "ttl", m.TTL, 0, maxAhead)
	if m.Delay != 0 && !m.DeliverAt.IsZero() {
		f.invalid(i, "deliverAt", "excludes delay")
	}
	if m.TTL != 0 && !m.ExpiresAt.IsZero() {
		f.invalid(i, "expiresAt", "excludes ttl")
	}
	if !m.DeliverAt.IsZero() && (m.DeliverAt.Before(now.Add(-maxBehind)) || m.DeliverAt.After(now.Add(maxAhead))) {
		f.invalid(i, "deliverAt", "must be at most 24 h ago and at most 10 years ahead")
	}
	if !m.ExpiresAt.IsZero() && (!m.ExpiresAt.After(now) || m.ExpiresAt.After(now.Add(maxAhead))) {
		f.invalid(i, "expiresAt", "must be in the future and at most 10 years ahead")
	}
}

// waits reports whether the message is not deliverable at once.
func (m *Message) waits(now time.Time) bool { return m.Delay > 0 || m.DeliverAt.After(now) }
