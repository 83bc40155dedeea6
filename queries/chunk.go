package queries

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"leat/eventstore"
)

// A replay reads so much by one statement: what it holds at once, and how little
// the single round trip matters.
const (
	chunkFirst  = 64 // events, while it is not known what they weigh
	chunkEvents = 4096
	chunkWeight = 1 << 20  // of payloads and lists, aimed at
	chunkMost   = 16 << 20 // that is taken of what turns out heavier
)

const eventsSQL = `-- queries.Events
` + chosenSQL + `
    select e.*` + inOrderSQL + `
    order by e.position
    limit $9
) e` + namedSQL + `
order by e.position`

const eventsBackSQL = `-- queries.eventsBack
` + chosenSQL + `
    select e.*` + inOrderSQL + `
    order by e.position desc
    limit $9
) e` + namedSQL + `
order by e.position desc`

// Batch events of channels have an index, events_batches: see batchWindowSQL.
const batchEventsSQL = `-- queries.batchEvents
` + chosenSQL + `
    select b.*
    from unnest($5::integer[]) c (id)
    cross join lateral (
        select e.*` + windowBatchesSQL + choiceSQL + `
        order by e.channel_id, e.position
        limit $9
    ) b
    order by b.position
    limit $9
) e` + namedSQL + `
order by e.position`

const batchEventsBackSQL = `-- queries.batchEventsBack
` + chosenSQL + `
    select b.*
    from unnest($5::integer[]) c (id)
    cross join lateral (
        select e.*` + windowBatchesSQL + choiceSQL + `
        order by e.channel_id desc, e.position desc
        limit $9
    ) b
    order by b.position desc
    limit $9
) e` + namedSQL + `
order by e.position desc`

const chosenSQL = `select ` + eventColumns + `
from (`

const inOrderSQL = `
    from leat.events e
    where e.position between $1 and $2` + choiceSQL + `
      and ($5::integer[] is null or e.channel_id = any ($5))`

const choiceSQL = `
      and ($3::timestamptz is null or e.at >= $3)
      and ($4::timestamptz is null or e.at < $4)
      and ($6::text[] is null or e.kind = any ($6::text[]::leat.event_kind[]))
      and ($7::text is null or e.actor = $7)
      and ($8::text is null or e.routing_key = $8)`

const namedSQL = `
left join leat.channels c on c.id = e.channel_id`

// chunk is what one statement gave.
type chunk struct {
	events, weight int
	last           eventstore.Position
	cut            bool // there is more of it
}

// next is how many rows to ask for after it, where it was so many.
func (c chunk) next(rows int) int {
	if c.events == 0 {
		return rows
	}
	wanted := c.events * chunkWeight / max(c.weight, 1)
	return max(1, min(wanted, 4*rows, chunkEvents))
}

// read visits at most limit events of the window. Rows that turn out far heavier
// than those before are not read to the end: that costs the connection.
func (r *Replay) read(ctx context.Context, limit int, visit func(*Event)) (c chunk, err error) {
	sql := eventsSQL
	switch {
	case r.filter.onlyBatches() && r.filter.Backwards:
		sql = batchEventsBackSQL
	case r.filter.onlyBatches():
		sql = batchEventsSQL
	case r.filter.Backwards:
		sql = eventsBackSQL
	}
	f := &r.filter
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Planned for what it is asked: the plan for anything tests each row for what is not
	// chosen, and knows neither partition nor number of rows.
	rows, err := r.queries.pool.Query(ctx, sql, pgx.QueryExecModeCacheDescribe, r.window.low, r.window.high, optionalTime(f.Since), optionalTime(f.Until),
		int32s(r.channels), kindNames(f.Kinds), optional(f.Actor), f.RoutingKey, limit)
	if err != nil {
		return c, err
	}
	defer rows.Close()
	targets := r.row.targets()
	for rows.Next() {
		if err := rows.Scan(targets...); err != nil {
			return c, err
		}
		e := r.row.event()
		visit(e)
		c.events++
		c.weight += e.weight()
		c.last = e.Position
		if c.weight >= r.most && c.events < limit {
			c.cut = true
			cancel()
			return c, nil
		}
	}
	return c, rows.Err()
}

// eventRow is a row of eventColumns whose parts are used again and again.
type eventRow struct {
	position, channelID                      int64
	at, dueAt, expiresAt                     pgtype.Timestamptz
	delivery, offset, priority               pgtype.Int8
	kind, key, payload, contentType, headers borrowed
	actor, data, channel                     borrowed
	messageIDs, ranges, originIDs            idList

	result       Event
	deliveryOf   eventstore.Position
	offsetOf     eventstore.Offset
	priorityOf   int16
	keyOf, typed string
	kinds        map[string]eventstore.Kind
}

// borrowed is bytes of the connection's buffer, valid until the next row.
type borrowed []byte

// ScanBytes takes them.
func (b *borrowed) ScanBytes(v []byte) error {
	*b = v
	return nil
}

// idList is an array whose memory is used again.
type idList []eventstore.MessageID

// SetDimensions makes room; nil is null.
func (l *idList) SetDimensions(dimensions []pgtype.ArrayDimension) error {
	if dimensions == nil {
		*l = nil
		return nil
	}
	n := 0 // of an empty array there are no dimensions
	for _, d := range dimensions {
		n = int(d.Length)
	}
	*l = slices.Grow((*l)[:0], n)[:n]
	return nil
}

// ScanIndex is where element i goes.
func (l *idList) ScanIndex(i int) any { return (*int64)(&(*l)[i]) }

// ScanIndexType is the type of all of them.
func (l *idList) ScanIndexType() any { return new(int64) }

func (r *eventRow) targets() []any {
	return []any{
		&r.position, &r.at, &r.kind, &r.channelID, &r.delivery, &r.offset, &r.dueAt, &r.expiresAt, &r.priority,
		&r.key, &r.payload, &r.contentType, &r.headers, &r.actor, &r.messageIDs, &r.ranges, &r.originIDs, &r.data, &r.channel,
	}
}

// event is the row that was scanned last.
func (r *eventRow) event() *Event {
	e := &r.result
	*e = Event{
		Event: eventstore.Event{
			Position: eventstore.Position(r.position), At: r.at.Time, Kind: r.kindOf(), ChannelID: eventstore.ChannelID(r.channelID),
			Payload: r.payload, Headers: []byte(r.headers), Data: []byte(r.data),
			MessageIDs: r.messageIDs, OriginIDs: r.originIDs,
			Actor: same(e.Actor, r.actor),
		},
		Channel: same(e.Channel, r.channel),
	}
	if r.delivery.Valid {
		r.deliveryOf = eventstore.Position(r.delivery.Int64)
		e.Delivery = &r.deliveryOf
	}
	if r.offset.Valid {
		r.offsetOf = eventstore.Offset(r.offset.Int64)
		e.Offset = &r.offsetOf
	}
	if r.priority.Valid {
		r.priorityOf = int16(r.priority.Int64)
		e.Priority = &r.priorityOf
	}
	if r.dueAt.Valid {
		e.DueAt = &r.dueAt.Time
	}
	if r.expiresAt.Valid {
		e.ExpiresAt = &r.expiresAt.Time
	}
	if r.key != nil {
		r.keyOf = same(r.keyOf, r.key)
		e.RoutingKey = &r.keyOf
	}
	if r.contentType != nil {
		r.typed = same(r.typed, r.contentType)
		e.ContentType = &r.typed
	}
	for i := 0; i+1 < len(r.ranges); i += 2 {
		e.MessageRanges = append(e.MessageRanges, eventstore.MessageRange{First: r.ranges[i], Last: r.ranges[i+1]})
	}
	return e
}

func (r *eventRow) kindOf() eventstore.Kind {
	if kind, ok := r.kinds[string(r.kind)]; ok {
		return kind
	}
	if r.kinds == nil {
		r.kinds = map[string]eventstore.Kind{}
	}
	kind := eventstore.Kind(r.kind)
	r.kinds[string(kind)] = kind
	return kind
}

// same is text, in the memory of before if that is the same.
func same(before string, text []byte) string {
	if before == string(text) {
		return before
	}
	return string(text)
}
