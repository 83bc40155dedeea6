package api

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
