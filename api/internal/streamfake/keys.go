package streamfake

import (
	"time"

	"leat/api"
	"leat/eventstore"
)

// PublishKeys appends a message with each routing key.
func (s *Stream) PublishKeys(keys ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		n := len(s.messages)
		s.messages = append(s.messages, &eventstore.StreamMessage{
			Offset: eventstore.Offset(n), MessageID: eventstore.MessageID(n + 1), OriginMessageID: eventstore.MessageID(n + 1),
			RoutingKey: key, Payload: []byte(`{}`), ContentType: api.ContentJSON, PublishedAt: time.Now(),
		})
	}
	s.wake()
}

// MovePoint sets a point, as a reset does.
func (s *Stream) MovePoint(point string, next eventstore.Offset) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.points[point] = next
}
