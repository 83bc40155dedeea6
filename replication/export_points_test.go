package replication

import (
	"context"
	"maps"

	"leat/eventstore"
)

// pointStatements are those of points.
func pointStatements() []string {
	return []string{
		declarePointSQL, findStreamSQL, resetPointSQL, deletePointSQL, commitPointsSQL,
		joinPointSQL, leavePointsSQL, watchMembersSQL, letGoSQL, renewMembersSQL, rejoinPointSQL,
	}
}

// PartitionOf is partitionOf.
var PartitionOf = partitionOf

// Member is a membership and its reader, which goes by the grants that it last asked for.
type Member struct {
	*membership
	by map[int]uint64
}

// Join is join.
func (p *Points) Join(ctx context.Context, r eventstore.SubscribeRequest) (Member, error) {
	m, err := p.join(ctx, r)
	member := Member{m, map[int]uint64{}}
	if err == nil {
		member.Grants()
	}
	return member, err
}

// Resumed says whether the point was there before.
func (m Member) Resumed() bool { return m.resumed }

// Epoch is that of the stream.
func (m Member) Epoch() eventstore.Position { return m.epoch }

// Name is the member's.
func (m Member) Name() string { return m.member }

// Next is where the member begins, by partition. What it does not hold any more it
// lets go of.
func (m Member) Next() (map[int]eventstore.Offset, error) {
	grants, version, err := m.held()
	next := map[int]eventstore.Offset{}
	clear(m.by)
	for p, g := range grants {
		next[p], m.by[p] = g.next, g.id
	}
	if err == nil {
		m.took(version)
	}
	return next, err
}

// Grants are the ids of what the member may read, by partition.
func (m Member) Grants() map[int]uint64 {
	_, _ = m.Next() // without grants if it is over
	return maps.Clone(m.by)
}

// Held are the ids of what Next answered.
func (m Member) Held() map[int]uint64 { return maps.Clone(m.by) }

// IsAlive is isAlive.
func (m Member) IsAlive() bool { return m.isAlive() }

// Changed is changed.
func (m Member) Changed() <-chan struct{} { return m.changed() }

// Commit is commit.
func (m Member) Commit(ctx context.Context, lasts map[int]eventstore.Offset) error {
	return m.CommitAt(ctx, 0, lasts)
}

// CommitAt is Commit with an epoch.
func (m Member) CommitAt(ctx context.Context, epoch eventstore.Position, lasts map[int]eventstore.Offset) error {
	done := map[int]processed{}
	for p, last := range lasts {
		done[p] = processed{last, m.by[p]}
	}
	return m.commit(ctx, epoch, done)
}

// Leave is leave.
func (m Member) Leave() { m.leave() }

// Forget drops a member as a broker does that is killed: nobody is told.
func (m Member) Forget() {
	m.points.mu.Lock()
	defer m.points.mu.Unlock()
	delete(m.points.members, m.membership)
}

// Memberships is how many members the broker has.
func (p *Points) Memberships() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.members)
}

// Waiting is how many commits wait for the next flush.
func (p *Points) Waiting() int {
	p.commits.mu.Lock()
	defer p.commits.mu.Unlock()
	return len(p.commits.queue)
}

// Crash ends a subscription as the end of its broker does: its member is not
// given up.
func (s *Subscription) Crash() {
	Member{membership: s.member}.Forget()
	s.Close()
}
