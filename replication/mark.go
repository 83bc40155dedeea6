package replication

import (
	"context"
	"slices"
	"time"

	"leat/eventstore"
)

// mark is a row of the log that readers were given a message of. While it is there,
// everything before it is there, too: a copy of the database from an earlier time, or
// a standby that was promoted, lacks what came last. Then the same offsets go to other
// messages, and their positions may be the same as well, but not their times.
type mark struct {
	tip      eventstore.Offset   // of the message
	row      eventstore.Offset   // where its row begins
	position eventstore.Position // of the row; 0: nothing was given yet
	at       time.Time
}

// batchRow is a row of copies.
type batchRow struct {
	offset   eventstore.Offset
	position eventstore.Position
	at       time.Time
}

// markOf is the mark of a message that is a row of its own, and none of a copy.
func markOf(m *eventstore.StreamMessage) mark {
	if m.MessageID != m.OriginMessageID || m.PublishedAt.IsZero() {
		return mark{}
	}
	return mark{m.Offset, m.Offset, eventstore.Position(m.MessageID), m.PublishedAt}
}

// mark is that of the last message of a page.
func (p *page) mark() mark {
	if len(p.messages) == 0 {
		return mark{}
	}
	last := p.messages[len(p.messages)-1]
	for _, b := range slices.Backward(p.batches) {
		if last.MessageID != last.OriginMessageID && b.offset <= last.Offset {
			return mark{last.Offset, b.offset, b.position, b.at}
		}
	}
	return markOf(last)
}

// note keeps a mark, if it is newer than the one before. While it is not known that the
// log of this generation has the one before, that one stays. The mutex is held.
func (r *ring) note(m mark, generation int) {
	if m.position != 0 && r.synced >= generation && (r.mark.position == 0 || m.tip > r.mark.tip) {
		r.mark = m
	}
}

func (r *ring) marked() mark {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.mark
}

// lacks reports whether the log has something else where the mark was. A commit that
// it does not show yet is no proof of that.
func (s *streamState) lacks(m mark) bool {
	return m.position != 0 && !s.deleted && !s.same && m.tip >= s.first && m.tip < s.end
}

// confirms reports whether the log has all that readers were given.
func (s *streamState) confirms(m mark) bool { return m.position == 0 || s.same }

// replaced ends a ring of whose messages some are lost, and others have their offsets.
func (h *Hub) replaced(ctx context.Context, r *ring, s streamState, m mark) {
	at := h.firstReplaced(ctx, r, s, m)
	h.config.Logger.Error("messages of a stream are lost that were committed, and others have their offsets: its subscriptions end",
		"stream", s.name, "from", at, "known", m.tip, "end", s.end)
	h.forget(r)
	e := eventstore.NewError(eventstore.OffsetAhead,
		"The database has lost messages of the stream %q that were committed, and has others at their offsets, from %d on or earlier: a standby "+
			"was promoted that lacks them, or an earlier copy was restored. Read again from there, and look at what came of the lost ones.", s.name, at)
	e.Resume = &eventstore.StreamPosition{Epoch: s.epoch, Offset: at}
	r.fail(e)
}

// firstReplaced compares what the ring holds with the log, as far as that can be read.
func (h *Hub) firstReplaced(ctx context.Context, r *ring, s streamState, m mark) eventstore.Offset {
	held := r.held()
	if len(held) == 0 {
		return m.tip
	}
	c := cursor{channel: r.channel, next: max(held[0].Offset, s.first)}
	below := min(held[len(held)-1].Offset+1, s.end)
	for c.next < below {
		p, err := readPage(ctx, h.config.Pool, &c, below, pageBytes)
		if err != nil || len(p.messages) == 0 {
			return min(c.next, m.tip)
		}
		for _, now := range p.messages {
			was := held[now.Offset-held[0].Offset]
			if now.MessageID != was.MessageID || !now.PublishedAt.Equal(was.PublishedAt) {
				return now.Offset
			}
		}
	}
	return m.tip
}

// held are the messages of the ring up to the first empty slot.
func (r *ring) held() []*eventstore.StreamMessage {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var held []*eventstore.StreamMessage
	for o := r.base; o < r.ready; o++ {
		held = append(held, *r.slot(o))
	}
	return held
}
