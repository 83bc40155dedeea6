package queries

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"leat/eventstore"
)

// EventsFilter chooses events of the log. Every field narrows the choice; what
// is zero does not.
type EventsFilter struct {
	From, To     eventstore.Position // inclusive
	Since, Until time.Time           // Since inclusive, Until exclusive
	Channel      string              // also deleted ones that had the name
	Kinds        []eventstore.Kind
	MessageID    eventstore.MessageID
	Actor        string
	RoutingKey   *string // of message.published, and what else is of one key; nil is any
	Backwards    bool    // from the last event to the first
	Cursor       string  // from an earlier page, of the same order
	Limit        int     // of a page 1 to MaxLimit, 0 is DefaultLimit; of a replay anything, 0 is all
}

// Events reads a page of the log, up to the settled position. The second result
// is the cursor of the next page, "" on the last. What a page looks at is
// bounded: one of a filter that chooses little may be empty and not the last.
func (q *Queries) Events(ctx context.Context, f EventsFilter) (page []Event, next string, err error) {
	limit, err := checkLimit(f.Limit)
	if err != nil {
		return nil, "", err
	}
	f.Limit = limit + 1 // to see whether there is another page
	r, err := q.Replay(ctx, f)
	if err != nil {
		return nil, "", err
	}
	for weight, first := 0, true; !r.Done() && weight < pageBytes && (first || !r.window.empty()); first = false {
		r.most = pageBytes - weight
		err := r.Next(ctx, func(e *Event) {
			page = append(page, e.clone())
			weight += e.weight()
		})
		if err != nil {
			return nil, "", err
		}
	}
	switch {
	case len(page) > limit:
		page = page[:limit]
		next = f.cursorAt(page[limit-1].Position)
	case !r.Done():
		next = f.cursorAt(r.passed())
	}
	return page, next, nil
}

// check refuses what is no choice. It answers the position that the cursor names.
func (f *EventsFilter) check() (after eventstore.Position, err error) {
	last, err := parseCursorOf(f.cursorPrefix(), f.Cursor)
	if err != nil {
		return 0, err
	}
	err = errors.Join(checkText("channel", f.Channel), checkText("actor", f.Actor))
	if f.RoutingKey != nil {
		err = errors.Join(err, checkText("routingKey", *f.RoutingKey))
	}
	if f.To > 0 && f.To < f.From {
		err = errors.Join(err, invalid("to", "must not be less than from"))
	}
	if !f.Until.IsZero() && f.Until.Before(f.Since) {
		err = errors.Join(err, invalid("until", "must not be earlier than since"))
	}
	return eventstore.Position(last), err
}

// cursorPrefix tells the cursors of the two orders apart.
func (f *EventsFilter) cursorPrefix() string {
	if f.Backwards {
		return backCursorPrefix
	}
	return cursorPrefix
}

func (f *EventsFilter) cursorAt(p eventstore.Position) string {
	return cursor(p).text(f.cursorPrefix())
}

const channelIDsSQL = `-- queries.channelIDs
select c.id
from leat.channels c
where c.name = $1`

// channelsNamed are the channels that have the name, or had it; none for "".
func (q *Queries) channelsNamed(ctx context.Context, name string) ([]eventstore.ChannelID, error) {
	if name == "" {
		return nil, nil
	}
	channels, err := collect(ctx, q.pool, pgx.RowTo[eventstore.ChannelID], channelIDsSQL, name)
	if err == nil && len(channels) == 0 {
		return nil, channelNotFound(name)
	}
	return channels, err
}

// takes is what eventsSQL says of an event, but for its position.
func (f *EventsFilter) takes(e *Event, channels []eventstore.ChannelID) bool {
	return (f.Since.IsZero() || !e.At.Before(f.Since)) &&
		(f.Until.IsZero() || e.At.Before(f.Until)) &&
		(f.Channel == "" || slices.Contains(channels, e.ChannelID)) &&
		(len(f.Kinds) == 0 || slices.Contains(f.Kinds, e.Kind)) &&
		(f.Actor == "" || e.Actor == f.Actor) &&
		(f.RoutingKey == nil || (e.RoutingKey != nil && *e.RoutingKey == *f.RoutingKey))
}

// chooses reports whether there may be much between two events of the choice.
func (f *EventsFilter) chooses() bool {
	return f.Channel != "" || len(f.Kinds) > 0 || f.Actor != "" || f.RoutingKey != nil
}

// onlyBatches reports whether the choice is of batch events of a channel.
func (f *EventsFilter) onlyBatches() bool {
	return f.Channel != "" && len(f.Kinds) > 0 && !slices.ContainsFunc(f.Kinds, func(k eventstore.Kind) bool {
		return k == eventstore.MessagePublished || !strings.HasPrefix(string(k), "message.")
	})
}

// weight is what an event takes in memory, but for what all have.
func (e *Event) weight() int {
	return len(e.Payload) + len(e.Headers) + len(e.Data) + 8*(len(e.MessageIDs)+len(e.OriginIDs)+2*len(e.MessageRanges))
}

// clone is an event that outlives the row that it was read from.
func (e *Event) clone() Event {
	c := *e
	c.Delivery, c.Offset, c.Priority = copyOf(e.Delivery), copyOf(e.Offset), copyOf(e.Priority)
	c.DueAt, c.ExpiresAt = copyOf(e.DueAt), copyOf(e.ExpiresAt)
	c.RoutingKey, c.ContentType = copyOf(e.RoutingKey), copyOf(e.ContentType)
	c.Payload, c.Headers, c.Data = bytes.Clone(e.Payload), bytes.Clone(e.Headers), bytes.Clone(e.Data)
	c.MessageIDs, c.OriginIDs = slices.Clone(e.MessageIDs), slices.Clone(e.OriginIDs)
	c.MessageRanges = slices.Clone(e.MessageRanges)
	return c
}

func copyOf[T any](p *T) *T {
	if p == nil {
		return nil
	}
	return new(*p)
}

func optionalTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func kindNames(kinds []eventstore.Kind) []string {
	if len(kinds) == 0 {
		return nil
	}
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = string(k)
	}
	return names
}
