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

	mu      sync.Mutex
	err     error
	grants  map[int]grant
	parting map[int]uint64            // what it is to let go of, and the version that says so
	version uint64                    // of grants; they take their ids from it
	seen    uint64                    // the version that the reader goes by
	alive   time.Time                 // until then nobody can have taken it for dead
	known   map[int]eventstore.Offset // the next that the point has, as far as we know
	sent    map[int]eventstore.Offset // and when the commits under way count
	since   map[int]time.Time
	again   bool // it is being entered again
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
	asked := time.Now()
	j, err := queryStruct[joinedPoint](ctx, p.pool, joinPointSQL, args...)
	if err != nil {
		return nil, err
	}
	m := &membership{
		points: p, stream: r.Stream, point: r.Point, member: r.Member, actor: r.Actor,
		channel: j.Channel, epoch: j.Epoch, partitions: j.Partitions, resumed: !j.Created, first: j.First, end: j.End,
		joined: j.Joined, generation: j.Generation,
		changes: make(chan struct{}, 1), alive: asked.Add(aliveFor),
		grants: map[int]grant{}, parting: map[int]uint64{}, known: map[int]eventstore.Offset{}, sent: map[int]eventstore.Offset{}, since: map[int]time.Time{},
	}
	m.hold(seen{Held: j.Held, Since: j.Since, Nexts: j.Nexts})
	select {
	case <-m.changes: // the first is no change
	default:
	}
	p.enter(m)
	return m, nil
}

// held is what the member may read now, by partition, and the version of that. An
// error says why the membership ended.
func (m *membership) held() (grants map[int]grant, version uint64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.grants), m.version, m.err
}

// took says that the reader goes by that version of what is held: it hands out
// nothing more of what is not. Others get that then, and not before.
func (m *membership) took(version uint64) {
	m.mu.Lock()
	m.seen = max(m.seen, version)
	free := len(m.parted()) > 0
	m.mu.Unlock()
	if free {
		m.points.poke()
	}
}

// parted are the partitions that the reader has let go of. The mutex is held.
func (m *membership) parted() (partitions []int) {
	for partition, version := range m.parting {
		if version <= m.seen {
			partitions = append(partitions, partition)
		}
	}
	return partitions
}

// changed receives when what held answers has changed.
func (m *membership) changed() <-chan struct{} { return m.changes }

// isAlive reports whether nobody can have taken the member for dead, and its
// partitions, since the broker gave the last sign of life.
func (m *membership) isAlive() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Now().Before(m.alive)
}

// isDue reports whether it is time for a sign of life.
func (m *membership) isDue(now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.alive.Sub(now) <= aliveFor-renewEvery
}

// live notes a sign of life.
func (m *membership) live(at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !time.Now().Before(m.alive) {
		m.tell()
	}
	m.alive = at.Add(aliveFor)
}

// doubt notes that the database did not answer: it may have crashed, which empties the
// tables of members, and others may have come first since. So the member counts as
// silent until the next sign of life.
func (m *membership) doubt() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.alive = time.Time{}
}

// processed is the last offset of a partition that was processed, and the grant by
// which it was read.
type processed struct {
	last  eventstore.Offset
	grant uint64
}

// commit moves the positions of partitions durably: each to behind its last offset
// that was processed. A member of a group should name all partitions that it holds:
// those of which it has nothing outstanding go along with the others, or retention
// would overtake them. Partitions that somebody else holds by now, or held since, are
// refused with point_taken; the others count.
func (m *membership) commit(ctx context.Context, epoch eventstore.Position, done map[int]processed) error {
	mine, lost, err := m.toCommit(epoch, done)
	if err != nil {
		return err
	}
	lasts := mine.lasts
	if len(lasts) > 0 {
		err = m.points.commits.submit(ctx, mine)
	}
	switch {
	case err != nil:
		m.points.poke() // it may have lost more than this
		return err
	case lost:
		err = pointTaken(m.point)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for partition, last := range lasts {
		m.known[partition] = max(m.known[partition], last+1)
	}
	return err
}

// toCommit is the commit of what was read by grants that the member still has; lost
// says that there was more.
func (m *membership) toCommit(epoch eventstore.Position, done map[int]processed) (mine *commit, lost bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	mine = &commit{
		channel: m.channel, stream: m.stream, point: m.point, epoch: epoch, actor: m.actor,
		member: m.member, joined: m.joined, generation: m.generation,
		lasts: map[int]eventstore.Offset{}, sinces: map[int]time.Time{},
	}
	for partition, p := range done {
		if m.partitions > 1 {
			if m.grants[partition].id != p.grant {
				lost = true
				continue
			}
			mine.sinces[partition] = m.since[partition]
		}
		mine.lasts[partition] = p.last
		m.sent[partition] = p.last + 1
	}
	return mine, lost, m.err
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
func (m *membership) hold(s seen) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return
	}
	before := m.version
	for i, p := range s.Held {
		m.grant(int(p), s.Since[i], s.Nexts[i])
	}
	for partition := range m.grants {
		if !slices.Contains(s.Held, int16(partition)) {
			delete(m.grants, partition)
			delete(m.since, partition)
			m.version++
		}
	}
	parting := map[int]uint64{}
	for _, p := range s.Leaving {
		partition := int(p)
		parting[partition] = m.version
		if version, before := m.parting[partition]; before {
			parting[partition] = version
		}
	}
	m.parting, m.again = parting, false
	if len(m.parted()) > 0 {
		m.points.poke()
	}
	if m.version != before {
		m.tell()
	}
}

// grant notes that the member holds a partition. One that was forgotten, and is back,
// goes on where it was, unless others have read further meanwhile: what lies behind the
// position is with the subscriber, also where the last commits were lost, or one has come
// through of which no answer came. Without a group there is no other way to go on within a
// connection. The mutex is held.
func (m *membership) grant(partition int, since time.Time, next eventstore.Offset) {
	_, before := m.grants[partition]
	ours := m.again && next <= max(m.known[partition], m.sent[partition])
	switch {
	case before && (m.since[partition].Equal(since) || ours):
	case before && m.partitions <= 1:
		m.err = m.endOf("moved")
		m.grants = map[int]grant{}
		m.version++
		return
	default:
		m.version++
		m.grants[partition] = grant{m.version, next}
		m.known[partition] = next
		delete(m.sent, partition) // by a grant that is gone: it tells nothing of what was read by this one
	}
	m.since[partition] = since
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

// memberColumns are the columns of members for SQL.
type memberColumns struct {
	channels    []int32
	points      []string
	members     []string
	joins       []time.Time
	generations []int64
	counts      []int32
	latest      []time.Time
}

func memberRows(members []*membership) (r memberColumns) {
	for _, m := range members {
		r.add(m)
		r.generations = append(r.generations, int64(m.generation))
		n, at := m.latest()
		r.counts = append(r.counts, int32(n))
		r.latest = append(r.latest, at)
	}
	return r
}

func (r *memberColumns) add(m *membership) {
	r.channels = append(r.channels, int32(m.channel))
	r.points = append(r.points, m.point)
	r.members = append(r.members, m.member)
	r.joins = append(r.joins, m.joined)
}
