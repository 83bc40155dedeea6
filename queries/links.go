package queries

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"leat/eventstore"
)

// Link leads copies of messages from one channel to another.
type Link struct {
	ID         eventstore.LinkID
	Source     string
	Target     string
	Match      Match
	RewriteKey *string // nil keeps the routing key
	Enabled    bool
	DeclaredAt time.Time
}

// Match says which messages go along a link.
type Match struct {
	Type    string          // all, exact, topic or headers
	Pattern *string         // of exact and topic
	Headers json.RawMessage // of headers, and so is Mode
	Mode    string          // all or any
}

// LinksFilter chooses links.
type LinksFilter struct {
	Source string // name of a channel; "" is any
	Target string // the same
	Cursor string // from an earlier page
	Limit  int    // 1 to MaxLimit; 0 is DefaultLimit
}

const linkColumns = `
select l.id,
       s.name,
       t.name,
       l.match,
       l.pattern,
       l.headers,
       coalesce(l.header_mode, ''),
       l.rewrite_key,
       l.enabled,
       l.declared_at
from leat.links l
join leat.channels s on s.id = l.source_id
join leat.channels t on t.id = l.target_id`

const linksSQL = `-- queries.Links` + linkColumns + `
where ($1::integer is null or l.source_id = $1)
  and ($2::integer is null or l.target_id = $2)
  and l.id > $3
order by l.id
limit $4`

// Links lists links by id. The second result is the cursor of the next page, ""
// on the last. It does not need the queue views.
func (q *Queries) Links(ctx context.Context, f LinksFilter) (page []Link, next string, err error) {
	after, limit, err := checkPage(f.Cursor, f.Limit)
	if err != nil {
		return nil, "", err
	}
	source, err := q.linked(ctx, f.Source)
	if err != nil {
		return nil, "", wrap(err, "list links")
	}
	target, err := q.linked(ctx, f.Target)
	if err != nil {
		return nil, "", wrap(err, "list links")
	}
	page, err = collect(ctx, q.pool, scanLink, linksSQL, source, target, after, limit+1)
	if err != nil {
		return nil, "", wrap(err, "list links")
	}
	if len(page) > limit {
		page = page[:limit]
		next = cursor(page[limit-1].ID).String()
	}
	return page, next, nil
}

// linked finds a channel that a filter names; nil is any.
func (q *Queries) linked(ctx context.Context, name string) (*eventstore.ChannelID, error) {
	if name == "" {
		return nil, nil
	}
	id, err := channelID(ctx, q.pool, name)
	return &id, err
}

const linkSQL = `-- queries.Link` + linkColumns + `
where l.id = $1`

// Link looks at one link.
func (q *Queries) Link(ctx context.Context, id eventstore.LinkID) (Link, error) {
	rows, err := q.pool.Query(ctx, linkSQL, id)
	if err != nil {
		return Link{}, wrap(err, "look at link %d", id)
	}
	link, err := one(rows, scanLink, eventstore.NewError(eventstore.LinkNotFound, "There is no link %d.", id))
	return link, wrap(err, "look at link %d", id)
}

func scanLink(row pgx.CollectableRow) (l Link, err error) {
	err = row.Scan(&l.ID, &l.Source, &l.Target, &l.Match.Type, &l.Match.Pattern, &l.Match.Headers, &l.Match.Mode,
		&l.RewriteKey, &l.Enabled, &l.DeclaredAt)
	return l, err
}
