package client

import (
	"bytes"
	"encoding/base64"
	"strconv"

	"leat/api"
	"leat/eventstore"
)

// decodeMessages reads a frame of messages, which are most of what comes: the
// form in which the server writes it by hand, any other with encoding/json. The
// messages share the memory of the frame.
func decodeMessages(data []byte) (api.MessagesFrame, error) {
	s := scanner{rest: data}
	if frame, ok := s.frame(); ok {
		return frame, nil
	}
	return decode[api.MessagesFrame](data)
}

// scanner reads JSON of a known form; what it does not know makes it fail.
type scanner struct{ rest []byte }

func (s *scanner) frame() (frame api.MessagesFrame, ok bool) {
	if !s.literal(`{"type":"messages","messages":[`) {
		return frame, false
	}
	frame.Type = api.FrameMessages
	for !s.literal(`]`) {
		if len(frame.Messages) > 0 && !s.literal(`,`) {
			return frame, false
		}
		var m api.StreamMessage
		if !s.message(&m) {
			return frame, false
		}
		frame.Messages = append(frame.Messages, m)
	}
	next, ok := s.number(`,"next":`)
	frame.Next = eventstore.Offset(next)
	return frame, ok && string(s.rest) == `}`
}

func (s *scanner) message(m *api.StreamMessage) bool {
	offset, ok1 := s.number(`{"offset":`)
	id, ok2 := s.number(`,"messageId":`)
	origin, ok3 := s.number(`,"originMessageId":`)
	key, ok4 := s.text(`,"routingKey":"`)
	if !ok1 || !ok2 || !ok3 || !ok4 {
		return false
	}
	m.Offset, m.MessageID, m.OriginMessageID = eventstore.Offset(offset), eventstore.MessageID(id), eventstore.MessageID(origin)
	m.RoutingKey = string(key)
	if s.literal(`,"payload":`) {
		if m.Payload, ok1 = s.value(); !ok1 {
			return false
		}
	} else if text, ok := s.text(`,"payloadBase64":"`); ok {
		payload, err := base64.StdEncoding.AppendDecode([]byte{}, text)
		if err != nil {
			return false
		}
		m.PayloadBase64 = &payload
	}
	if contentType, ok := s.text(`,"contentType":"`); ok {
		m.ContentType = knownType(contentType)
	}
	if s.literal(`,"headers":`) {
		if m.Headers, ok1 = s.value(); !ok1 {
			return false
		}
	}
	at, ok := s.text(`,"publishedAt":"`)
	if !ok || !s.literal(`}`) {
		return false
	}
	return m.PublishedAt.UnmarshalText(at) == nil
}

// knownType spares a copy of the one that most messages have.
func knownType(text []byte) string {
	if string(text) == api.ContentJSON {
		return api.ContentJSON
	}
	return string(text)
}

func (s *scanner) literal(text string) bool {
	if len(s.rest) < len(text) || string(s.rest[:len(text)]) != text {
		return false
	}
	s.rest = s.rest[len(text):]
	return true
}

func (s *scanner) number(before string) (int64, bool) {
	if !s.literal(before) {
		return 0, false
	}
	n := 0
	for n < len(s.rest) && (s.rest[n] == '-' || (s.rest[n] >= '0' && s.rest[n] <= '9')) {
		n++
	}
	number, err := strconv.ParseInt(string(s.rest[:n]), 10, 64)
	s.rest = s.rest[n:]
	return number, err == nil
}

// text reads a string without escapes, behind its opening quote.
func (s *scanner) text(before string) ([]byte, bool) {
	if !s.literal(before) {
		return nil, false
	}
	end := bytes.IndexByte(s.rest, '"')
	if end < 0 || bytes.IndexByte(s.rest[:end], '\\') >= 0 {
		return nil, false
	}
	text := s.rest[:end]
	s.rest = s.rest[end+1:]
	return text, true
}

// value reads any value. That it is one was looked at by whoever wrote it.
func (s *scanner) value() ([]byte, bool) {
	depth := 0
	for i := 0; i < len(s.rest); i++ {
		switch s.rest[i] {
		case '"':
			end := stringEnd(s.rest[i+1:])
			if end < 0 {
				return nil, false
			}
			i += 1 + end
		case '{', '[':
			depth++
			continue
		case '}', ']':
			depth--
		case ',':
			if depth == 0 { // behind a number or a word
				return s.cut(i)
			}
			continue
		default:
			continue
		}
		if depth == 0 {
			return s.cut(i + 1)
		}
		if depth < 0 {
			return s.cut(i)
		}
	}
	return nil, false
}

func (s *scanner) cut(n int) ([]byte, bool) {
	value := s.rest[:n:n]
	s.rest = s.rest[n:]
	return value, n > 0
}

// stringEnd is the place of the closing quote, -1 if there is none.
func stringEnd(text []byte) int {
	for from := 0; ; {
		end := bytes.IndexByte(text[from:], '"')
		if end < 0 {
			return -1
		}
		end += from
		escapes := 0
		for escapes < end && text[end-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return end
		}
		from = end + 1
	}
}
