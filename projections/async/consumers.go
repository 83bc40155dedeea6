package async

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Consumers keeps when each consumer was last seen in a channel, and what it did there.
type Consumers struct{}

// Name is "consumers".
func (Consumers) Name() string { return "consumers" }

// Version is that of its code.
func (Consumers) Version() int { return 1 }

// What the broker buries by itself, when a lease or a time to live ends, is not the
// doing of a consumer, nor is what a circuit sends after its first.
const consumersSQL = `-- async.consumers
insert into leat.consumer_activity as c (generation, channel_id, consumer, first_seen, last_seen, delivered, acked, failed, released)
select $1,
       e.channel_id,
       left(coalesce(e.actor, ''), 200),
       min(e.at),
       max(e.at),
       coalesce(sum(cardinality(e.message_ids)) filter (where e.kind = 'message.delivered'), 0),
       coalesce(sum(cardinality(e.message_ids)) filter (where e.kind = 'message.acked'), 0),
       coalesce(sum(cardinality(e.message_ids)) filter (where e.kind in ('message.retried', 'message.dead_lettered')), 0),
       coalesce(sum(cardinality(e.message_ids)) filter (where e.kind = 'message.released'), 0)
from leat.events e
where e.position > $2
  and e.position <= $3
  and (e.kind in ('message.delivered', 'message.extended', 'message.acked', 'message.retried', 'message.released', 'message.discarded')
       or (e.kind = 'message.dead_lettered' and e.data ->> 'reason' <> 'circuit_open' and e.actor is distinct from 'leat'))
group by e.channel_id, left(coalesce(e.actor, ''), 200)
on conflict (generation, channel_id, consumer) do update
set first_seen = least(c.first_seen, excluded.first_seen),
    last_seen = greatest(c.last_seen, excluded.last_seen),
    delivered = c.delivered + excluded.delivered,
    acked = c.acked + excluded.acked,
    failed = c.failed + excluded.failed,
    released = c.released + excluded.released`

// Apply does it in one statement.
func (Consumers) Apply(ctx context.Context, tx pgx.Tx, r Range) error {
	_, err := tx.Exec(ctx, consumersSQL, r.Generation, r.After, r.UpTo)
	return err
}

const dropConsumersSQL = `-- async.dropConsumers
delete from leat.consumer_activity m
where m.ctid = any (array(
    select x.ctid
    from leat.consumer_activity x
    where x.generation = $1
    limit 10000))`

// Drop removes rows of a generation.
func (Consumers) Drop(ctx context.Context, tx pgx.Tx, generation int) (int64, error) {
	return dropFrom(ctx, tx, generation, dropConsumersSQL)
}
