package async

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"leat/eventstore"
)

// applyAll applies a range, or all of it before the first event that the projection
// cannot take, whose error is failed. err is for what may pass: nothing of the range
// may be kept then.
func (r *runner) applyAll(ctx context.Context, tx pgx.Tx, all Range) (done eventstore.Position, failed, err error) {
	if all.After >= all.UpTo {
		return all.UpTo, nil, nil
	}
	// Everything up to lower is applied; what has failed ends at upper.
	lower, upper, next := all.After, all.UpTo, all.UpTo
	for {
		err := r.apply(ctx, tx, Range{Generation: all.Generation, After: lower, UpTo: next})
		switch {
		case err == nil && next == all.UpTo:
			return next, nil, nil
		case err == nil:
			lower = next
		case passing(ctx, tx, err):
			return 0, nil, err
		case next == lower+1:
			return lower, err, nil
		default:
			upper = next
		}
		if lower == upper { // it passed, alone
			upper = all.UpTo
			next = upper
			continue
		}
		next = lower + max(1, (upper-lower)/2)
	}
}

// apply applies a range in a savepoint: an error leaves nothing behind, and the
// transaction usable.
func (r *runner) apply(ctx context.Context, tx pgx.Tx, part Range) error {
	savepoint, err := tx.Begin(ctx)
	if err != nil {
		return err
	}
	if err := r.guarded(ctx, savepoint, part); err != nil {
		return errors.Join(err, savepoint.Rollback(ctx))
	}
	return savepoint.Commit(ctx)
}

// guarded makes an error of a panic, of which the router would make a nack.
func (r *runner) guarded(ctx context.Context, tx pgx.Tx, part Range) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v", cause)
		}
	}()
	return r.projection.Apply(ctx, tx, part)
}

// passing says whether an error is about the database, or about us, and not about
// the events: the batch is tried again by itself then.
func passing(ctx context.Context, tx pgx.Tx, err error) bool {
	if ctx.Err() != nil || tx.Conn().IsClosed() || eventstore.Unreachable(err) {
		return true
	}
	refused, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return false
	}
	switch class := refused.Code[:min(2, len(refused.Code))]; class {
	case "25", "40", "53", "55", "57", "58": // state of the transaction, conflicts, resources, locks, operators, system
		return true
	case "42": // the schema is not, or no longer, that of this code
		return true
	default:
		return strings.HasPrefix(class, "08")
	}
}
