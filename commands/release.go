package commands

import (
	"context"
	"time"

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
		return b.releaseSettlement(ctx, db, s, ready)
	})
}

func (b *Broker) releaseSettlement(
	ctx context.Context, db querier, s settlement, ready func(...eventstore.ChannelID),
) (SettleResult, error) {
	deliveries, messages := columns(s.receipts)
	result, err := s.run(ctx, db, []string{fateReleased}, releaseSQL, s.channel.id, deliveries, messages, s.actor)
	if err == nil && result.Settled > 0 {
		ready(s.channel.id)
	}
	return result, err
}

// Bounds of giving back.
const (
	giveBackWithin = 5 * time.Second
	giveBackEvery  = 100 * time.Millisecond
)

// giveBack releases messages whose consumer went away, and for a while tries
// again.
func (b *Broker) giveBack(ch channel, consumer string, receipts []eventstore.Receipt) {
	if len(receipts) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), giveBackWithin)
	defer cancel()
	for {
		_, err := releaseMany(ctx, b.cfg.Pool, ch.id, receipts, consumer)
		if err == nil {
			b.ready(ch.id)
			return
		}
		if isGone(err) {
			return
		}
		wait := time.NewTimer(giveBackEvery)
		select {
		case <-wait.C:
			if passes(err) {
				continue
			}
		case <-ctx.Done():
			wait.Stop()
		}
		b.cfg.Logger.Warn("release messages of a consumer that went away: they come back when their lease ends",
			"queue", ch.name, "messages", len(receipts), "error", err)
		return
	}
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
