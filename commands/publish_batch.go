package commands

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"leat/eventstore"
)

const publishSQL = `-- commands.publish
select p.ids, p.statuses, p.dead, p.offsets, p.route_of, p.route_ids, p.route_names, p.route_dead
from leat.publish_many($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16) p`

// publishJob is a publication on its way, and what one transaction did with it.
type publishJob struct {
	*publication
	answer publishAnswer
}

func (p *publishJob) size() (items, weight int) { return p.items, p.weight }

// publishWay is how a batch is published.
type publishWay struct {
	wait     bool          // for whoever is in the way, as long as it takes
	patience time.Duration // without wait: for who is about to publish into a stream
	knows    *int          // without wait: readers of the write-ahead log that hear of it anyway; nil: none
}

func (b *Broker) newPublisher(flights, maxItems int, patience time.Duration) *coalescer[*publishJob] {
	return &coalescer[*publishJob]{
		flights:   flights,
		worth:     batchWorth,
		maxItems:  maxItems,
		maxWeight: batchBytes,
		run: func(jobs []*publishJob) error {
			ctx, cancel := batchContext()
			defer cancel()
			return run(ctx, b.cfg.Pool, publishAll(jobs, publishWay{patience: patience, knows: b.tailing()}))
		},
		separable: separable,
	}
}

// separable reports whether a failed statement may have failed for the sake of
// one of several requests: the server refused it, so it did nothing.
func separable(err error) bool {
	_, ok := errors.AsType[*pgconn.PgError](err)
	return ok && !eventstore.Unreachable(err) && !errors.Is(err, &eventstore.Error{Code: eventstore.ViewsRebuilding})
}

// publishAll stores the pending messages of several publications.
func publishAll(jobs []*publishJob, way publishWay) statement {
	c := newPublishColumns(jobs)
	var (
		a      publishAnswer
		routes routes
	)
	return oneRow(publishSQL, c.args(way), &a.ids, &a.statuses, &a.dead, &a.offsets, &routes.of, &routes.ids, &routes.names, &routes.dead).then(func() error {
		n := len(c.requests)
		if len(a.ids) != n || (a.statuses != nil && len(a.statuses) != n) || (a.dead != nil && len(a.dead) != n) ||
			(a.offsets != nil && len(a.offsets) != n) {
			return fmt.Errorf("publish %d messages: got %d ids", n, len(a.ids))
		}
		if err := routes.give(&a); err != nil {
			return err
		}
		for _, p := range jobs {
			p.answer = a.cut(len(p.pending))
		}
		return nil
	})
}

// routes says which message was copied where.
type routes struct {
	of    []int // from 1; nil: every message
	ids   []eventstore.ChannelID
	names []string
	dead  []bool // nil: none
}

// give adds the routes to the answer.
func (r routes) give(a *publishAnswer) error {
	if len(r.ids) == 0 {
		return nil
	}
	a.routedTo = make([][]routed, len(a.ids))
	if r.of == nil {
		to := make([]routed, len(r.ids))
		for i, id := range r.ids {
			to[i] = routed{id: id, name: r.names[i]}
		}
		for i := range a.routedTo {
			a.routedTo[i] = to
		}
		return nil
	}
	for i, n := range r.of {
		if n < 1 || n > len(a.ids) {
			return fmt.Errorf("publish %d messages: a copy of message %d", len(a.ids), n)
		}
		a.routedTo[n-1] = append(a.routedTo[n-1], routed{r.ids[i], r.names[i], r.dead != nil && r.dead[i]})
	}
	return nil
}

// cut takes the first n messages off as one answer.
func (a *publishAnswer) cut(n int) publishAnswer {
	first := publishAnswer{ids: a.ids[:n], stored: true}
	a.ids = a.ids[n:]
	if a.dead != nil {
		first.dead, a.dead = a.dead[:n], a.dead[n:]
	}
	if a.offsets != nil {
		first.offsets, a.offsets = a.offsets[:n], a.offsets[n:]
	}
	if a.routedTo != nil {
		first.routedTo, a.routedTo = a.routedTo[:n], a.routedTo[n:]
	}
	if a.statuses != nil {
		first.statuses, a.statuses = a.statuses[:n], a.statuses[n:]
		first.stored = slices.Contains(first.statuses, stored)
	}
	return first
}

// publishError says what a lost connection means for a publish.
func publishError(err error) error {
	e, ok := errors.AsType[*eventstore.Error](err)
	if !ok || e.Code != eventstore.DatabaseUnavailable {
		return err
	}
	said := *e
	if neverRan(err) {
		said.Message = "The database cannot be reached; nothing was stored."
	} else {
		said.Message = "The connection to the database was lost; it is not known whether the messages were stored. " +
			"Publish again with the same dedupId to be safe."
		said.Uncertain = true
	}
	return &said
}

// neverRan reports whether the statement cannot have been carried out.
func neverRan(err error) bool {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		// The end of a session may come after the commit, and so may a pooler's
		// word that it lost the server (class 08).
		return pg.Code != "57P01" && pg.Code != "57P02" && !strings.HasPrefix(pg.Code, "08")
	}
	_, refused := errors.AsType[*pgconn.ConnectError](err)
	return refused || pgconn.SafeToRetry(err)
}

// publishColumns are the parameters of leat.publish_many: an array each, nil
// where no message uses it.
type publishColumns struct {
	requests, channels []int32
	keys               []string
	payloads           [][]byte
	contentTypes       pgtype.FlatArray[pgtype.Text]
	headers            pgtype.FlatArray[pgtype.Text]
	priorities         []int16
	delays, ttls       pgtype.FlatArray[pgtype.Interval]
	dues, expires      pgtype.FlatArray[pgtype.Timestamptz]
	dedupIDs, actors   pgtype.FlatArray[pgtype.Text]
}

func newPublishColumns(jobs []*publishJob) *publishColumns {
	n := 0
	for _, p := range jobs {
		n += len(p.pending)
	}
	c := &publishColumns{
		requests: make([]int32, 0, n),
		channels: make([]int32, 0, n),
		keys:     make([]string, 0, n),
		payloads: make([][]byte, 0, n),
	}
	request := int32(0)
	for _, p := range jobs {
		request++
		for _, i := range p.pending {
			if p.partial {
				request++
			}
			c.add(n, request, p.actor, p.channel.id, &p.messages[i])
		}
	}
	return c
}

// add appends one message of n.
func (c *publishColumns) add(n int, request int32, actor string, channel eventstore.ChannelID, m *Message) {
	i := len(c.requests)
	c.requests = append(c.requests, request)
	c.channels = append(c.channels, int32(channel))
	c.keys = append(c.keys, m.RoutingKey)
	payload := m.Payload
	if payload == nil {
		payload = []byte{} // nil would be null
	}
	c.payloads = append(c.payloads, payload)
	if m.ContentType != "" && m.ContentType != JSON {
		set(&c.contentTypes, n, i, text(m.ContentType))
	}
	if len(m.Headers) > 0 {
		set(&c.headers, n, i, text(string(m.Headers)))
	}
	if m.Priority != 0 {
		set(&c.priorities, n, i, int16(m.Priority))
	}
	if m.Delay > 0 {
		set(&c.delays, n, i, span(m.Delay))
	}
	if m.TTL > 0 {
		set(&c.ttls, n, i, span(m.TTL))
	}
	if !m.DeliverAt.IsZero() {
		set(&c.dues, n, i, moment(m.DeliverAt))
	}
	if !m.ExpiresAt.IsZero() {
		set(&c.expires, n, i, moment(m.ExpiresAt))
	}
	if m.DedupID != "" {
		set(&c.dedupIDs, n, i, text(m.DedupID))
	}
	if actor != "" {
		set(&c.actors, n, i, text(actor))
	}
}

// set makes the column when it is used first; the other values are null, or 0.
func set[S ~[]T, T any](column *S, n, i int, value T) {
	if *column == nil {
		*column = make(S, n)
	}
	(*column)[i] = value
}

func text(s string) pgtype.Text { return pgtype.Text{String: s, Valid: true} }

func span(d time.Duration) pgtype.Interval {
	return pgtype.Interval{Microseconds: d.Microseconds(), Valid: true}
}

func moment(t time.Time) pgtype.Timestamptz { return pgtype.Timestamptz{Time: t, Valid: true} }

func (c *publishColumns) args(way publishWay) []any {
	return []any{
		c.requests, c.channels, c.keys, c.payloads, c.contentTypes, c.headers, c.priorities,
		c.delays, c.dues, c.ttls, c.expires, c.dedupIDs, c.actors, way.wait, way.patience.Milliseconds(), way.knows,
	}
}
