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

// started is where a subscription begins.
type started struct {
	stream streamState
	next   eventstore.Offset
}

// findStart finds a stream, and the offset of a start in it.
func (h *Hub) findStart(ctx context.Context, stream string, start eventstore.Start) (found started, err error) {
	for range aheadTries {
		found, err = h.findStartOnce(ctx, stream, start)
		if !errors.Is(err, &eventstore.Error{Code: eventstore.OffsetAhead}) {
			break
		}
		select {
		case <-ctx.Done():
			return found, ctx.Err()
		case <-time.After(aheadPause):
		}
	}
	return found, err
}

func (h *Hub) findStartOnce(ctx context.Context, stream string, start eventstore.Start) (found started, err error) {
	kind, at := startKind(start)
	rows, err := h.config.Pool.Query(ctx, findStartSQL, stream, kind, start.Offset, at, start.Epoch)
	if err != nil {
		return found, eventstore.FromPg(err)
	}
	found, err = pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (s started, err error) {
		s.stream.name = stream
		err = row.Scan(&s.stream.channel, &s.stream.epoch, &s.stream.first, &s.stream.end, &s.next)
		return s, err
	})
	return found, eventstore.FromPg(err)
}

// startKind is the kind of a start in words of leat.find_start, and its time.
func startKind(start eventstore.Start) (kind string, at *time.Time) {
	switch start.Kind {
	case eventstore.StartEarliest:
		return "earliest", nil
	case eventstore.StartOffset:
		return "offset", nil
	case eventstore.StartTime:
		return "time", &start.Time
	default:
		return "latest", nil
	}
}
