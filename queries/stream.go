package queries

import (
	"context"

	"github.com/jackc/pgx/v5"

	"leat/eventstore"
)

// StreamFilter chooses messages of a stream.
type StreamFilter struct {
	Start   eventstore.Start
	Pattern eventstore.Pattern // of routing keys
	Limit   int                // 1 to MaxLimit; 0 is DefaultLimit
}

// StreamPage is a page of a stream.
type StreamPage struct {
	Epoch    eventstore.Position
	First    eventstore.Offset // that the stream keeps
	End      eventstore.Offset // that the next message will get
	Messages []*eventstore.StreamMessage
	// Next is behind what was looked at: where the next page begins. A pattern may
	// choose nothing of a page, and something of one that comes later: up to End.
	Next eventstore.Offset
}

const streamSQL = `-- queries.stream
select f.channel_id,
       f.epoch,
       f.first_offset,
       f.end_offset,
       f.next_offset
from leat.find_start($1, $2, $3, $4, nullif($5::bigint, 0), false) f`

// stream is a stream, its bounds, and where to begin.
type stream struct {
	id    eventstore.ChannelID
	epoch eventstore.Position
	first eventstore.Offset
	end   eventstore.Offset
	next  eventstore.Offset
}

// streamMessagesSQL cuts a page that is too large, but for its first message.
const streamMessagesSQL = `-- queries.StreamMessages
select m.stream_offset,
       m.message_id,
       m.origin_id,
       m.routing_key,
       m.payload,
       coalesce(m.content_type, 'application/json'),
       coalesce(m.own_headers, '{}') || coalesce(m.headers, '{}'),
       m.at
from (
    select m.*, o.payload, o.content_type, o.headers as own_headers,
           sum(octet_length(o.payload) + coalesce(pg_column_size(o.headers), 0))
               over (order by m.stream_offset rows between unbounded preceding and 1 preceding) as before
    from leat.stream_messages($1, $2, $3) m
    join leat.events o on o.position = m.origin_id
) m
where coalesce(m.before, 0) < $4
order by m.stream_offset`

// StreamMessages reads a page of a stream. What Start asks for in vain is refused
// as epoch_changed, offset_gone or offset_ahead, with where to go on.
func (q *Queries) StreamMessages(ctx context.Context, name string, f StreamFilter) (page StreamPage, err error) {
	limit, err := checkLimit(f.Limit)
	if err != nil {
		return page, err
	}
	look := limit
	if !f.Pattern.IsZero() {
		look = MaxLimit
	}
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err = pgx.BeginTxFunc(ctx, q.pool, options, func(tx pgx.Tx) error {
		s, err := findStream(ctx, tx, name, f.Start)
		if err != nil {
			return err
		}
		page = StreamPage{Epoch: s.epoch, First: s.first, End: s.end, Next: s.next}
		messages, err := planned(ctx, tx, scanStreamMessage, streamMessagesSQL, s.id, s.next, min(int64(look), int64(s.end-s.next)), pageBytes)
		page.take(messages, f.Pattern, limit)
		return err
	})
	return page, wrap(err, "read stream %q", name)
}

// take adds what the pattern chooses, up to the limit.
func (p *StreamPage) take(messages []*eventstore.StreamMessage, pattern eventstore.Pattern, limit int) {
	for _, m := range messages {
		if len(p.Messages) == limit {
			return
		}
		p.Next = m.Offset + 1
		if pattern.Match(m.RoutingKey) {
			p.Messages = append(p.Messages, m)
		}
	}
}

// startKinds are the words of leat.find_start.
var startKinds = map[eventstore.StartKind]string{
	eventstore.StartLatest:   "latest",
	eventstore.StartEarliest: "earliest",
	eventstore.StartOffset:   "offset",
	eventstore.StartTime:     "time",
}

func findStream(ctx context.Context, tx querier, name string, start eventstore.Start) (stream, error) {
	if checkText("stream", name) != nil {
		return stream{}, channelNotFound(name)
	}
	rows, err := tx.Query(ctx, streamSQL, name, startKinds[start.Kind], start.Offset, start.Time, start.Epoch)
	if err != nil {
		return stream{}, err
	}
	return pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (s stream, err error) {
		err = row.Scan(&s.id, &s.epoch, &s.first, &s.end, &s.next)
		return s, err
	})
}

func scanStreamMessage(row pgx.CollectableRow) (*eventstore.StreamMessage, error) {
	m := &eventstore.StreamMessage{}
	err := row.Scan(&m.Offset, &m.MessageID, &m.OriginMessageID, &m.RoutingKey, &m.Payload, &m.ContentType, &m.Headers, &m.PublishedAt)
	return m, err
}
