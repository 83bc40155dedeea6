package queries

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

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
	events, err := q.History(ctx, id)
	if err != nil {
		return Message{}, err
	}
	var (
		now     time.Time
		deleted bool
	)
	rows, err := q.pool.Query(ctx, nowSQL, events[0].ChannelID)
	if err != nil {
		return Message{}, wrap(err, "look at message %d", id)
	}
	_, err = pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (struct{}, error) {
		return struct{}{}, row.Scan(&now, &deleted)
	})
	if err != nil {
		return Message{}, wrap(err, "look at message %d", id)
	}
	m := fold(events, now)
	if deleted && (m.State == Ready || m.State == Delayed || m.State == InFlight || m.State == Dead) {
		m.State = Deleted
	}
	return m, nil
}

// fold is what the events of a message make of it.
func fold(events []Event, now time.Time) Message {
	m := published(events[0])
	for _, e := range events[1:] {
		m.apply(e)
	}
	if m.State == Delayed && (m.DueAt == nil || !m.DueAt.After(now)) {
		m.State, m.DueAt = Ready, nil
	}
	return m
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
