package commands

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"leat/eventstore"
)

// claimJob is a claim of messages for several waiters, in their order, on its
// way. All filter alike, or none does.
type claimJob struct {
	channel channel
	waiters []*waiter
	from    *bounds // nil: a full scan
	grain   int     // waiters get at least so many messages, the first ones first
	likely  int     // how many messages it will find
}

func (c *claimJob) size() (items, weight int) { return c.likely, 0 }

const claimSQL = `-- commands.claim
select c.request, c.delivery, c.lease_until, c.message_ids, c.origin_ids, c.keys, c.priorities, c.attempts, c.published_ats,
    c.content_types, c.headers, c.payloads, extract(epoch from c.lease_until - clock_timestamp())::float8
from leat.claim($1, $2, $3, $4, $5, $6, $7, $8) c`

// claim gives messages to the waiters' deliveries, until conclude without their
// contents if they are large.
func (c *claimJob) claim(durable bool) statement {
	var (
		n         = len(c.waiters)
		wants     = make([]int32, n)
		leases    = make(pgtype.FlatArray[pgtype.Interval], n)
		consumers = make(pgtype.FlatArray[pgtype.Text], n)
	)
	for i, w := range c.waiters {
		wants[i] = int32(w.want)
		if w.req.Lease > 0 {
			leases[i] = span(w.req.Lease)
		}
		if w.req.Consumer != "" {
			consumers[i] = text(w.req.Consumer)
		}
	}
	var keys []string // nil, and so null, is any
	if c.waiters[0].filters() {
		keys = c.waiters[0].req.RoutingKeys
	}
	return statement{
		sql:  claimSQL,
		args: []any{c.channel.id, wants, leases, consumers, keys, c.from.array(), c.grain, durable},
		read: c.scan,
	}
}

// conclude comes after the commit. With an error, there are no deliveries: what
// was read so far is lost, to a rollback or until the lease ends.
func (c *claimJob) conclude(ctx context.Context, db querier, err error) error {
	if err == nil {
		err = readContents(ctx, db, c.waiters)
	}
	if err != nil {
		for _, w := range c.waiters {
			w.deliveries = nil
		}
	}
	return eventstore.FromPg(err)
}

// noHeaders are the headers of a message without.
var noHeaders = json.RawMessage(`{}`)

// claimed is a row of leat.claim.
type claimed struct {
	delivery     eventstore.Position
	leaseUntil   time.Time
	ids          []eventstore.MessageID
	origins      []*int64 // nil: itself
	keys         []string
	priorities   []int16
	attempts     []int32
	publishedAts []time.Time
	contentTypes pgtype.FlatArray[pgtype.Text]
	headers      [][]byte // nil: none, or with the payload
	payloads     [][]byte // nil: too large to come along
}

func (c *claimJob) scan(rows pgx.Rows) error {
	var (
		request int
		left    float64 // seconds of the lease
		row     claimed
	)
	targets := []any{
		&request, &row.delivery, &row.leaseUntil, &row.ids, &row.origins, &row.keys, &row.priorities, &row.attempts, &row.publishedAts,
		&row.contentTypes, &row.headers, &row.payloads, &left,
	}
	_, err := pgx.ForEachRow(rows, targets, func() error {
		if request < 1 || request > len(c.waiters) {
			return fmt.Errorf("claim from %s: request %d of %d", c.channel.name, request, len(c.waiters))
		}
		w := c.waiters[request-1]
		w.deliveries = row.deliveries(c.channel)
		w.ends = time.Now().Add(time.Duration(left * float64(time.Second)))
		return nil
	})
	return err
}

// deliveries are the messages of a row.
func (c *claimed) deliveries(ch channel) []Delivery {
	deliveries := make([]Delivery, len(c.ids))
	for i, id := range c.ids {
		d := &deliveries[i]
		*d = Delivery{
			Receipt:         eventstore.Receipt{Delivery: c.delivery, Message: id},
			MessageID:       id,
			OriginMessageID: id,
			Channel:         ch.name,
			RoutingKey:      c.keys[i],
			Payload:         c.payloads[i],
			ContentType:     JSON,
			Headers:         noHeaders,
			Priority:        int(c.priorities[i]),
			Attempt:         int(c.attempts[i]),
			PublishedAt:     c.publishedAts[i],
			LeaseUntil:      c.leaseUntil,
		}
		if o := c.origins[i]; o != nil {
			d.OriginMessageID = eventstore.MessageID(*o)
		}
		if t := c.contentTypes[i]; t.Valid {
			d.ContentType = t.String
		}
		if h := c.headers[i]; h != nil {
			d.Headers = h
		}
	}
	return deliveries
}

const contentsSQL = `-- commands.contents
select c.origin_id, c.headers, c.payload
from leat.contents($1) c`

// readContents reads what large messages came without.
func readContents(ctx context.Context, db querier, waiters []*waiter) error {
	bare := make(map[int64][]*Delivery) // by origin
	for _, w := range waiters {
		for i := range w.deliveries {
			if d := &w.deliveries[i]; d.Payload == nil {
				bare[int64(d.OriginMessageID)] = append(bare[int64(d.OriginMessageID)], d)
			}
		}
	}
	if len(bare) == 0 {
		return nil
	}
	rows, err := db.Query(ctx, contentsSQL, slices.Collect(maps.Keys(bare)))
	if err != nil {
		return err
	}
	var (
		id               int64
		headers, payload []byte
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &headers, &payload}, func() error {
		for _, d := range bare[id] {
			d.Payload = payload
			if headers != nil && len(d.Headers) == len(noHeaders) { // not laid over already
				d.Headers = headers
			}
		}
		payload, headers = nil, nil
		return nil
	})
	return err
}

// bounds are lower bounds, by rank (9 - priority), of the runs that a claim has
// to look at. While a snapshot is held anywhere, what was claimed long ago stays
// in the index; a scan from the start would walk over all of it again.
type bounds [maxPriority + 1]int64

// array is the parameter; nil is a full scan.
func (b *bounds) array() []int64 {
	if b == nil {
		return nil
	}
	return b[:]
}

// follow moves the bounds to the first message of each rank that was claimed:
// what lies before it was gone, or somebody else's. A FIFO queue has one rank.
func (b *bounds) follow(waiters []*waiter, fifo bool) {
	var seen bounds
	for _, w := range waiters {
		for i := range w.deliveries {
			d := &w.deliveries[i]
			rank, id := maxPriority-d.Priority, int64(d.MessageID)
			if fifo {
				rank = 0
			}
			if seen[rank] == 0 || id < seen[rank] {
				seen[rank] = id
			}
		}
	}
	for rank, id := range seen {
		if id != 0 {
			b[rank] = id
		}
	}
}
