package async

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Failures counts which keys of a channel fail, and why.
type Failures struct{}

// Name is "failures".
func (Failures) Name() string { return "failures" }

// Version is that of its code.
func (Failures) Version() int { return 1 }

// A nack that is the last one is a message.dead_lettered alone; a lease that ends for the
// last time is a message.lease_expired too. What a circuit sends after its first message
// has not failed. The routing key is that of the publish, or of the copy, which lies
// just behind the id.
const failuresSQL = `-- async.failures
insert into leat.failing_keys as k (generation, channel_id, routing_key, reason, failures, dead, first_at, last_at, last_message)
select $1,
       f.channel_id,
       coalesce(
           (
               select coalesce(p.routing_key, '')
               from leat.events p
               where p.position = f.id
                 and p.kind = 'message.published'
           ),
           (
               select coalesce(c.routing_key, c.data -> 'keys' ->> (array_position(c.message_ids, f.id) - 1), '')
               from leat.events c
               where c.channel_id = f.channel_id
                 and c.position > f.id
                 and c.position < f.position
                 and c.message_ids is not null
                 and c.kind = 'message.copied'
                 and c.message_ids @> array[f.id]
               order by c.position
               limit 1
           ),
           '') as routing_key,
       f.reason,
       count(*) filter (where f.failed),
       count(*) filter (where f.dead),
       min(f.at),
       max(f.at),
       max(f.id)
from (
    select e.position,
           e.channel_id,
           e.at,
           i.id,
           e.kind = 'message.dead_lettered' as dead,
           e.kind <> 'message.dead_lettered' or (e.actor is distinct from 'leat' and e.data ->> 'reason' <> 'expired') as failed,
           left(coalesce(
               nullif(e.data ->> 'errorClass', ''),
               nullif(e.data ->> 'detail', ''),
               case
                   when e.kind = 'message.retried' then 'retried'
                   when e.kind = 'message.lease_expired' or (e.actor = 'leat' and e.data ->> 'reason' = 'retries_exhausted') then 'lease_expired'
                   else e.data ->> 'reason'
               end,
               ''), 200) as reason
    from leat.events e
    cross join lateral unnest(e.message_ids) i (id)
    where e.position > $2
      and e.position <= $3
      and (e.kind in ('message.retried', 'message.lease_expired')
           or (e.kind = 'message.dead_lettered' and e.data ->> 'reason' <> 'circuit_open'))
) f
group by f.channel_id, routing_key, f.reason
on conflict (generation, channel_id, routing_key, reason) do update
set failures = k.failures + excluded.failures,
    dead = k.dead + excluded.dead,
    first_at = least(k.first_at, excluded.first_at),
    last_at = greatest(k.last_at, excluded.last_at),
    last_message = greatest(k.last_message, excluded.last_message)`

// Apply does it in one statement.
func (Failures) Apply(ctx context.Context, tx pgx.Tx, r Range) error {
	_, err := tx.Exec(ctx, failuresSQL, r.Generation, r.After, r.UpTo)
	return err
}

const dropFailuresSQL = `-- async.dropFailures
delete from leat.failing_keys m
where m.ctid = any (array(
    select x.ctid
    from leat.failing_keys x
    where x.generation = $1
    limit 10000))`

// Drop removes rows of a generation.
func (Failures) Drop(ctx context.Context, tx pgx.Tx, generation int) (int64, error) {
	return dropFrom(ctx, tx, generation, dropFailuresSQL)
}
