package commands

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"leat/eventstore"
)

const claimSQL = `-- commands.claim
select c.request, c.delivery, c.message_id, c.origin_message_id, c.routing_key, c.payload, c.content_type,
    c.headers, c.priority, c.attempt, c.published_at, c.lease_until
from leat.claim($1, $2, $3, $4, $5, $6) c`

// claim takes messages for several waiters, in their order, and gives them to
// their deliveries. Waiters that filter must come alone.
func claim(ctx context.Context, db querier, ch channel, waiters []*waiter, from *bounds) error {
	var (
		n         = len(waiters)
		wants     = make([]int32, n)
		leases    = make(pgtype.FlatArray[pgtype.Interval], n)
		consumers = make(pgtype.FlatArray[pgtype.Text], n)
	)
	for i, w := range waiters {
		wants[i] = int32(w.req.Max)
		if w.req.Lease > 0 {
			leases[i] = span(w.req.Lease)
		}
		if w.req.Consumer != "" {
			consumers[i] = text(w.req.Consumer)
		}
	}
	var keys []string // nil, and so null, is any
	if waiters[0].filters() {
		keys = waiters[0].req.RoutingKeys
	}
	rows, err := db.Query(ctx, claimSQL, ch.id, wants, leases, consumers, keys, from.array())
	if err != nil {
		return eventstore.FromPg(err)
	}
	return eventstore.FromPg(scanClaim(rows, ch, waiters))
}

func scanClaim(rows pgx.Rows, ch channel, waiters []*waiter) error {
	var (
		request   int
		d         = Delivery{Channel: ch.name}
		headers   []byte
		published time.Time
	)
	targets := []any{
		&request, &d.Receipt.Delivery, &d.MessageID, &d.OriginMessageID, &d.RoutingKey, &d.Payload, &d.ContentType,
		&headers, &d.Priority, &d.Attempt, &published, &d.LeaseUntil,
	}
	_, err := pgx.ForEachRow(rows, targets, func() error {
		if request < 1 || request > len(waiters) {
			return fmt.Errorf("claim from %s: request %d of %d", ch.name, request, len(waiters))
		}
		w := waiters[request-1]
		d.Receipt.Message = d.MessageID
		d.Headers = json.RawMessage(headers)
		d.PublishedAt = published
		w.deliveries = append(w.deliveries, d)
		d.Payload, headers = nil, nil
		return nil
	})
	if err != nil {
		// What was read so far is lost to a rolled back statement.
		for _, w := range waiters {
			w.deliveries = nil
		}
	}
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
