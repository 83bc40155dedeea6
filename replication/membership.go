package replication

import (
	"cmp"
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"sync"
	"time"

	"leat/eventstore"
)

// membership is a subscriber's place at a point: it holds the point alone, or some
// partitions of a group, until it ends or leaves.
type membership struct {
	points *Points

	stream  string
	point   string
	member  string
	actor   string
	channel eventstore.ChannelID
	epoch   eventstore.Position
	// partitions are those of the point: 1, or of a group.
	partitions int
	// resumed: the point was there before.
	resumed    bool
	first, end eventstore.Offset // of the stream, when it joined
	joined     time.Time
	generation eventstore.Position

	changes chan struct{}

	mu     sync.Mutex
	err    error
	grants map[int]grant
	drawn  uint64
	known  map[int]eventstore.Offset // the next that the point has, as far as we know
	since  map[int]time.Time
	again  bool // it is being entered again
}

// grant is the right to read a partition. One with another id is to be read from
// next on, wherever the reader was.
type grant struct {
	id   uint64
	next eventstore.Offset
}

const joinPointSQL = `-- replication.joinPoint
select j.channel_id, j.epoch, j.first_offset, j.end_offset, j.created, j.shares, j.generation, j.joined, j.held, j.since, j.nexts
from leat.join_point($1, $2, nullif($3, 0), $4, $5, $6, nullif($7::bigint, 0), nullif($8, ''), $9, $10) j`

// joinedPoint is the answer of leat.join_point.
type joinedPoint struct {
	Channel    eventstore.ChannelID
	Epoch      eventstore.Position
	First, End eventstore.Offset
	Created    bool
	Partitions int
	Generation eventstore.Position
	Joined     time.Time
	Held       []int16
	Since      []time.Time
	Nexts      []eventstore.Offset
}

// join makes a subscriber a member of the point that the request names, which is
// made if there is none. A point without a group goes over to it at once. A point
// below what the stream keeps is refused with offset_gone.
func (p *Points) join(ctx context.Context, r eventstore.SubscribeRequest) (*membership, error) {
	if err := checkPoint(r.Actor, r.Stream, r.Point); err != nil {
		return nil, err
	}
	if r.Partitions < 0 || r.Partitions > MaxPartitions {
		return nil, invalid("partitions", "must be from 1 to %d", MaxPartitions)
	}
	if err := checkLabel("member", r.Member); err != nil {
		return nil, err
	}
	if r.Member == "" {
		r.Member = rand.Text()
	}
	at, err := startArgs(r.Start)
	if err != nil {
		return nil, err
	}
	args := append([]any{r.Stream, r.Point, r.Partitions}, append(at, r.Actor, r.Member, p.broker)...)
	j, err := queryStruct[joinedPoint](ctx, p.pool, joinPointSQL, args...)
	if err != nil {
		return nil, err
	}
	m := &membership{
		points: p, stream: r.Stream, point: r.Point, member: r.Member, actor: r.Actor,
		channel: j.Channel, epoch: j.Epoch, partitions: j.Partitions, resumed: !j.Created, first: j.First, end: j.End,
		joined: j.Joined, generation: j.Generation,
		changes: make(chan struct{}, 1),
		grants:  map[int]grant{}, known: map[int]eventstore.Offset{}, since: map[int]time.Time{},
	}
	m.hold(j.Held, j.Since, j.Nexts)
	select {
	case <-m.changes: // the first is no change
	default:
	}
	p.enter(m)
	return m, nil
}

// held is what the member may read now, by partition. An error says why the
// membership ended.
func (m *membership) held() (map[int]grant, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.grants), m.err
}

// changed receives when what held answers has changed.
func (m *membership) changed() <-chan struct{} { return m.changes }

// commit moves the positions of partitions durably: each to behind its last offset
// that was processed. A member of a group should name all partitions that it holds:
// those of which it has nothing outstanding go along with the others, or retention
// would overtake them. Partitions that somebody else holds by now are refused with
// point_taken; the others count.
func (m *membership) commit(ctx context.Context, epoch eventstore.Position, lasts map[int]eventstore.Offset) error {
	m.mu.Lock()
	err, generation := m.err, m.generation
	m.mu.Unlock()
	if err != nil || len(lasts) == 0 {
		return err
	}
	err = m.points.commits.submit(ctx, &commit{
		channel: m.channel, stream: m.stream, point: m.point, epoch: epoch, actor: m.actor,
		member: m.member, joined: m.joined, generation: generation, lasts: lasts,
	})
	if err != nil {
		m.points.poke() // it may have lost more than this
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for partition, last := range lasts {
		m.known[partition] = max(m.known[partition], last+1)
	}
	return nil
}

// leave gives up what the member holds, soon. It may be called again.
func (m *membership) leave() {
	p := m.points
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, there := p.members[m]; there {
		delete(p.members, m)
		p.leaving = append(p.leaving, m)
		p.poke()
	}
}

// finish tells the subscriber that it is over, and why.
func (m *membership) finish(err error) {
	m.mu.Lock()
	if m.err == nil {
		m.err = err
		m.grants = map[int]grant{}
	}
	m.mu.Unlock()
	m.tell()
}

// over reports whether the membership has ended.
func (m *membership) over() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err != nil
}

func (m *membership) tell() {
	select {
	case m.changes <- struct{}{}:
	default: // told already
	}
}

// hold takes in what the database says that the member holds.
func (m *membership) hold(held []int16, since []time.Time, nexts []eventstore.Offset) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return
	}
	changed := false
	for i, p := range held {
		partition := int(p)
		_, before := m.grants[partition]
		// A member that was forgotten, and is back, goes on where it was if nobody
		// has moved the position meanwhile.
		same := before && (m.since[partition].Equal(since[i]) || (m.again && m.known[partition] == nexts[i]))
		if !same {
			m.drawn++
			m.grants[partition] = grant{m.drawn, nexts[i]}
			m.known[partition] = nexts[i]
			changed = true
		}
		m.since[partition] = since[i]
	}
	for partition := range m.grants {
		if !slices.Contains(held, int16(partition)) {
			delete(m.grants, partition)
			delete(m.since, partition)
			changed = true
		}
	}
	m.again = false
	if changed {
		m.tell()
	}
}

// latest are the number of partitions, and when the last of them came.
func (m *membership) latest() (n int, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, since := range m.since {
		if since.After(at) {
			at = since
		}
	}
	return len(m.since), at
}

// comeBack notes that the member is entered again, and lists what it held.
func (m *membership) comeBack() []int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.again = true
	return slices.Sorted(maps.Keys(m.grants))
}

// compare orders members by point.
func (m *membership) compare(other *membership) int {
	return cmp.Or(cmp.Compare(m.channel, other.channel), cmp.Compare(m.point, other.point))
}

// watchedRows are the columns of leat.watch_members.
type watchedRows struct {
	channels    []int32
	points      []string
	members     []string
	joins       []time.Time
	generations []int64
	counts      []int32
	latest      []time.Time
}

func memberRows(members []*membership) (r watchedRows) {
	for _, m := range members {
		r.channels = append(r.channels, int32(m.channel))
		r.points = append(r.points, m.point)
		r.members = append(r.members, m.member)
		r.joins = append(r.joins, m.joined)
		r.generations = append(r.generations, int64(m.generation))
		n, at := m.latest()
		r.counts = append(r.counts, int32(n))
		r.latest = append(r.latest, at)
	}
	return r
}
