package queries

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"leat/eventstore"
)

const streamIDSQL = `-- queries.streamID
select f.channel_id
from leat.find_stream($1, false) f`

// Points of a stream, or one of them. The oldest message that was not committed
// is that at the least position; of a batch of copies, the row begins below it.
const pointsSQL = `-- queries.Points
select c.name,
       p.name,
       leat.epoch_of(c.id, c.epoch),
       p.created_at,
       n.end_offset,
       o.nexts,
       o.committed,
       o.holders,
       m.members,
       m.brokers,
       coalesce(clock_timestamp() - e.at, interval '0')
from leat.channels c
join leat.points p on p.channel_id = c.id
cross join lateral (select leat.stream_end(c.id) as end_offset) n
cross join lateral (
    select array_agg(o.next_offset order by o.partition) as nexts,
           array_agg(o.committed_at order by o.partition) as committed,
           array_agg(coalesce(l.member, '') order by o.partition) as holders,
           min(o.next_offset) as least
    from leat.point_positions o
    left join leat.point_holders h using (channel_id, name, partition)
    left join leat.point_members l
        on l.channel_id = h.channel_id and l.name = h.name and l.member = h.member and l.until > statement_timestamp()
    where o.channel_id = c.id and o.name = p.name
) o
cross join lateral (
    select coalesce(array_agg(m.member order by m.member), '{}') as members,
           coalesce(array_agg(m.broker order by m.member), '{}') as brokers
    from leat.point_members m
    where m.channel_id = c.id and m.name = p.name and m.until > statement_timestamp()
) m
left join lateral (
    select e.at from leat.events e
    where e.channel_id = c.id and e.stream_offset <= o.least
    order by e.stream_offset desc
    limit 1
) e on o.least < n.end_offset
where c.id = $1
  and ($2::text is null or p.name = $2)
order by p.name`

// Points lists the replication points of a stream by name, with who reads with
// them now.
func (q *Queries) Points(ctx context.Context, stream string) ([]eventstore.Point, error) {
	points, err := q.points(ctx, stream, nil)
	return points, wrap(err, "list points of %q", stream)
}

// Point looks at one point of a stream.
func (q *Queries) Point(ctx context.Context, stream, name string) (eventstore.Point, error) {
	missing := eventstore.NewError(eventstore.PointNotFound, "Stream %q has no point %.300q.", stream, name)
	if checkText("point", name) != nil {
		return eventstore.Point{}, missing
	}
	points, err := q.points(ctx, stream, &name)
	if err == nil && len(points) == 0 {
		err = missing
	}
	if err != nil {
		return eventstore.Point{}, wrap(err, "look at point %q of %q", name, stream)
	}
	return points[0], nil
}

func (q *Queries) points(ctx context.Context, stream string, name *string) ([]eventstore.Point, error) {
	missing := eventstore.NewError(eventstore.ChannelNotFound, "There is no stream %.300q.", stream)
	if checkText("stream", stream) != nil {
		return nil, missing
	}
	rows, err := q.pool.Query(ctx, streamIDSQL, stream)
	if err != nil {
		return nil, err
	}
	id, err := one(rows, pgx.RowTo[eventstore.ChannelID], missing)
	if err != nil {
		return nil, err
	}
	return collect(ctx, q.pool, scanPoint, pointsSQL, id, name)
}

func scanPoint(row pgx.CollectableRow) (p eventstore.Point, err error) {
	var (
		nexts     []eventstore.Offset
		committed []time.Time
		holders   []string
		members   []string
		brokers   []string
	)
	err = row.Scan(&p.Stream, &p.Name, &p.Next.Epoch, &p.CreatedAt, &p.End, &nexts, &committed, &holders, &members, &brokers, &p.Age)
	if err != nil {
		return p, err
	}
	p.Next.Offset = p.End
	for i, next := range nexts {
		p.Partitions = append(p.Partitions, eventstore.PointPartition{
			Partition: i, Next: next, CommittedAt: committed[i], Member: holders[i],
		})
		p.Next.Offset = min(p.Next.Offset, next)
	}
	p.Lag = int64(p.End - p.Next.Offset)
	p.Age = max(p.Age, 0)
	for i, member := range members {
		p.Members = append(p.Members, eventstore.PointMember{Name: member, Broker: brokers[i]})
	}
	return p, nil
}
