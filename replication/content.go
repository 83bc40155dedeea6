package replication

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Origins of copies are read as a range if of so many positions one is wanted.
const denseFactor = 4

// What contentSQL and denseSQL have in common: the origins e of copies u, whose headers
// lie over those of the origin, as far as the bytes allow.
const (
	contentHead = `
select q.n,
       q.content_type,
       q.headers,
       q.payload
from (
    select u.n,
           e.content_type,
           case when u.overlay is null then e.headers else coalesce(e.headers, '{}') || u.overlay::jsonb end as headers,
           e.payload,
           sum(octet_length(e.payload)) over (order by u.n rows between unbounded preceding and 1 preceding) as before
    from unnest($1::bigint[], $2::text[]) with ordinality u (origin, overlay, n)`
	contentTail = `
) q
where coalesce(q.before, 0) < $3
order by q.n`
)

// contentSQL finds the content of origins, each by the primary key.
const contentSQL = `-- replication.content` + contentHead + `
    cross join lateral (
        select e.content_type,
               e.headers,
               e.payload
        from leat.events e
        where e.position = u.origin
        limit 1
    ) e` + contentTail

// denseSQL is contentSQL for origins that lie close together, as those of one publish
// do: it reads them as a range.
//
//	Hash Join
//	  Hash Cond: (u.origin = e."position")
//	  ->  Function Scan on u
//	  ->  Hash
//	        ->  Append
//	              ->  Index Scan using events_1_pkey on events_1
//	                    Index Cond: (("position" >= $4) AND ("position" <= $5))
//
// It is planned each time: the numbers rule the other partitions out. The headers are
// cast one by one: a cast of the array is done by the planner, which took it a second
// for 10,000.
const denseSQL = `-- replication.dense` + contentHead + `
    join leat.events e on e.position = u.origin
    where e.position >= $4
      and e.position <= $5` + contentTail

// fetchContent completes the copies of a page, or as many as the bytes allow; the
// page ends before the first one that it does not.
func (b *builder) fetchContent(ctx context.Context, conn *pgx.Conn) error {
	origins := make([]int64, len(b.copies))
	overlays := make([]*string, len(b.copies))
	for i, c := range b.copies {
		origins[i], overlays[i] = int64(b.page.messages[c.index].OriginMessageID), c.overlay
	}
	sql, args := contentSQL, []any{origins, overlays, b.bytes}
	if low, high := slices.Min(origins), slices.Max(origins); high-low < denseFactor*int64(len(origins)) {
		sql, args = denseSQL, []any{pgx.QueryExecModeCacheDescribe, origins, overlays, b.bytes, low, high}
	}
	rows, err := conn.Query(ctx, sql, args...)
	if err != nil {
		return err
	}
	var (
		n, done     int
		contentType pgtype.DriverBytes
		headers     []byte
		payload     pgtype.DriverBytes
	)
	_, err = pgx.ForEachRow(rows, []any{&n, &contentType, &headers, &payload}, func() error {
		if n != done+1 {
			return nil // the one before has no content, and the page ends there
		}
		m := b.page.messages[b.copies[done].index]
		m.ContentType = b.texts.contentType(contentType)
		m.Headers = headers
		m.Payload = append(make([]byte, 0, len(payload)), payload...)
		b.page.bytes += m.Size()
		done++
		return nil
	})
	if err != nil {
		return err
	}
	if done < len(b.copies) {
		b.cutAt(b.copies[done].index)
	}
	return nil
}
