package queries

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"leat/eventstore"
)

// What an answer about a family holds at most, and looks at.
const (
	familyDepth   = 100     // generations below the way from the origin to the message
	familyEvents  = 100     // events of a message that are shown
	familyWalk    = 20_000  // events of a generation that are read, but of each message what is shown
	familyBatches = 100_000 // batch events in which the next one of a generation's is looked for
	familyStep    = 1000    // but of each message no fewer
)

// family is a tree of messages while it grows, generation by generation.
type family struct {
	queries *Queries
	members map[eventstore.MessageID]*relative
	left    int // how many more there may be
}

// relative is a member with what is next to it in the tree.
type relative struct {
	Member
	begun  beginning
	routed []eventstore.Position // the events that made copies of it
	copies []*relative
}

// list visits a member and all below it.
func (r *relative) list(depth int, visit func(Member)) {
	r.Depth = depth
	visit(r.Member)
	slices.SortFunc(r.copies, func(a, b *relative) int { return cmp.Compare(a.ID, b.ID) })
	for _, c := range r.copies {
		c.list(depth+1, visit)
	}
}

// grow enters the first members, which may be related, and whatever comes of
// them; of the last of them only copies behind an id.
func (f *family) grow(ctx context.Context, first []beginning, after eventstore.MessageID) error {
	generation := first
	for depth := 0; len(generation) > 0; depth++ {
		entered := f.enter(generation)
		if err := f.tell(ctx, entered); err != nil {
			return err
		}
		if depth == familyDepth {
			f.left = 0
		}
		var err error
		if generation, err = f.copies(ctx, entered, after); err != nil {
			return err
		}
		f.left -= len(generation)
		after = 0
	}
	return nil
}

func (f *family) enter(generation []beginning) []*relative {
	entered := make([]*relative, len(generation))
	for i, b := range generation {
		r := &relative{begun: b, Member: Member{
			ID: b.ID, ParentID: b.Parent, Cause: b.Cause, Channel: b.Channel, RoutingKey: b.RoutingKey,
		}}
		entered[i], f.members[b.ID] = r, r
		if parent := f.members[b.Parent]; parent != nil {
			parent.copies = append(parent.copies, r)
		}
	}
	return entered
}

const familyEventsSQL = `-- queries.familyEvents
select m.n,
       s.cut,
       statement_timestamp(),
       e.position,
       e.at,
       e.kind::text,
       e.delivery,
       e.due_at,
       e.expires_at,
       coalesce(e.actor, ''),
       case when e.kind = 'message.copied' then e.headers end,
       case when e.kind = 'message.routed' then e.data - 'to' else nullif(e.data - '{keys,parents}'::text[], '{}') end
from (
    select u.*, u.id as after, $5::bigint as most
    from unnest($1::bigint[], $2::integer[], $3::boolean[], $4::bigint[]) with ordinality u (id, channel, unsettled, death, n)
) m
cross join lateral (
    ` + walkSQL + `
    (` + walkedSQL + `
    limit $6)
    union all
    (select l.position, l.cut
    from (` + lateSQL + `
    ) l
    order by l.position
    limit $6)
    union all
    (` + republishedSQL + `
    order by r.position
    limit $6)
) s
join leat.events e on e.position = s.position
order by m.n, e.position`

// tell reads what happened to members.
func (f *family) tell(ctx context.Context, members []*relative) error {
	list := make([]beginning, len(members))
	unsettled := make([]bool, len(members))
	for i, r := range members {
		list[i], unsettled[i] = r.begun, r.begun.unsettled()
	}
	deaths, err := f.queries.deaths(ctx, list)
	if err != nil {
		return err
	}
	ids, channels, _ := places(list)
	limit := max(familyEvents, familyWalk/len(members)) + 1
	rows, err := plannedOnce(ctx, f.queries.pool, scanFamilyEvent, familyEventsSQL,
		ids, channels, unsettled, int64s(deaths), max(familyStep, familyBatches/len(members)), limit)
	if err != nil {
		return err
	}
	for len(rows) > 0 {
		n := slices.IndexFunc(rows, func(e familyEvent) bool { return e.n != rows[0].n })
		if n < 0 {
			n = len(rows)
		}
		members[rows[0].n-1].take(rows[:n], limit)
		rows = rows[n:]
	}
	return nil
}

// familyEvent is an event of the nth member.
type familyEvent struct {
	Event
	n   int
	cut bool // it is not of the member, but the last that was looked at
	now time.Time
}

func scanFamilyEvent(row pgx.CollectableRow) (e familyEvent, err error) {
	err = row.Scan(&e.n, &e.cut, &e.now, &e.Position, &e.At, &e.Kind, &e.Delivery, &e.DueAt, &e.ExpiresAt, &e.Actor,
		&e.Headers, &e.Data)
	return e, err
}

// take makes a history of what was read, which is not more than the limit.
func (r *relative) take(events []familyEvent, limit int) {
	now, whole := events[0].now, len(events) < limit
	for _, e := range events {
		if e.Kind == eventstore.MessageRouted && !e.cut {
			r.routed = append(r.routed, e.Position)
		}
	}
	// What is behind a cut was published again, later.
	if cut := slices.IndexFunc(events, func(e familyEvent) bool { return e.cut }); cut >= 0 {
		whole, events = false, events[:cut]
	} else if !whole {
		events = events[:limit-1]
	}
	m := begun(&r.begun)
	for _, e := range events {
		m.apply(&e.Event.Event)
		if len(r.Events) < familyEvents {
			e.Channel = r.Channel
			r.Events = append(r.Events, e.Event)
		}
	}
	if whole {
		m.settle(now, r.begun.Deleted)
		r.State = m.State
	}
	if n := len(r.Events); !whole || n < len(events) {
		r.NextEvents = cursor(r.begun.ID).String()
		if n > 0 {
			r.NextEvents = cursor(r.Events[n-1].Position).String()
		}
	}
}

// Message by message, by the events that its routing names: those copies that
// were made of it.
const copiesSQL = `-- queries.copies
select i.id,
       i.origin,
       r.parent,
       coalesce(e.data ->> 'cause', ''),
       c.position,
       h.name,
       h.id,
       h.kind = 'exchange',
       h.deleted_at is not null,
       coalesce(c.routing_key, c.data -> 'keys' ->> (i.place - 1), ''),
       coalesce(c.priority, 0),
       c.at,
       c.due_at,
       c.expires_at,
       c.stream_offset + i.place - 1,
       coalesce(c.stream_offset + i.place - 1 < s.first_offset, false)
from unnest($1::bigint[], $2::bigint[]) with ordinality r (parent, routed, n)
join leat.events e on e.position = r.routed
cross join lateral jsonb_array_elements_text(e.data -> 'to') t (position)
join leat.events c on c.position = t.position::bigint and c.kind = 'message.copied'
join leat.channels h on h.id = c.channel_id
cross join lateral (
    select p.place, c.message_ids[p.place] as id, c.origin_ids[p.place] as origin
    from unnest(array_positions(
        case
            when c.data ? 'parents'
            then array(select x::bigint from jsonb_array_elements_text(c.data -> 'parents') with ordinality y (x, n) order by y.n)
            else c.origin_ids
        end, r.parent)) p (place)
) i
left join leat.streams s on s.channel_id = h.id
where i.id <> all ($3::bigint[])
  and i.id > $4
order by r.n, i.id
limit $5`

// copies are those of the members, as far as they are not known, and as many as
// there may be. Members of which some may have been left out get a cursor.
func (f *family) copies(ctx context.Context, of []*relative, after eventstore.MessageID) ([]beginning, error) {
	var parents []eventstore.MessageID
	var routed []eventstore.Position
	for _, r := range of {
		for _, position := range r.routed {
			parents = append(parents, r.ID)
			routed = append(routed, position)
		}
	}
	if len(parents) == 0 {
		return nil, nil
	}
	var known []eventstore.MessageID
	for _, r := range of {
		known = append(known, r.ID)
	}
	found, err := plannedOnce(ctx, f.queries.pool, scanBeginning, copiesSQL, int64s(parents), int64s(routed), int64s(known), after, f.left+1)
	if err != nil || len(found) <= f.left {
		return found, err
	}
	missing := found[f.left].Parent
	found = found[:f.left]
	last := map[eventstore.MessageID]eventstore.MessageID{}
	for _, b := range found {
		last[b.Parent] = b.ID
	}
	for _, parent := range parents[slices.Index(parents, missing):] {
		f.members[parent].NextCopies = cursor(max(last[parent], parent, after)).String()
	}
	return found, nil
}
