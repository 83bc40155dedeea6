package replication

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"leat/eventstore"
)

// streamState is what the table says of a stream.
type streamState struct {
	channel   eventstore.ChannelID
	name      string
	kind      string
	epoch     eventstore.Position
	deleted   bool
	first     eventstore.Offset
	end       eventstore.Offset
	successor eventstore.Position // the epoch of the stream that has the name now, 0 if there is none
	resume    eventstore.Offset   // the first offset of that one
	same      bool                // what was asked with it is there
}

// gone says why the stream cannot be read any more; nil if it can.
func (s *streamState) gone() *eventstore.Error {
	switch {
	case !s.deleted:
		return nil
	case s.successor == 0:
		return streamNotFound(s.name)
	default:
		return epochChanged(s.name, eventstore.StreamPosition{Epoch: s.successor, Offset: s.resume})
	}
}

func streamNotFound(name string) *eventstore.Error {
	return eventstore.NewError(eventstore.ChannelNotFound, "There is no stream %q.", name)
}

func epochChanged(name string, resume eventstore.StreamPosition) *eventstore.Error {
	e := eventstore.NewError(eventstore.EpochChanged,
		"The stream %q was deleted and declared again: its offsets are others.", name)
	e.Resume = &resume
	return e
}

func offsetGone(name string, n eventstore.Offset, resume eventstore.StreamPosition) *eventstore.Error {
	e := eventstore.NewError(eventstore.OffsetGone,
		"The stream %q keeps messages from offset %d on; %d was trimmed.", name, resume.Offset, n)
	e.Resume = &resume
	return e
}

const streamStatesSQL = `-- replication.streamStates
select c.id,
       c.name,
       c.kind,
       leat.epoch_of(c.id, c.epoch),
       c.deleted_at is not null,
       coalesce(s.first_offset, 0),
       coalesce(h.next_offset, 0),
       coalesce(leat.epoch_of(n.id, n.epoch), 0),
       coalesce(ns.first_offset, 0),
       u.position is null or exists (
           select
           from leat.events e
           where e.position = u.position
             and e.channel_id = u.id
             and e.stream_offset = u.row
             and e.at = u.at)
from unnest($1::integer[], $2::bigint[], $3::bigint[], $4::timestamptz[]) u (id, position, row, at)
join leat.channels c on c.id = u.id
left join leat.streams s on s.channel_id = c.id
left join lateral (
    select h.next_offset
    from leat.stream_heads h
    where h.channel_id = c.id
    order by h.next_offset desc
    limit 1
) h on true
left join leat.channels n on n.name = c.name and n.deleted_at is null and n.kind = 'stream' and c.deleted_at is not null
left join leat.streams ns on ns.channel_id = n.id`

// streamStates asks about streams by their ids, and whether the marks are there.
func streamStates(ctx context.Context, pool *pgxpool.Pool, channels []int32, marks []mark) ([]streamState, error) {
	var positions, rowsAt []*int64
	var times []*time.Time
	for _, m := range marks {
		if m.position == 0 {
			positions, rowsAt, times = append(positions, nil), append(rowsAt, nil), append(times, nil)
			continue
		}
		positions, rowsAt, times = append(positions, new(int64(m.position))), append(rowsAt, new(int64(m.row))), append(times, new(m.at))
	}
	rows, err := pool.Query(ctx, streamStatesSQL, channels, positions, rowsAt, times)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (s streamState, err error) {
		err = row.Scan(&s.channel, &s.name, &s.kind, &s.epoch, &s.deleted, &s.first, &s.end, &s.successor, &s.resume, &s.same)
		return s, err
	})
}

// streamByID asks about a stream again, and about a mark of it.
func streamByID(ctx context.Context, pool *pgxpool.Pool, name string, channel eventstore.ChannelID, of mark) (s streamState, err error) {
	states, err := streamStates(ctx, pool, []int32{int32(channel)}, []mark{of})
	switch {
	case err != nil:
		return s, err
	case len(states) == 0:
		return s, streamNotFound(name)
	}
	s = states[0]
	if gone := s.gone(); gone != nil {
		return s, gone
	}
	if s.kind != "stream" {
		return s, eventstore.NewError(eventstore.ChannelNotFound, "%q is no stream, but of kind %s.", name, s.kind)
	}
	return s, nil
}
