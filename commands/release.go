package commands

import (
	"context"

	"github.com/jackc/pgx/v5"

	"leat/eventstore"
)

const releaseSQL = `-- commands.release
select a.statuses, (select s.last_value from leat.position_seq s)
from leat.release_many($1, $2, $3, nullif($4, '')) a (statuses)`

// Release gives messages back unharmed, for a consumer that goes away: they are
// deliverable at once, and the attempt is not counted.
func (b *Broker) Release(ctx context.Context, req SettleRequest) (SettleResult, error) {
	leave, err := b.enter()
	if err != nil {
		return SettleResult{}, err
	}
	defer leave()
	return b.release(ctx, b.cfg.Pool, req, b.ready)
}

// ReleaseTx is Release in a transaction.
func (b *Broker) ReleaseTx(ctx context.Context, tx pgx.Tx, req SettleRequest) (SettleResult, error) {
	return b.release(ctx, tx, req, afterCommit)
}

func (b *Broker) release(
	ctx context.Context, db querier, req SettleRequest, ready func(...eventstore.ChannelID),
) (SettleResult, error) {
	return b.oneQueue(ctx, db, req, func(s settlement) (SettleResult, error) {
		deliveries, messages := columns(s.receipts)
		result, err := s.run(ctx, db, []string{fateReleased}, releaseSQL, s.channel.id, deliveries, messages, s.actor)
		if err == nil && result.Settled > 0 {
			ready(s.channel.id)
		}
		return result, err
	})
}

// releaseMany gives back what was claimed for nobody.
func releaseMany(
	ctx context.Context, db querier, queue eventstore.ChannelID, receipts []eventstore.Receipt, actor string,
) ([]status, error) {
	deliveries, messages := columns(receipts)
	var (
		statuses []status
		position eventstore.Position
	)
	err := queryRow(ctx, db, releaseSQL, []any{queue, deliveries, messages, actor}, &statuses, &position)
	return statuses, err
}
