package queries

import (
	"context"
	"encoding/json"
	"time"

	"leat/eventstore"
)

const nowSQL = `-- queries.now
select clock_timestamp(),
       exists (
           select
           from leat.channels c
           where c.id = $1
             and c.deleted_at is not null
       )`

// Message says where a message is now, by the log: also when the queue views
// are lost, and when it has left its queue long ago.
func (q *Queries) Message(ctx context.Context, id eventstore.MessageID) (Message, error) {
	var m Message
	var channel eventstore.ChannelID
	err := q.eachEvent(ctx, id, func(e Event) bool {
		if m.ID == 0 {
			m, channel = published(e), e.ChannelID
		} else {
			m.apply(e)
		}
		return true
	})
	switch {
	case err != nil:
		return Message{}, wrap(err, "look at message %d", id)
	case m.ID == 0:
		return Message{}, messageNotFound(id)
	}
	var (
		now     time.Time
		deleted bool
	)
	if err := q.pool.QueryRow(ctx, nowSQL, channel).Scan(&now, &deleted); err != nil {
		return Message{}, wrap(err, "look at message %d", id)
	}
	m.settle(now, deleted)
	return m, nil
}

// settle says what time, and the end of its channel, make of a message.
func (m *Message) settle(now time.Time, deleted bool) {
	switch m.State {
	case Delayed, Ready, InFlight, Dead:
		if deleted {
			m.State = Deleted
		}
	}
	if m.State == Delayed && (m.DueAt == nil || !m.DueAt.After(now)) {
		m.State, m.DueAt = Ready, nil
	}
}

func published(e Event) Message {
	m := Message{
		ID:          eventstore.MessageID(e.Position),
		OriginID:    eventstore.MessageID(e.Position),
		Channel:     e.Channel,
		State:       Delayed,
		PublishedAt: e.At,
		DueAt:       e.DueAt,
		ExpiresAt:   e.ExpiresAt,
		Payload:     e.Payload,
		ContentType: defaultContentType,
		Headers:     e.Headers,
	}
	if e.RoutingKey != nil {
		m.RoutingKey = *e.RoutingKey
	}
	if e.Priority != nil {
		m.Priority = int(*e.Priority)
	}
	if e.ContentType != nil {
		m.ContentType = *e.ContentType
	}
	if m.Headers == nil {
		m.Headers = json.RawMessage("{}")
	}
	return m
}

// apply takes a message one event further.
func (m *Message) apply(e Event) {
	leave := func(s State) {
		m.State, m.DueAt, m.LeaseUntil, m.Owner, m.Delivery = s, nil, nil, "", 0
	}
	switch e.Kind {
	case eventstore.MessageDelivered:
		leave(InFlight)
		m.Attempts++
		m.LeaseUntil, m.Owner, m.Delivery = e.DueAt, e.Actor, e.Position
	case eventstore.MessageExtended:
		m.LeaseUntil = e.DueAt
	case eventstore.MessageReleased:
		leave(Delayed)
		m.Attempts--
	case eventstore.MessageRetried, eventstore.MessageLeaseExpired:
		leave(Delayed)
		m.DueAt = e.DueAt
	case eventstore.MessageDeadLettered:
		leave(Dead)
		m.DiedAt, m.ExpiresAt = &e.At, nil
		m.Reason, m.Detail, m.ErrorClass = death(e.Data)
	case eventstore.MessageAcked:
		leave(Acked)
	case eventstore.MessageDiscarded:
		leave(Discarded)
	case eventstore.MessagePurged:
		leave(Purged)
	case eventstore.MessageExpired:
		leave(Expired)
	}
}

// death reads the data of a message.dead_lettered event.
func death(data json.RawMessage) (reason, detail, class string) {
	var d struct {
		Reason     string `json:"reason"`
		Detail     string `json:"detail"`
		ErrorClass string `json:"errorClass"`
	}
	if err := json.Unmarshal(data, &d); err != nil {
		// Somebody else's event: what it says is not ours to know.
		return "", "", ""
	}
	return d.Reason, d.Detail, d.ErrorClass
}
