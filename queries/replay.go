package queries

import (
	"context"
	"math"
	"slices"

	"leat/eventstore"
)

// Replay reads the log in its order, or backwards, piece by piece.
type Replay struct {
	queries  *Queries
	filter   EventsFilter
	channels []eventstore.ChannelID
	left     int        // events that it may still give
	all      reach      // what is still to be looked at
	window   reach      // what a filter looks at in one go
	rows     int        // to ask for next
	most     int        // what the next chunk may weigh
	message  *beginning // that of the filter
	named    cursor     // the last event of it that was seen
	row      eventRow   // into which all rows are read
}

// reach is from low to high, both inclusive.
type reach struct{ low, high eventstore.Position }

func (r reach) empty() bool { return r.low > r.high }

// Replay begins to read the log, up to the position that is settled now.
func (q *Queries) Replay(ctx context.Context, f EventsFilter) (*Replay, error) {
	after, err := f.check()
	if err != nil {
		return nil, err
	}
	r := &Replay{queries: q, filter: f, left: f.Limit, rows: chunkFirst, most: chunkMost, window: reach{1, 0}}
	if f.Limit == 0 {
		r.left = math.MaxInt
	}
	if r.all, err = q.span(ctx, &f, after); err != nil {
		return nil, wrap(err, "read the log")
	}
	if r.channels, err = q.channelsNamed(ctx, f.Channel); err != nil {
		return nil, wrap(err, "read the log")
	}
	return r, nil
}

// Done reports whether all was read, up to where the log was settled or up to the
// limit.
func (r *Replay) Done() bool { return r.all.empty() || r.left <= 0 }

// Complete reports whether nothing of the choice is to come, however the log grows.
func (r *Replay) Complete() bool {
	return r.left <= 0 || r.filter.Backwards || (r.filter.To > 0 && r.all.low > r.filter.To)
}

// Settled is how far it reads for now.
func (r *Replay) Settled() eventstore.Position { return r.all.high }

// Extend lets it read on up to a position that is settled by now.
func (r *Replay) Extend(ctx context.Context, settled eventstore.Position) (err error) {
	r.all.high = max(r.all.high, settled)
	if r.filter.To > 0 {
		r.all.high = min(r.all.high, r.filter.To)
	}
	// The name may have gone to another channel.
	r.channels, err = r.queries.channelsNamed(ctx, r.filter.Channel)
	return wrap(err, "read the log")
}

// Next reads on, and calls visit with each event, which is valid until visit
// returns. It may be none: what it looks at is bounded.
func (r *Replay) Next(ctx context.Context, visit func(*Event)) (err error) {
	switch low := r.all.low; {
	case r.Done():
	case r.filter.MessageID != 0:
		err = r.nextOfMessage(ctx, visit)
	default:
		if err = r.next(ctx, visit); err == nil && !r.filter.Backwards {
			err = r.queries.stillThere(ctx, low)
		}
	}
	return wrap(err, "read the log")
}

func (r *Replay) next(ctx context.Context, visit func(*Event)) (err error) {
	if r.window.empty() {
		r.window = r.all
		if r.filter.chooses() {
			if r.window, err = r.nextWindow(ctx); err != nil {
				return err
			}
		}
	}
	limit := min(r.rows, r.left)
	c, err := r.read(ctx, limit, visit)
	if err != nil {
		return err
	}
	r.left -= c.events
	r.rows = c.next(r.rows)
	switch {
	case !c.cut && c.events < limit && r.filter.Backwards:
		c.last = r.window.low
	case !c.cut && c.events < limit:
		c.last = r.window.high
	}
	r.pass(c.last)
	return nil
}

// pass notes that everything up to a position, or backwards down to it, was looked at.
func (r *Replay) pass(last eventstore.Position) {
	if r.filter.Backwards {
		r.all.high, r.window.high = last-1, last-1
	} else {
		r.all.low, r.window.low = last+1, last+1
	}
}

// passed is the last position that was looked at.
func (r *Replay) passed() eventstore.Position {
	if r.filter.Backwards {
		return r.all.high + 1
	}
	return r.all.low - 1
}

// nextOfMessage reads the history of a message, which is short.
func (r *Replay) nextOfMessage(ctx context.Context, visit func(*Event)) (err error) {
	if r.message == nil {
		r.message, err = r.queries.beginning(ctx, r.filter.MessageID)
		if err == nil && r.message == nil {
			err = r.queries.stillThere(ctx, eventstore.Position(r.filter.MessageID))
		}
	}
	if err != nil || r.message == nil {
		r.all.low = r.all.high + 1
		return err
	}
	if r.filter.Backwards {
		return r.historyBackwards(ctx, visit)
	}
	page, next, err := r.queries.history(ctx, r.message, r.named, MaxLimit)
	if err != nil {
		return err
	}
	for i := range page {
		e := &page[i]
		switch {
		case e.Position > r.all.high || r.left <= 0:
			next = ""
		case e.Position < r.all.low:
			r.named = cursor(e.Position)
		default:
			r.named = cursor(e.Position)
			if r.filter.takes(e, r.channels) {
				r.left--
				r.pass(e.Position)
				visit(e)
			}
		}
	}
	if next == "" && r.left > 0 {
		r.all.low = r.all.high + 1
	}
	return nil
}

// historyBackwards reads all of a history for its last events.
func (r *Replay) historyBackwards(ctx context.Context, visit func(*Event)) error {
	var last []Event // the newest ones of the choice
	keep := min(r.left, MaxLimit)
	err := r.queries.eachEvent(ctx, r.message, func(e Event) bool {
		if e.Position >= r.all.low && e.Position <= r.all.high && r.filter.takes(&e, r.channels) {
			if last = append(last, e); len(last) > 2*keep {
				last = slices.Clone(last[len(last)-keep:])
			}
		}
		return e.Position < r.all.high
	})
	if err != nil {
		return err
	}
	last = last[max(0, len(last)-keep):]
	slices.Reverse(last)
	for i := range last {
		visit(&last[i])
	}
	r.left -= len(last)
	if len(last) < keep {
		r.all.high = r.all.low - 1
	} else {
		r.pass(last[len(last)-1].Position)
	}
	return nil
}
