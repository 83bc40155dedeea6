package commands

import (
	"context"

	"github.com/jackc/pgx/v5"
)

const purgeSQL = `-- commands.purge
select leat.purge_queue($1, nullif($2, ''))`

// Purge removes what waits in a queue, ready and delayed, and answers how many
// messages that were. What is in flight or dead stays.
func (b *Broker) Purge(ctx context.Context, queue, actor string) (int64, error) {
	leave, err := b.enter()
	if err != nil {
		return 0, err
	}
	defer leave()
	purged, err := b.purge(ctx, b.cfg.Pool, queue, actor)
	if isGone(err) {
		b.channels.forget(queue)
		purged, err = b.purge(ctx, b.cfg.Pool, queue, actor)
	}
	return purged, err
}

// PurgeTx is Purge in a transaction.
func (b *Broker) PurgeTx(ctx context.Context, tx pgx.Tx, queue, actor string) (int64, error) {
	return b.purge(ctx, tx, queue, actor)
}

func (b *Broker) purge(ctx context.Context, db querier, queue, actor string) (purged int64, err error) {
	var f faults
	f.label("actor", actor)
	if err := f.err(); err != nil {
		return 0, err
	}
	ch, err := b.channels.findQueue(ctx, db, queue)
	if err != nil {
		return 0, err
	}
	err = queryRow(ctx, db, purgeSQL, []any{ch.id, actor}, &purged)
	return purged, err
}
