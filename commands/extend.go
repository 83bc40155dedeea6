package commands

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"leat/eventstore"
)

// ExtendRequest asks for more time.
type ExtendRequest struct {
	SettleRequest
	Lease time.Duration // from now on; 0: the queue's lease
}

const extendSQL = `-- commands.extend
select e.statuses, e.lease_until, extract(epoch from e.lease_until - clock_timestamp())::float8,
    (select s.last_value from leat.position_seq s)
from leat.extend_many($1, $2, $3,
    coalesce($4, (select c.lease from leat.channels c where c.id = $1)), nullif($5, '')) e`

// Extend moves the end of leases, also nearer, and answers the new end. Settled
// counts the receipts that were extended.
func (b *Broker) Extend(ctx context.Context, req ExtendRequest) (SettleResult, time.Time, error) {
	leave, err := b.enter()
	if err != nil {
		return SettleResult{}, time.Time{}, err
	}
	defer leave()
	return b.extend(ctx, b.cfg.Pool, req)
}

// ExtendTx is Extend in a transaction.
func (b *Broker) ExtendTx(ctx context.Context, tx pgx.Tx, req ExtendRequest) (SettleResult, time.Time, error) {
	return b.extend(ctx, tx, req)
}

func (b *Broker) extend(ctx context.Context, db querier, req ExtendRequest) (result SettleResult, until time.Time, err error) {
	lease, err := b.checkLease(req.Lease)
	if err != nil {
		return SettleResult{}, time.Time{}, err
	}
	result, err = b.oneQueue(ctx, db, req.SettleRequest, func(s settlement) (result SettleResult, err error) {
		result, until, _, err = b.extendSettlement(ctx, db, s, lease)
		return result, err
	})
	return result, until, err
}

// checkLease is null for 0.
func (b *Broker) checkLease(lease time.Duration) (pgtype.Interval, error) {
	if lease == 0 {
		return pgtype.Interval{}, nil
	}
	var f faults
	f.between(-1, "lease", lease, b.cfg.Limits.LeaseMin, b.cfg.Limits.LeaseMax)
	return span(lease), f.err()
}

// extendSettlement answers the new end also as the time that is left, which needs
// no clock.
func (b *Broker) extendSettlement(
	ctx context.Context, db querier, s settlement, lease pgtype.Interval,
) (result SettleResult, until time.Time, left time.Duration, err error) {
	deliveries, messages := columns(s.receipts)
	var (
		statuses []status
		seconds  float64
		position eventstore.Position
	)
	args := []any{s.channel.id, deliveries, messages, lease, s.actor}
	if err := queryRow(ctx, db, extendSQL, args, &statuses, &until, &seconds, &position); err != nil {
		return SettleResult{}, time.Time{}, 0, err
	}
	result, err = s.result(ctx, db, statuses, position)
	return result, until, time.Duration(seconds * float64(time.Second)), err
}
