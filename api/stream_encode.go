package api

import (
	"bytes"

	"leat/eventstore"
)

// AppendJSON writes the message with the exact bytes of its payload.
func (m StreamMessage) AppendJSON(b []byte) []byte {
	o := beginObject(b)
	o.number("offset", int64(m.Offset))
	o.number("messageId", int64(m.MessageID))
	o.number("originMessageId", int64(m.OriginMessageID))
	o.text("routingKey", m.RoutingKey)
	o.content(m.Content)
	o.time("publishedAt", m.PublishedAt)
	return o.end()
}

// AppendJSON writes the page.
func (p StreamPage) AppendJSON(b []byte) []byte {
	o := beginObject(b)
	o.text("stream", p.Stream)
	o.number("epoch", int64(p.Epoch))
	o.number("first", int64(p.First))
	o.number("end", int64(p.End))
	list(&o, "messages", p.Messages)
	o.number("next", int64(p.Next))
	return o.end()
}

// noHeaders are the headers of a message without.
var noHeaders = []byte(`{}`)

// StreamMessageOf is the wire form of a message.
func StreamMessageOf(m *eventstore.StreamMessage) StreamMessage {
	headers := m.Headers
	if headers == nil {
		headers = noHeaders
	}
	return StreamMessage{
		Offset:          m.Offset,
		MessageID:       m.MessageID,
		OriginMessageID: m.OriginMessageID,
		RoutingKey:      m.RoutingKey,
		Content:         NewContent(m.Payload, m.ContentType, headers),
		PublishedAt:     m.PublishedAt.UTC(),
	}
}

// EncodeStreamMessage writes the JSON of a message, for its Encoded.
func EncodeStreamMessage(m *eventstore.StreamMessage) []byte {
	return StreamMessageOf(m).AppendJSON(make([]byte, 0, len(m.Payload)+len(m.Headers)+len(m.RoutingKey)+200))
}

// AppendStreamLine appends the JSON of a message, without a line break in it. A
// payload that has such goes in base64 there.
func AppendStreamLine(b []byte, m *eventstore.StreamMessage) []byte {
	encoded := m.Encoded(EncodeStreamMessage)
	if oneLine(encoded) {
		return append(b, encoded...)
	}
	wire := StreamMessageOf(m)
	wire.Payload, wire.PayloadBase64 = nil, &m.Payload
	return wire.AppendJSON(b)
}

// oneLine says whether the JSON can be part of a line as it is.
func oneLine(value []byte) bool {
	return bytes.IndexByte(value, '\n') < 0 && bytes.IndexByte(value, '\r') < 0
}
