package queries

import (
	"context"
	"slices"

	"leat/eventstore"
)

// Lineage is a family of messages: what was published, its copies, and theirs.
type Lineage struct {
	MessageID eventstore.MessageID // that was asked for
	OriginID  eventstore.MessageID
	Members   []Member // each behind its parent, copies in the order of their ids
	Truncated bool     // something was left out: where, a member has the cursor to go on with
}

// Member is a message of a family.
type Member struct {
	ID         eventstore.MessageID
	ParentID   eventstore.MessageID // 0 of the origin
	Depth      int                  // 0 of the origin
	Cause      string               // of a copy: link, dead_letter, redrive or republish
	Channel    string
	RoutingKey string
	State      State   // "" when events were left out
	Events     []Event // without the ids of others, and without content
	NextEvents string  // a cursor of History, where events were left out
	NextCopies string  // a cursor of Lineage of this message, where copies were left out
}

// Causes of copies: CauseDeadLetter because the parent died, CauseRepublish because
// it was published again; the others are link and redrive.
const (
	CauseDeadLetter = "dead_letter"
	CauseRepublish  = "republish"
)

// LineageFilter chooses a part of a family.
type LineageFilter struct {
	Cursor string // NextCopies of the message
	Limit  int    // 1 to MaxLimit; 0 is DefaultLimit. What lies between the origin and the message comes in any case
}

// Lineage is the family of a message, from its origin on, whichever member is
// asked for. Of a large family it is what is next to the way from the origin to
// the message. With a cursor it is the message, the copies of it that lie behind
// the cursor, and theirs.
func (q *Queries) Lineage(ctx context.Context, id eventstore.MessageID, f LineageFilter) (Lineage, error) {
	after, limit, err := checkPage(f.Cursor, f.Limit)
	if err != nil {
		return Lineage{}, err
	}
	l := Lineage{MessageID: id}
	path, err := q.ancestry(ctx, id, maxAncestors)
	if err == nil && len(path) == 0 {
		return Lineage{}, q.messageNotFound(ctx, id)
	}
	if err == nil {
		l.OriginID = path[0].Origin
		// A way that is longer than what was read of it begins in its middle.
		l.Truncated = path[len(path)-1].Parent != 0
		slices.Reverse(path)
		err = q.family(ctx, &l, path, eventstore.MessageID(after), limit)
	}
	return l, wrap(err, "read lineage of message %d", id)
}

func (q *Queries) family(ctx context.Context, l *Lineage, path []beginning, after eventstore.MessageID, limit int) error {
	depth := 0
	if after != 0 {
		depth = len(path) - 1
	}
	f := &family{queries: q, members: map[eventstore.MessageID]*relative{}, left: limit}
	if err := f.grow(ctx, path[depth:], after); err != nil {
		return err
	}
	f.members[path[depth].ID].list(depth, func(m Member) {
		l.Members = append(l.Members, m)
		l.Truncated = l.Truncated || m.NextCopies != "" || m.NextEvents != ""
	})
	return nil
}
