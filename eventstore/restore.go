package eventstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Publishers to streams wait while a restore is taken note of.
const restoreLockTimeout = `set local lock_timeout = '5s'`

const noticeRestoreSQL = `-- eventstore.noticeRestore
select coalesce(n.data ->> 'epoch', '0')::bigint, coalesce((n.data #>> '{from,cluster}') <> (n.data #>> '{to,cluster}'), false)
from leat.notice_restore($1) n (data)`

// NoticeRestore notices that the database is another one than before: a dump that
// was restored, a copy, or an earlier state of it. Then it says so in the log, and each
// stream has another epoch from where it ends on. Call it before the first request,
// with starting; it runs on in Run.
func (s *Store) NoticeRestore(ctx context.Context, starting bool) error {
	var (
		epoch   Position
		cluster bool
	)
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, restoreLockTimeout); err != nil {
			return err
		}
		return tx.QueryRow(ctx, noticeRestoreSQL, starting).Scan(&epoch, &cluster)
	})
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == "42501" {
		if starting {
			s.logger().Warn("the broker's role may not see which database this is: nobody will notice when it is restored from a dump", "error", err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("notice a restore: %w", FromPg(err))
	}
	if epoch != 0 {
		s.logger().Warn("this database was restored from a copy: what came after the copy is not in it. Streams have a new epoch: "+
			"readers that were ahead of where they end are refused as epoch_changed, all others go on", "epoch", epoch, "otherCluster", cluster)
	}
	return nil
}
