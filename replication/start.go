package replication

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"leat/eventstore"
)

// A subscriber that saw a message early may come back before its commit shows.
const (
	aheadTries = 5
	aheadPause = 50 * time.Millisecond
)

const findStartSQL = `-- replication.findStart
select f.channel_id,
       f.epoch,
       f.first_offset,
       f.end_offset,
       f.next_offset
from leat.find_start($1, $2, $3, $4, nullif($5::bigint, 0), false) f`

// findStart finds a stream, and the offset of a start in it.
func (h *Hub) findStart(
	ctx context.Context, stream string, start eventstore.Start,
) (found streamState, next eventstore.Offset, err error) {
	args, err := startArgs(start)
	if err != nil {
		return found, 0, err
	}
	found.name = stream
	err = tryAhead(ctx, func() error {
		rows, err := h.config.Pool.Query(ctx, findStartSQL, append([]any{stream}, args...)...)
		if err != nil {
			return err
		}
		_, err = pgx.ForEachRow(rows, []any{&found.channel, &found.epoch, &found.first, &found.end, &next}, func() error { return nil })
		return err
	})
	return found, next, err
}

// tryAhead tries again for a moment what is refused for being ahead.
func tryAhead(ctx context.Context, try func() error) (err error) {
	for range aheadTries {
		err = eventstore.FromPg(try())
		if !isAhead(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(aheadPause):
		}
	}
	return err
}

func isAhead(err error) bool { return errors.Is(err, &eventstore.Error{Code: eventstore.OffsetAhead}) }
