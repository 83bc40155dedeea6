package commands

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"leat/eventstore"
)

// What a link matches. An exchange fixes it for all its links: direct is exact,
// fanout is all.
const (
	MatchAll     = "all"     // every message
	MatchExact   = "exact"   // a routing key, byte by byte
	MatchTopic   = "topic"   // words with dots between: * is one word, # any number of them
	MatchHeaders = "headers" // header values, with their types
)

// Whether a message needs all headers of a match, or any one of them.
const (
	AllHeaders = "all"
	AnyHeader  = "any"
)

// Match says which messages go along a link.
type Match struct {
	Type    string          // MatchAll, MatchExact, MatchTopic or MatchHeaders
	Pattern *string         // the key or the topic; nil with other types
	Headers json.RawMessage // a JSON object; nil with other types
	Mode    string          // AllHeaders or AnyHeader; "" with other types
}

// Link leads copies of messages from one channel to another.
type Link struct {
	ID         eventstore.LinkID
	Source     string
	Target     string
	Match      Match
	RewriteKey *string // the routing key of the copies; nil keeps that of the message
	Enabled    bool
	DeclaredAt time.Time
}

// LinkSpec is what a declaration asks for.
type LinkSpec struct {
	Source     string
	Target     string
	Match      Match   // Type: default what the exchange fixes, of queues MatchAll; Mode: default AllHeaders
	RewriteKey *string // default nil
	Enabled    *bool   // default true
}

// LinkPatch names what of a link differs; nil leaves it as it is.
type LinkPatch struct {
	RewriteKey *string
	KeepKey    bool // take the RewriteKey away; excludes one
	Enabled    *bool
}

// linkColumns are the columns that linkFields are for, of a link l.
const linkColumns = `l.id, (select c.name from leat.channels c where c.id = l.source_id),
    (select c.name from leat.channels c where c.id = l.target_id),
    l.match, l.pattern, l.headers, coalesce(l.header_mode, ''), l.rewrite_key, l.enabled, l.declared_at`

func linkFields(l *Link) []any {
	return []any{
		&l.ID, &l.Source, &l.Target, &l.Match.Type, &l.Match.Pattern, &l.Match.Headers, &l.Match.Mode,
		&l.RewriteKey, &l.Enabled, &l.DeclaredAt,
	}
}

const declareLinkSQL = `-- commands.declareLink
select ` + linkColumns + `, d.created
from leat.declare_link($1, $2, nullif($3, ''), $4, $5::jsonb, nullif($6, ''), $7, $8, nullif($9, '')) d
cross join lateral (select (d.link).*) l`

// DeclareLink makes a link, or finds that it exists with the same settings. Two
// links are the same when their channels and their matches are. Another
// RewriteKey or Enabled than it has is refused as link_conflict.
//
// A link that would lead back to its source is refused as link_cycle, one that
// would lead from a standard queue, or from dead letters, to a FIFO queue as
// order_lost; the message names the way. Links that are disabled count.
func (b *Broker) DeclareLink(ctx context.Context, actor string, spec LinkSpec) (Link, bool, error) {
	leave, err := b.enter()
	if err != nil {
		return Link{}, false, err
	}
	defer leave()
	return b.declareLink(ctx, b.cfg.Pool, actor, spec)
}

// DeclareLinkTx is DeclareLink in a transaction. Until it ends no other link can
// be changed.
func (b *Broker) DeclareLinkTx(ctx context.Context, tx pgx.Tx, actor string, spec LinkSpec) (Link, bool, error) {
	return b.declareLink(ctx, tx, actor, spec)
}

func (b *Broker) declareLink(ctx context.Context, db querier, actor string, spec LinkSpec) (l Link, created bool, err error) {
	if err := b.checkLink(actor, spec); err != nil {
		return Link{}, false, err
	}
	m := spec.Match
	err = queryRow(ctx, db, declareLinkSQL,
		[]any{spec.Source, spec.Target, m.Type, m.Pattern, m.Headers, m.Mode, spec.RewriteKey, spec.Enabled, actor},
		append(linkFields(&l), &created)...)
	return l, created, err
}

// checkLink checks what the database could not even take; the rest is for
// leat.check_rule, which knows the exchange.
func (b *Broker) checkLink(actor string, spec LinkSpec) error {
	var f faults
	f.label("actor", actor)
	f.name("source", spec.Source)
	f.name("target", spec.Target)
	f.text(-1, "match.type", spec.Match.Type, maxLabel)
	f.text(-1, "match.mode", spec.Match.Mode, maxLabel)
	if spec.Match.Pattern != nil {
		f.key(-1, "match.pattern", *spec.Match.Pattern)
	}
	if spec.RewriteKey != nil {
		f.key(-1, "rewriteKey", *spec.RewriteKey)
	}
	switch err := checkHeaders(spec.Match.Headers); {
	case len(spec.Match.Headers) > b.cfg.Limits.Headers:
		f.add(eventstore.HeadersTooLarge, -1, "match.headers", "is larger than %d bytes", b.cfg.Limits.Headers)
	case err != nil:
		f.invalid(-1, "match.headers", "%v", err)
	}
	return f.err()
}

const alterLinkSQL = `-- commands.alterLink
select ` + linkColumns + `
from leat.alter_link($1, $2::jsonb, nullif($3, '')) l`

// AlterLink enables or disables a link, or changes the key that it gives.
func (b *Broker) AlterLink(ctx context.Context, actor string, id eventstore.LinkID, patch LinkPatch) (Link, error) {
	leave, err := b.enter()
	if err != nil {
		return Link{}, err
	}
	defer leave()
	return b.alterLink(ctx, b.cfg.Pool, actor, id, patch)
}

// AlterLinkTx is AlterLink in a transaction.
func (b *Broker) AlterLinkTx(ctx context.Context, tx pgx.Tx, actor string, id eventstore.LinkID, patch LinkPatch) (Link, error) {
	return b.alterLink(ctx, tx, actor, id, patch)
}

func (b *Broker) alterLink(ctx context.Context, db querier, actor string, id eventstore.LinkID, patch LinkPatch) (l Link, err error) {
	var f faults
	f.label("actor", actor)
	if patch.RewriteKey != nil {
		f.key(-1, "rewriteKey", *patch.RewriteKey)
		if patch.KeepKey {
			f.invalid(-1, "rewriteKey", "cannot be set and taken away at once")
		}
	}
	if err := f.err(); err != nil {
		return Link{}, err
	}
	columns, err := patch.columns()
	if err != nil {
		return Link{}, err
	}
	err = queryRow(ctx, db, alterLinkSQL, []any{id, columns, actor}, linkFields(&l)...)
	return l, err
}

// columns is the patch as leat.alter_link takes it.
func (p LinkPatch) columns() (string, error) {
	set := map[string]any{}
	put(set, "rewrite_key", p.RewriteKey, same)
	put(set, "enabled", p.Enabled, same)
	if p.KeepKey {
		set["rewrite_key"] = nil
	}
	text, err := json.Marshal(set)
	return string(text), err
}

const deleteLinkSQL = `-- commands.deleteLink
select leat.delete_link($1, nullif($2, ''))`

// DeleteLink ends a link; what went along it stays where it is.
func (b *Broker) DeleteLink(ctx context.Context, actor string, id eventstore.LinkID) error {
	leave, err := b.enter()
	if err != nil {
		return err
	}
	defer leave()
	return b.deleteLink(ctx, b.cfg.Pool, actor, id)
}

// DeleteLinkTx is DeleteLink in a transaction.
func (b *Broker) DeleteLinkTx(ctx context.Context, tx pgx.Tx, actor string, id eventstore.LinkID) error {
	return b.deleteLink(ctx, tx, actor, id)
}

func (b *Broker) deleteLink(ctx context.Context, db querier, actor string, id eventstore.LinkID) error {
	var f faults
	f.label("actor", actor)
	if err := f.err(); err != nil {
		return err
	}
	return queryRow(ctx, db, deleteLinkSQL, []any{id, actor})
}
