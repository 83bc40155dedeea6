package pubsub

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"

	"leat/api"
)

// UUIDHeader is the header with the UUID of a message. Other adapters of
// Watermill give it the same name.
const UUIDHeader = "_watermill_message_uuid"

// Marshaler makes a message of Leat of one of Watermill.
type Marshaler interface {
	Marshal(topic string, msg *message.Message) (api.Message, error)
}

// Unmarshaler makes a message of Watermill of one of Leat. An error sends the
// message of a queue to the dead letters, and ends the subscription to a stream.
type Unmarshaler interface {
	Unmarshal(received Received) (*message.Message, error)
}

// DefaultMarshaler keeps UUID, metadata and payload as they are: the metadata
// become headers of the same names, the UUID becomes UUIDHeader. A message that
// another client published gets the id of the message as its UUID, and the text
// of headers that are no strings. Delays are those of Watermill's delay component.
type DefaultMarshaler struct {
	// RoutingKey is the routing key of a message, up to 255 bytes: what FIFO queues
	// and groups of streams keep the order of, and what links match. Default: none.
	RoutingKey func(topic string, msg *message.Message) (string, error)
	// ContentType is that of the payloads. Default: application/json where a payload
	// is JSON, else application/octet-stream.
	ContentType string
	// Deduplicate makes the UUID the dedupId, so that a publish without an answer is
	// repeated safely; a UUID is then published once into a topic, within the
	// dedupWindow of the channel. Default false.
	Deduplicate bool
}

// Marshal makes a message of Leat.
func (m DefaultMarshaler) Marshal(topic string, msg *message.Message) (api.Message, error) {
	headers, err := headersOf(msg)
	if err != nil {
		return api.Message{}, err
	}
	out := api.Message{Headers: headers}
	m.content(&out, msg.Payload)
	if m.RoutingKey != nil {
		if out.RoutingKey, err = m.RoutingKey(topic, msg); err != nil {
			return api.Message{}, fmt.Errorf("choose the routing key: %w", err)
		}
	}
	if m.Deduplicate {
		out.DedupID = msg.UUID
	}
	return out, setDelay(&out, msg.Metadata)
}

// content puts the payload where its bytes are kept.
func (m DefaultMarshaler) content(out *api.Message, payload []byte) {
	content := api.NewContent(payload, m.ContentType, nil)
	out.ContentType = m.ContentType
	if out.Payload = content.Payload; out.Payload != nil {
		return
	}
	out.PayloadBase64 = payload
	if payload == nil {
		out.PayloadBase64 = []byte{} // nil would be no payload
	}
}

// headersOf refuses what JSON would change.
func headersOf(msg *message.Message) (json.RawMessage, error) {
	headers := make(map[string]string, len(msg.Metadata)+1)
	for name, value := range msg.Metadata {
		if name == UUIDHeader {
			return nil, fmt.Errorf("metadata: the name %s is taken by the UUID", UUIDHeader)
		}
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			return nil, fmt.Errorf("metadata: %q is not UTF-8", name)
		}
		headers[name] = value
	}
	if !utf8.ValidString(msg.UUID) {
		return nil, fmt.Errorf("UUID %q is not UTF-8", msg.UUID)
	}
	headers[UUIDHeader] = msg.UUID
	return json.Marshal(headers)
}

// Unmarshal makes a message of Watermill.
func (DefaultMarshaler) Unmarshal(received Received) (*message.Message, error) {
	msg := message.NewMessage(received.MessageID.String(), received.Bytes())
	if len(received.Headers) == 0 {
		return msg, nil
	}
	headers := map[string]any{}
	decoder := json.NewDecoder(bytes.NewReader(received.Headers))
	decoder.UseNumber()
	if err := decoder.Decode(&headers); err != nil {
		return nil, fmt.Errorf("read headers: %w", err)
	}
	for name, value := range headers {
		text := ""
		if value != nil {
			text = fmt.Sprint(value)
		}
		if name == UUIDHeader {
			msg.UUID = text
		} else {
			msg.Metadata[name] = text
		}
	}
	return msg, nil
}
