package async

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"leat/eventstore"
)

// published are messages of one channel that were published at one time, which is
// usually in one call.
type published struct {
	Channel eventstore.ChannelID
	At      time.Time
	Start   time.Time // when they may be delivered
	Count   int64
	IDs     []int64 // where they may be delivered: in a queue
}

const publishedSQL = `-- async.published
select coalesce(e.channel_id, 0),
       e.at,
       greatest(e.at, e.due_at),
       count(*),
       case when c.kind = 'queue' then array_agg(e.position) end
from leat.events e
left join leat.channels c on c.id = e.channel_id
where e.position > $1
  and e.position <= $2
  and e.kind = 'message.published'
group by e.channel_id, e.at, e.due_at, c.kind`

// happened is any other event of messages, or the end of a channel.
type happened struct {
	Position eventstore.Position
	At       time.Time
	Start    time.Time // of copies
	Kind     eventstore.Kind
	Channel  eventstore.ChannelID
	Queue    bool // not a stream
	Leaves   bool // a dead letter, for another channel
	IDs      []int64
	Lows     []int64 // and ranges of them
	Highs    []int64
}

const happenedSQL = `-- async.happened
select e.position,
       e.at,
       greatest(e.at, e.due_at),
       e.kind::text,
       coalesce(e.channel_id, 0),
       e.stream_offset is null,
       coalesce(e.data ? 'to', false),
       e.message_ids,
       case when e.message_ranges is not null then array(select lower(r) from unnest(e.message_ranges) r) end,
       case when e.message_ranges is not null then array(select upper(r) - 1 from unnest(e.message_ranges) r) end
from leat.events e
where e.position > $1
  and e.position <= $2
  and e.kind in ('message.copied', 'message.delivered', 'message.acked', 'message.retried', 'message.lease_expired',
                 'message.released', 'message.dead_lettered', 'message.recovered', 'message.expired', 'message.purged',
                 'message.discarded', 'channel.deleted')
order by e.position`

// readLog reads what a range of the log says of messages. A message is published before
// anything else happens to it, so all the publishes of a range may be taken first.
func readLog(ctx context.Context, tx pgx.Tx, r Range) (first []published, then []happened, err error) {
	queries := &pgx.Batch{}
	queries.Queue(publishedSQL, r.After, r.UpTo).Query(func(rows pgx.Rows) error {
		first, err = pgx.CollectRows(rows, pgx.RowToStructByPos[published])
		return err
	})
	queries.Queue(happenedSQL, r.After, r.UpTo).Query(func(rows pgx.Rows) error {
		then, err = pgx.CollectRows(rows, pgx.RowToStructByPos[happened])
		return err
	})
	return first, then, tx.SendBatch(ctx, queries).Close()
}

// count is how many messages it names.
func (h *happened) count() int64 {
	n := int64(len(h.IDs))
	for i := range h.Lows {
		n += h.Highs[i] - h.Lows[i] + 1
	}
	return n
}
