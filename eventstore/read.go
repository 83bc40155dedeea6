package eventstore

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Query chooses events. Its zero value is the whole log, in order, up to the
// settled position.
type Query struct {
	From       Position  // the first position, inclusive; 0 is the beginning
	To         Position  // the last position, inclusive; 0 is no bound
	Since      time.Time // events at this time or later; zero is no bound
	Until      time.Time // events before this time; zero is no bound
	Channel    ChannelID // 0 is any
	Kinds      []Kind    // none is any
	Message    MessageID // events that name this message; 0 is any
	Actor      string    // "" is any
	Limit      int       // at most so many events; 0 is no limit
	Descending bool      // newest first
	// Unsettled reads everything that is committed at the moment, also above the
	// settled position. A later read may then find events between those: good
	// for seeing one's own writes, wrong for following the log.
	Unsettled bool
}

// A page is one statement: so many events at most, and so many bytes of payload
// unless a single one is larger. No connection is held between pages.
const (
	pageEvents = 1000
	pageBytes  = 8 << 20
)

const eventColumnsSQL = `e.position, e.at, e.kind::text, coalesce(e.channel_id, 0), e.delivery, e.due_at, e.expires_at,
    e.priority, e.routing_key, e.payload, e.content_type, e.headers, coalesce(e.actor, ''), e.message_ids, e.origin_ids, e.data`

// matchSQL holds for the events that the filters of a Query want.
const matchSQL = `e.position between $1 and $2
      and ($3::timestamptz is null or e.at >= $3)
      and ($4::timestamptz is null or e.at < $4)
      and ($5::int = 0 or e.channel_id = $5)
      and ($6::text[] is null or e.kind = any ($6::text[]::leat.event_kind[]))
      and ($7::text = '' or e.actor = $7)`

// sizedSQL opens a page: payloads are added up unread, so that those beyond the
// page are never fetched.
const sizedSQL = `select ` + eventColumnsSQL + `
from (
    select e.*, sum(coalesce(octet_length(e.payload), 0)) over (rows between unbounded preceding and 1 preceding) as before
    from (
        `

const logUpSQL = `-- eventstore.read
` + sizedSQL + `select e.* from leat.events e
        where ` + matchSQL + `
        order by e.position
        limit $8
    ) e
) e
where coalesce(e.before, 0) < $9
order by e.position`

const logDownSQL = `-- eventstore.readDescending
` + sizedSQL + `select e.* from leat.events e
        where ` + matchSQL + `
        order by e.position desc
        limit $8
    ) e
) e
where coalesce(e.before, 0) < $9
order by e.position desc`

// messageSQL finds the events of one message: its own, and those batches of its
// channel that name it. The batches come from an index of batches by channel.
const messageSQL = `select e.* from (
            select o.* from leat.events o
            where o.position = $10 and o.kind = 'message.published'
            union all
            select b.* from leat.events b
            where b.channel_id = (select c.channel_id from leat.events c where c.position = $10)
              and b.message_ids is not null
              and b.position between greatest($1, $10) and $2
              and $10 = any (b.message_ids)
        ) e
        where ` + matchSQL

const messageUpSQL = `-- eventstore.readMessage
` + sizedSQL + messageSQL + `
        order by e.position
        limit $8
    ) e
) e
where coalesce(e.before, 0) < $9
order by e.position`

const messageDownSQL = `-- eventstore.readMessageDescending
` + sizedSQL + messageSQL + `
        order by e.position desc
        limit $8
    ) e
) e
where coalesce(e.before, 0) < $9
order by e.position desc`

// statement is the text for a query.
func (q Query) statement() string {
	switch {
	case q.Message != 0 && q.Descending:
		return messageDownSQL
	case q.Message != 0:
		return messageUpSQL
	case q.Descending:
		return logDownSQL
	default:
		return logUpSQL
	}
}

func (q Query) args(from, to Position, limit int) []any {
	args := []any{
		from, to, optionalTime(q.Since), optionalTime(q.Until), q.Channel,
		optionalKinds(q.Kinds), q.Actor, limit, pageBytes,
	}
	if q.Message != 0 {
		args = append(args, q.Message)
	}
	return args
}

func optionalTime(t time.Time) pgtype.Timestamptz {
	return pgtype.Timestamptz{Time: t, Valid: !t.IsZero()}
}

func optionalKinds(kinds []Kind) []string {
	if len(kinds) == 0 {
		return nil
	}
	out := make([]string, len(kinds))
	for i, k := range kinds {
		out[i] = string(k)
	}
	return out
}

// Read yields the events of a query in the order of their positions, page by
// page, and stops at the first error, which it yields with a zero Event. The
// settled position is taken once, at the start. The events of one message end
// with its settlement.
func (s *Store) Read(ctx context.Context, q Query) iter.Seq2[Event, error] {
	return read(ctx, s.pool, q)
}

// ReadTx is Read in a transaction, which must be read committed: see
// SettledPositionTx. The transaction may be used between two events.
func (s *Store) ReadTx(ctx context.Context, tx pgx.Tx, q Query) iter.Seq2[Event, error] {
	return read(ctx, tx, q)
}

func read(ctx context.Context, db querier, q Query) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		if err := readPages(ctx, db, q, func(e Event) bool { return yield(e, nil) }); err != nil {
			yield(Event{}, fmt.Errorf("read events: %w", FromPg(err)))
		}
	}
}

func readPages(ctx context.Context, db querier, q Query, yield func(Event) bool) error {
	from, to, err := q.bounds(ctx, db)
	if err != nil {
		return err
	}
	for left := q.Limit; from <= to; {
		limit := pageEvents
		if q.Limit > 0 {
			limit = min(limit, left)
		}
		events, err := readPage(ctx, db, q.statement(), q.args(from, to, limit))
		if err != nil || len(events) == 0 {
			return err
		}
		for _, e := range events {
			if !yield(e) || (q.Message != 0 && !q.Descending && e.Kind.ends()) {
				return nil
			}
		}
		if left -= len(events); left == 0 {
			return nil
		}
		if last := events[len(events)-1].Position; q.Descending {
			to = last - 1
		} else {
			from = last + 1
		}
	}
	return nil
}

// bounds are the first and last position to read, both inclusive.
func (q Query) bounds(ctx context.Context, db querier) (from, to Position, err error) {
	to = math.MaxInt64
	if !q.Unsettled {
		if to, err = settledPosition(ctx, db); err != nil {
			return 0, 0, err
		}
	}
	if q.To > 0 {
		to = min(to, q.To)
	}
	return q.From, to, nil
}

func readPage(ctx context.Context, db querier, sql string, args []any) ([]Event, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanEvent)
}

func scanEvent(row pgx.CollectableRow) (Event, error) {
	var (
		e             Event
		kind          string
		headers, data []byte
	)
	err := row.Scan(&e.Position, &e.At, &kind, &e.ChannelID, &e.Delivery, &e.DueAt, &e.ExpiresAt, &e.Priority,
		&e.RoutingKey, &e.Payload, &e.ContentType, &headers, &e.Actor, &e.MessageIDs, &e.OriginIDs, &data)
	e.Kind, e.Headers, e.Data = Kind(kind), json.RawMessage(headers), json.RawMessage(data)
	return e, err
}
