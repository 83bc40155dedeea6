package queries

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"leat/eventstore"
)

// States of messages that are in no queue, beside those that have left one.
const (
	Redriven   State = "redriven"   // recovered into another channel, as a copy
	Routed     State = "routed"     // published to an exchange: only its copies are somewhere
	Unroutable State = "unroutable" // published to an exchange that had no link for it
	Streamed   State = "streamed"   // in a stream, which keeps it
	Trimmed    State = "trimmed"    // in a stream, which keeps it no longer
)

// A copy has the content of its origin; its own headers go over that one's.
const contentSQL = `-- queries.content
select clock_timestamp(),
       o.at,
       o.payload,
       coalesce(o.content_type, 'application/json'),
       coalesce(o.headers, '{}') || coalesce(e.headers, '{}')
from leat.events o
cross join leat.events e
where o.position = $1
  and e.position = $2`

// Message says where a message is now, by the log: also when the queue views
// are lost, and when it has left its queue long ago.
func (q *Queries) Message(ctx context.Context, id eventstore.MessageID) (Message, error) {
	m, err := q.message(ctx, id, nil)
	return m, wrap(err, "look at message %d", id)
}

// message is as of a moment, or, without one, of now.
func (q *Queries) message(ctx context.Context, id eventstore.MessageID, asOf *Moment) (Message, error) {
	b, err := q.beginning(ctx, id)
	if err != nil {
		return Message{}, err
	}
	if b == nil {
		return Message{}, q.messageNotFound(ctx, id)
	}
	if asOf != nil && b.Position > asOf.Position {
		return Message{}, eventstore.NewError(eventstore.MessageNotFound, "There was no message %d at position %d.", id, asOf.Position)
	}
	if asOf != nil {
		if err := b.at(ctx, q, *asOf); err != nil {
			return Message{}, err
		}
	}
	m := begun(b)
	err = q.eachEvent(ctx, b, func(e Event) bool {
		if asOf != nil && e.Position > asOf.Position {
			return false
		}
		m.apply(&e.Event)
		return true
	})
	if err != nil {
		return Message{}, err
	}
	var now time.Time
	err = q.pool.QueryRow(ctx, contentSQL, b.Origin, b.Position).
		Scan(&now, &m.PublishedAt, &m.Payload, &m.ContentType, &m.Headers)
	if errors.Is(err, pgx.ErrNoRows) { // a copy that outlived its origin
		return Message{}, errors.Join(q.stillThere(ctx, eventstore.Position(b.Origin)), err)
	}
	if asOf != nil {
		now = asOf.At
	}
	m.settle(now, b.Deleted)
	return m, err
}

// settle says what time, and the end of its channel, make of a message.
func (m *Message) settle(now time.Time, deleted bool) {
	switch m.State {
	case Delayed, Ready, InFlight, Dead, Streamed, Trimmed:
		if deleted {
			m.State = Deleted
		}
	}
	if m.State == Delayed && (m.DueAt == nil || !m.DueAt.After(now)) {
		m.State, m.DueAt = Ready, nil
	}
}

// begun is a message as it was at first, but for its content.
func begun(b *beginning) Message {
	m := Message{
		ID:          b.ID,
		OriginID:    b.Origin,
		Channel:     b.Channel,
		RoutingKey:  b.RoutingKey,
		Priority:    b.Priority,
		Offset:      b.Offset,
		State:       Delayed,
		PublishedAt: b.At,
		DueAt:       b.DueAt,
		ExpiresAt:   b.ExpiresAt,
	}
	switch {
	case b.Exchange:
		m.State = Unroutable
	case b.Trimmed:
		m.State = Trimmed
	case b.Offset != nil:
		m.State = Streamed
	}
	return m
}

// apply takes a message one event further.
func (m *Message) apply(e *eventstore.Event) {
	leave := func(s State) {
		m.State, m.DueAt, m.LeaseUntil, m.Owner, m.Delivery = s, nil, nil, "", 0
		m.Reason, m.Detail, m.ErrorClass, m.DiedAt = "", "", "", nil
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
		at := e.At
		m.DiedAt, m.ExpiresAt = &at, nil
		m.Reason, m.Detail, m.ErrorClass = death(e.Data)
	case eventstore.MessageAcked:
		leave(Acked)
	case eventstore.MessageDiscarded:
		leave(Discarded)
	case eventstore.MessagePurged:
		leave(Purged)
	case eventstore.MessageExpired:
		leave(Expired)
	case eventstore.MessageRecovered:
		m.recover(e, leave)
	case eventstore.MessageRouted:
		if m.State == Unroutable && routeCause(e.Data) != CauseRepublish {
			m.State = Routed
		}
	}
}

// recover is apply of a message.recovered event.
func (m *Message) recover(e *eventstore.Event, leave func(State)) {
	if redriveTarget(e.Data) != "" {
		leave(Redriven)
		return
	}
	leave(Delayed)
	m.Attempts, m.ExpiresAt = 0, e.ExpiresAt
}

// redriveTarget reads the data of a message.recovered event: the channel that a
// message has left for, "" when it is back where it was.
func redriveTarget(data json.RawMessage) string {
	var d struct {
		To string `json:"to"`
	}
	if len(data) == 0 || json.Unmarshal(data, &d) != nil {
		return ""
	}
	return d.To
}

// routeCause reads the data of a message.routed event: why there are copies.
func routeCause(data json.RawMessage) string {
	var d struct {
		Cause string `json:"cause"`
	}
	if len(data) == 0 || json.Unmarshal(data, &d) != nil {
		return ""
	}
	return d.Cause
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
