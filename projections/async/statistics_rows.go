package async

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"leat/eventstore"
)

const (
	loadMinutesSQL = `-- async.loadMinutes
select m.channel_id,
       extract(epoch from m.minute)::bigint / 60,
       m.first_delivery,
       m.ack
from unnest($2::integer[], $3::timestamptz[]) k (channel, minute)
join leat.channel_minutes m on m.generation = $1 and m.channel_id = k.channel and m.minute = k.minute`
	loadPendingSQL = `-- async.loadPending
select m.channel_id,
       m.block,
       m.data
from unnest($2::integer[], $3::bigint[]) k (channel, block)
join leat.pending_messages m on m.generation = $1 and m.channel_id = k.channel and m.block = k.block`
	loadSpanSQL = `-- async.loadSpan
select m.channel_id,
       m.block,
       m.data
from leat.pending_messages m
where m.generation = $1
  and m.channel_id = $2
  and m.block between $3 and $4`
)

// load reads the rows that the batch touches, as far as they are there.
func (f *fold) load(ctx context.Context, tx pgx.Tx, generation int) error {
	queries := &pgx.Batch{}
	channels, minutes := f.minuteKeys()
	queries.Queue(loadMinutesSQL, generation, channels, minutes).Query(f.loadMinutes)
	channels, blocks := f.blockKeys()
	if len(blocks) > 0 {
		queries.Queue(loadPendingSQL, generation, channels, blocks).Query(f.loadBlocks)
	}
	for _, s := range f.spans {
		queries.Queue(loadSpanSQL, generation, s.channel, s.low, s.high).Query(f.loadBlocks)
	}
	return tx.SendBatch(ctx, queries).Close()
}

func (f *fold) minuteKeys() (channels []eventstore.ChannelID, minutes []time.Time) {
	for key := range f.minutes {
		channels = append(channels, key.channel)
		minutes = append(minutes, key.time())
	}
	return channels, minutes
}

func (k minuteKey) time() time.Time { return time.Unix(k.minute*60, 0).UTC() }

func (f *fold) blockKeys() (channels []eventstore.ChannelID, blocks []int64) {
	for key := range f.pending {
		channels = append(channels, key.channel)
		blocks = append(blocks, key.block)
	}
	return channels, blocks
}

func (f *fold) loadMinutes(rows pgx.Rows) error {
	var (
		key   minuteKey
		first []byte
		ack   []byte
	)
	_, err := pgx.ForEachRow(rows, []any{&key.channel, &key.minute, &first, &ack}, func() error {
		m := f.minutes[key]
		if err := m.firstDelivery.load(first); err != nil {
			return err
		}
		return m.ack.load(ack)
	})
	return err
}

func (f *fold) loadBlocks(rows pgx.Rows) error {
	var (
		key  blockKey
		data []byte
	)
	_, err := pgx.ForEachRow(rows, []any{&key.channel, &key.block, &data}, func() error {
		b := &block{entries: map[int64]entry{}, stored: true}
		f.pending[key] = b
		return b.decode(key.block, data)
	})
	return err
}

const (
	saveMinutesSQL = `-- async.saveMinutes
insert into leat.channel_minutes as m (generation, channel_id, minute, published, copied, delivered, acked, retried,
    lease_expired, released, dead_lettered, recovered, expired, purged, discarded, first_delivery, ack)
select $1, u.*
from unnest($2::integer[], $3::timestamptz[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[],
    $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[],
    $16::bytea[], $17::bytea[]) u
on conflict (generation, channel_id, minute) do update
set published = m.published + excluded.published,
    copied = m.copied + excluded.copied,
    delivered = m.delivered + excluded.delivered,
    acked = m.acked + excluded.acked,
    retried = m.retried + excluded.retried,
    lease_expired = m.lease_expired + excluded.lease_expired,
    released = m.released + excluded.released,
    dead_lettered = m.dead_lettered + excluded.dead_lettered,
    recovered = m.recovered + excluded.recovered,
    expired = m.expired + excluded.expired,
    purged = m.purged + excluded.purged,
    discarded = m.discarded + excluded.discarded,
    first_delivery = excluded.first_delivery,
    ack = excluded.ack`
	savePendingSQL = `-- async.savePending
insert into leat.pending_messages (generation, channel_id, block, data)
select $1, u.*
from unnest($2::integer[], $3::bigint[], $4::bytea[]) u
on conflict (generation, channel_id, block) do update
set data = excluded.data`
	emptyPendingSQL = `-- async.emptyPending
delete from leat.pending_messages m
using unnest($2::integer[], $3::bigint[]) k (channel, block)
where m.generation = $1
  and m.channel_id = k.channel
  and m.block = k.block`
	deleteChannelSQL = `-- async.deleteChannel
delete from leat.pending_messages m
where m.generation = $1
  and m.channel_id = any ($2::integer[])`
)

// save writes the rows that have changed.
func (f *fold) save(ctx context.Context, tx pgx.Tx, generation int) error {
	queries := &pgx.Batch{}
	f.saveMinutes(queries, generation)
	f.savePending(queries, generation)
	if len(f.deleted) > 0 {
		queries.Queue(deleteChannelSQL, generation, f.deleted)
	}
	return tx.SendBatch(ctx, queries).Close()
}

func (f *fold) saveMinutes(queries *pgx.Batch, generation int) {
	var (
		channels []eventstore.ChannelID
		minutes  []time.Time
		counts   [counters][]int64
		first    [][]byte
		acks     [][]byte
	)
	for key, m := range f.minutes {
		channels = append(channels, key.channel)
		minutes = append(minutes, key.time())
		for c, n := range m.counts {
			counts[c] = append(counts[c], n)
		}
		first = append(first, m.firstDelivery.bytes())
		acks = append(acks, m.ack.bytes())
	}
	if len(channels) == 0 {
		return
	}
	args := []any{generation, channels, minutes}
	for _, column := range counts {
		args = append(args, column)
	}
	queries.Queue(saveMinutesSQL, append(args, first, acks)...)
}

func (f *fold) savePending(queries *pgx.Batch, generation int) {
	var channels, emptyChannels []eventstore.ChannelID
	var blocks, empty []int64
	var data [][]byte
	for key, b := range f.pending {
		switch {
		case !b.changed:
		case len(b.entries) > 0:
			channels, blocks = append(channels, key.channel), append(blocks, key.block)
			data = append(data, b.encode(key.block))
		case b.stored:
			emptyChannels, empty = append(emptyChannels, key.channel), append(empty, key.block)
		}
	}
	if len(blocks) > 0 {
		queries.Queue(savePendingSQL, generation, channels, blocks, data)
	}
	if len(empty) > 0 {
		queries.Queue(emptyPendingSQL, generation, emptyChannels, empty)
	}
}
