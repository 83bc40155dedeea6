package replication

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"leat/eventstore"
)

const (
	pageMessages = 1000
	pageBytes    = 4 << 20

	// A page looks at so many positions at first, which is as many as a partition of
	// the log has: so it opens two of them at the most.
	pageSpan = 8 << 20
	// Messages that a page keeps in memory together, lest one that somebody holds on to
	// hold on to all.
	slabMessages = 64
)

// cursor is a way through the log by the offsets of a stream.
type cursor struct {
	channel eventstore.ChannelID
	next    eventstore.Offset
	// The row that next is in begins at this offset or later, at this position or
	// later; position 0: not known.
	row      eventstore.Offset
	position eventstore.Position
	span     int64 // positions that a page looks at; 0: pageSpan
}

// after says which message lies before the cursor: in a stream the positions are in
// the order of the offsets. Behind a copy there may be more of its row.
func (c *cursor) after(m *eventstore.StreamMessage) {
	if m != nil && m.Offset == c.next-1 && m.MessageID == m.OriginMessageID {
		c.row, c.position = c.next, eventstore.Position(m.MessageID)+1
	}
}

// page is what was read at once.
type page struct {
	messages []*eventstore.StreamMessage // from the cursor on, without a gap
	first    *eventstore.Offset          // that the stream keeps, if there are rows and the stream is there
	rows     bool
	bytes    int
	batches  []batchRow // that messages are of, in order
}

// readPage reads the messages from the cursor on, below an offset, and moves the
// cursor. There are none if the row is not visible yet. A row of copies is read as a
// whole if the bytes allow, so that its lists are read once.
func readPage(ctx context.Context, pool *pgxpool.Pool, c *cursor, below eventstore.Offset, bytes int) (p page, err error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return page{}, err
	}
	defer conn.Release()
	if c.position != 0 {
		p, err = readRows(ctx, conn.Conn(), c, below, bytes)
		if err != nil || len(p.messages) > 0 {
			return p, err
		}
	}
	// It lies further on than the span, or it is not known where.
	found, err := locate(ctx, conn.Conn(), c.channel, c.next)
	if err != nil || !found.ok {
		return page{}, err
	}
	c.row, c.position = found.offset, found.position
	return readRows(ctx, conn.Conn(), c, below, bytes)
}

// located is the row of a stream that has an offset, or would have it if it were there.
type located struct {
	ok       bool
	offset   eventstore.Offset // of its first message
	position eventstore.Position
	at       time.Time
}

// Limit  (cost=1.20..1.24 rows=1)
//
//	->  Merge Append
//	      Sort Key: e.stream_offset DESC
//	      ->  Index Scan Backward using events_default_channel_id_stream_offset_idx on events_default
//	            Index Cond: ((channel_id = $1) AND (stream_offset <= $2))
//	      ->  ... of each partition
const locateSQL = `-- replication.locate
select e.stream_offset,
       e.position,
       e.at
from leat.events e
where e.channel_id = $1
  and e.stream_offset <= $2
order by e.stream_offset desc
limit 1`

func locate(ctx context.Context, conn *pgx.Conn, channel eventstore.ChannelID, n eventstore.Offset) (found located, err error) {
	rows, err := conn.Query(ctx, locateSQL, channel, n)
	if err != nil {
		return located{}, err
	}
	_, err = pgx.ForEachRow(rows, []any{&found.offset, &found.position, &found.at}, func() error {
		found.ok = true
		return nil
	})
	return found, err
}

// Subquery Scan on p
//
//	Filter: (COALESCE(p.before, '0'::bigint) < $6)
//	->  WindowAgg
//	      ->  Merge Append
//	            Sort Key: e.stream_offset
//	            Subplans Removed: 98
//	            ->  Index Scan using events_1_channel_id_stream_offset_idx on events_1
//	                  Index Cond: ((channel_id = $1) AND (stream_offset >= $2) AND (stream_offset < $3))
//	                  Filter: (("position" >= $4) AND ("position" < $5))
//
// The offsets find the rows; the positions rule partitions out. It is planned each
// time, which takes less than a millisecond: without the numbers the planner would
// think that the positions choose as well as the offsets, and read all that they span.
const pageSQL = `-- replication.page
select p.stream_offset,
       p.position,
       p.at,
       p.routing_key,
       p.content_type,
       p.headers,
       p.payload,
       p.message_ids,
       p.origin_ids,
       p.data -> 'keys',
       (select s.first_offset from leat.streams s where s.channel_id = $1)
from (
    select e.stream_offset,
           e.position,
           e.at,
           e.routing_key,
           e.content_type,
           e.headers,
           e.payload,
           e.message_ids,
           e.origin_ids,
           e.data,
           sum(octet_length(e.payload)) over (order by e.stream_offset rows between unbounded preceding and 1 preceding) as before
    from leat.events e
    where e.channel_id = $1
      and e.stream_offset >= $2
      and e.stream_offset < $3
      and e.position >= $4
      and e.position < $5
) p
where coalesce(p.before, 0) < $6
order by p.stream_offset`

// streamRow is a row of pageSQL.
type streamRow struct {
	offset      eventstore.Offset
	position    eventstore.Position
	at          time.Time
	key         pgtype.DriverBytes // valid until the next row is read, as are the others
	contentType pgtype.DriverBytes
	headers     []byte
	payload     pgtype.DriverBytes
	ids         []int64
	origins     []int64
	keys        []byte
	first       *eventstore.Offset
}

func (r *streamRow) targets() []any {
	return []any{
		&r.offset, &r.position, &r.at, &r.key, &r.contentType, &r.headers, &r.payload, &r.ids, &r.origins, &r.keys, &r.first,
	}
}

// readRows reads the rows of a page, and the content of the copies among them.
func readRows(ctx context.Context, conn *pgx.Conn, c *cursor, below eventstore.Offset, bytes int) (page, error) {
	if c.span == 0 {
		c.span = pageSpan
	}
	rows, err := conn.Query(ctx, pageSQL, pgx.QueryExecModeCacheDescribe,
		c.channel, c.row, min(below, c.next+pageMessages), c.position, int64(c.position)+c.span, bytes)
	if err != nil {
		return page{}, err
	}
	b := builder{cursor: *c, below: below, bytes: bytes}
	_, err = pgx.ForEachRow(rows, b.row.targets(), b.take)
	if err == nil && len(b.copies) > 0 {
		err = b.fetchContent(ctx, conn)
	}
	if err != nil {
		return page{}, err
	}
	if n := len(b.page.messages); n > 0 {
		*c = b.cursor
		c.adapt(c.next < below && n < pageMessages && b.page.bytes < bytes/2)
	}
	return b.page, nil
}

// adapt looks at more positions at a time while messages of the stream are rare.
func (c *cursor) adapt(rare bool) {
	if rare {
		c.span = min(4*c.span, 1<<50)
	} else {
		c.span = max(c.span/4, pageSpan)
	}
}

// builder makes messages of rows.
type builder struct {
	cursor cursor // behind what was taken
	below  eventstore.Offset
	bytes  int // of payloads, at the most
	row    streamRow
	page   page
	slab   []eventstore.StreamMessage
	copies []copied // messages of the page without their content
	texts  texts
}

// copied is a message whose payload lies with its origin.
type copied struct {
	index   int     // in the page
	overlay *string // headers of its own, as JSON
}

// take is called for each row.
func (b *builder) take() error {
	r := &b.row
	b.page.rows, b.page.first = true, r.first
	switch {
	case r.ids != nil:
		return b.takeBatch()
	case r.offset == b.cursor.next && r.offset < b.below:
		m := b.message(r.offset, eventstore.MessageID(r.position))
		m.OriginMessageID = m.MessageID
		m.RoutingKey = b.texts.key(r.key)
		m.ContentType = b.texts.contentType(r.contentType)
		m.Headers = r.headers
		m.Payload = append(make([]byte, 0, len(r.payload)), r.payload...)
		b.page.bytes += m.Size()
		b.cursor.row, b.cursor.position = b.cursor.next, r.position+1
	}
	return nil // below the cursor, or behind a gap that is to be closed first
}

// takeBatch takes what the page wants of a row of copies.
func (b *builder) takeBatch() error {
	r := &b.row
	var overlay *string
	if r.headers != nil {
		overlay = new(string(r.headers))
	}
	var keys []string
	if r.keys != nil {
		if err := json.Unmarshal(r.keys, &keys); err != nil {
			return err
		}
	}
	end := r.offset + eventstore.Offset(len(r.ids))
	if r.offset > b.cursor.next || end <= b.cursor.next {
		return nil
	}
	b.page.batches = append(b.page.batches, batchRow{r.offset, r.position, r.at})
	for b.cursor.next < min(end, b.below) {
		i := int(b.cursor.next - r.offset)
		m := b.message(b.cursor.next, eventstore.MessageID(r.ids[i]))
		m.OriginMessageID = m.MessageID
		if i < len(r.origins) {
			m.OriginMessageID = eventstore.MessageID(r.origins[i])
		}
		if m.RoutingKey = b.texts.key(r.key); i < len(keys) {
			m.RoutingKey = keys[i]
		}
		b.copies = append(b.copies, copied{index: len(b.page.messages) - 1, overlay: overlay})
		b.cursor.row, b.cursor.position = r.offset, r.position
	}
	return nil
}

// message appends one to the page.
func (b *builder) message(offset eventstore.Offset, id eventstore.MessageID) *eventstore.StreamMessage {
	if len(b.slab) == 0 {
		b.slab = make([]eventstore.StreamMessage, min(slabMessages, max(1, int(b.below-offset))))
	}
	m := &b.slab[0]
	b.slab = b.slab[1:]
	m.Offset, m.MessageID, m.PublishedAt = offset, id, b.row.at
	b.page.messages = append(b.page.messages, m)
	b.cursor.next = offset + 1
	return m
}

// cutAt ends the page before one of its messages.
func (b *builder) cutAt(index int) {
	cut := b.page.messages[index]
	b.page.messages = b.page.messages[:index:index]
	b.cursor.next, b.cursor.position = cut.Offset, 0
	if index > 0 {
		b.cursor.after(b.page.messages[index-1])
	}
}

// texts shares the strings that messages have in common.
type texts struct{ lastKey, lastType string }

func (t *texts) key(key []byte) string {
	if string(key) != t.lastKey {
		t.lastKey = string(key)
	}
	return t.lastKey
}

// defaultContentType is what null stands for.
const defaultContentType = "application/json"

func (t *texts) contentType(text []byte) string {
	switch {
	case text == nil:
		return defaultContentType
	case string(text) != t.lastType:
		t.lastType = string(text)
	}
	return t.lastType
}
