package api

// AppendJSON appends the message to b, its payload and headers byte for byte.
func (m Message) AppendJSON(b []byte) []byte {
	o := beginObject(b)
	o.optionalText("routingKey", m.RoutingKey)
	o.optionalRaw("payload", m.Payload)
	// An empty payload is one too.
	if m.PayloadBase64 != nil && m.Payload == nil {
		o.base64("payloadBase64", m.PayloadBase64)
	}
	o.optionalText("contentType", m.ContentType)
	o.optionalRaw("headers", m.Headers)
	o.optionalNumber("priority", int64(m.Priority))
	o.optionalDuration("delay", m.Delay)
	o.optionalTime("deliverAt", m.DeliverAt)
	o.optionalDuration("ttl", m.TTL)
	o.optionalTime("expiresAt", m.ExpiresAt)
	o.optionalText("dedupId", m.DedupID)
	return o.end()
}

// AppendJSON appends the request to b, payloads and headers byte for byte.
func (r PublishRequest) AppendJSON(b []byte) []byte {
	o := beginObject(b)
	list(&o, "messages", r.Messages)
	return o.end()
}

// AppendJSON appends the delivery to b, its payload byte for byte.
func (d Delivery) AppendJSON(b []byte) []byte {
	o := beginObject(b)
	o.text("receipt", d.Receipt)
	o.number("messageId", int64(d.MessageID))
	o.number("originMessageId", int64(d.OriginMessageID))
	o.text("channel", d.Channel)
	o.text("routingKey", d.RoutingKey)
	o.content(d.Content)
	o.number("priority", int64(d.Priority))
	o.number("attempt", int64(d.Attempt))
	o.time("publishedAt", d.PublishedAt)
	o.time("leaseUntil", d.LeaseUntil)
	return o.end()
}

// AppendJSON appends the result to b, payloads byte for byte.
func (r PollResult) AppendJSON(b []byte) []byte {
	o := beginObject(b)
	list(&o, "deliveries", r.Deliveries)
	return o.end()
}

// AppendJSON appends the message to b, its payload byte for byte.
func (m StoredMessage) AppendJSON(b []byte) []byte {
	o := beginObject(b)
	o.number("messageId", int64(m.MessageID))
	o.number("originMessageId", int64(m.OriginMessageID))
	o.text("channel", m.Channel)
	o.text("routingKey", m.RoutingKey)
	o.content(m.Content)
	o.number("priority", int64(m.Priority))
	o.optionalOffset("offset", m.Offset)
	o.text("state", m.State)
	o.number("attempts", int64(m.Attempts))
	o.time("publishedAt", m.PublishedAt)
	o.optionalTime("dueAt", m.DueAt)
	o.optionalTime("expiresAt", m.ExpiresAt)
	o.optionalNumber("delivery", int64(m.Delivery))
	o.optionalTime("leaseUntil", m.LeaseUntil)
	o.optionalText("owner", m.Owner)
	o.optionalText("reason", m.Reason)
	o.optionalText("detail", m.Detail)
	o.optionalText("errorClass", m.ErrorClass)
	o.optionalTime("diedAt", m.DiedAt)
	return o.end()
}

// AppendJSON appends the page to b, payloads byte for byte.
func (p MessagePage) AppendJSON(b []byte) []byte {
	o := beginObject(b)
	list(&o, "messages", p.Messages)
	o.optionalText("nextCursor", p.NextCursor)
	return o.end()
}

// AppendJSON appends the page to b, payloads byte for byte.
func (p DeadLetterPage) AppendJSON(b []byte) []byte {
	o := beginObject(b)
	list(&o, "deadLetters", p.DeadLetters)
	o.optionalText("nextCursor", p.NextCursor)
	return o.end()
}

// AppendJSON appends the event to b, its payload byte for byte.
func (e Event) AppendJSON(b []byte) []byte {
	o := beginObject(b)
	o.number("position", int64(e.Position))
	o.time("at", e.At)
	o.text("kind", e.Kind)
	o.optionalText("channel", e.Channel)
	o.optionalText("actor", e.Actor)
	o.optionalIDs("messageIds", e.Messages)
	o.optionalRanges("messageRanges", e.Ranges)
	o.optionalIDs("originMessageIds", e.Origins)
	o.optionalNumber("delivery", int64(e.Delivery))
	o.optionalOffset("offset", e.Offset)
	o.optionalTime("dueAt", e.DueAt)
	o.optionalTime("expiresAt", e.ExpiresAt)
	if e.RoutingKey != nil {
		o.text("routingKey", *e.RoutingKey)
	}
	if e.Priority != nil {
		o.number("priority", int64(*e.Priority))
	}
	o.content(e.Content)
	o.optionalRaw("data", e.Data)
	return o.end()
}

// AppendLine appends the event and a line feed. A payload that has line breaks
// of its own goes in base64 there.
func (e Event) AppendLine(b []byte) []byte {
	if !oneLine(e.Payload) {
		payload := []byte(e.Payload)
		e.Payload, e.PayloadBase64 = nil, &payload
	}
	return append(e.AppendJSON(b), '\n')
}

// AppendJSON appends the page to b, payloads byte for byte.
func (p EventPage) AppendJSON(b []byte) []byte {
	o := beginObject(b)
	list(&o, "events", p.Events)
	o.optionalText("nextCursor", p.NextCursor)
	return o.end()
}

// AppendJSON appends the history to b, payloads byte for byte.
func (h History) AppendJSON(b []byte) []byte {
	o := beginObject(b)
	o.number("messageId", int64(h.MessageID))
	o.number("originMessageId", int64(h.OriginMessageID))
	list(&o, "events", h.Events)
	o.optionalText("nextCursor", h.NextCursor)
	if h.Lineage != nil {
		o.key("lineage")
		o.b = h.Lineage.AppendJSON(o.b)
	}
	return o.end()
}

// AppendJSON appends the family to b, headers byte for byte.
func (l Lineage) AppendJSON(b []byte) []byte {
	o := beginObject(b)
	o.number("messageId", int64(l.MessageID))
	o.number("originMessageId", int64(l.OriginMessageID))
	list(&o, "messages", l.Messages)
	o.flag("truncated", l.Truncated)
	return o.end()
}

// AppendJSON appends the message to b, headers byte for byte.
func (m LineageMessage) AppendJSON(b []byte) []byte {
	o := beginObject(b)
	o.number("messageId", int64(m.MessageID))
	o.number("originMessageId", int64(m.OriginMessageID))
	o.optionalNumber("parentMessageId", int64(m.ParentMessageID))
	o.number("depth", int64(m.Depth))
	o.optionalText("cause", m.Cause)
	o.text("channel", m.Channel)
	o.text("routingKey", m.RoutingKey)
	o.optionalText("state", m.State)
	list(&o, "events", m.Events)
	o.optionalText("nextEvents", m.NextEvents)
	o.optionalText("nextCopies", m.NextCopies)
	return o.end()
}
