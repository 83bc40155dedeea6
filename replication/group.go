package replication

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"leat/eventstore"
)

const (
	tendEvery   = time.Second           // how late a member learns what happened elsewhere
	tendGap     = 20 * time.Millisecond // between two looks, whoever pokes
	renewEvery  = 3 * time.Second       // signs of life; leat.member_time() is the patience
	aliveFor    = 6 * time.Second       // after one; less than the patience
	tendWithin  = 5 * time.Second       // one look
	leaveWithin = 2 * time.Second       // at the end
	fnvOffset   = 14695981039346656037  // FNV-1a, 64 bits
	fnvPrime    = 1099511628211         //
)

// partitionOf is the partition of a routing key in a group: FNV-1a of 64 bits over
// the bytes of the key, modulo the number of partitions.
func partitionOf(key string, partitions int) int {
	if partitions < 2 {
		return 0
	}
	hash := uint64(fnvOffset)
	for i := range len(key) {
		hash = (hash ^ uint64(key[i])) * fnvPrime
	}
	return int(hash % uint64(partitions))
}

// Run looks after those who read with points here until ctx ends: once a second,
// and when something has changed, with a query or two for all of them.
func (p *Points) Run(ctx context.Context) error {
	ticker := time.NewTicker(tendEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return p.goodbye(ctx)
		case <-ticker.C:
		case <-p.wake:
		}
		if err := p.tend(ctx); err != nil && ctx.Err() == nil {
			p.logger.Warn("look after the readers of points, trying again", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(tendGap):
		}
	}
}

// goodbye gives up what those held who have left.
func (p *Points) goodbye(ctx context.Context) error {
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
	defer cancel()
	if err := p.letGo(leaving); err != nil {
		p.logger.Warn("give up points at the end; others get them in a few seconds", "error", err)
	}
	return nil
}

// poke has Run look soon.
func (p *Points) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// enter notes a new member. Those of whom it is known that it took their place
// are told at once.
func (p *Points) enter(m *membership) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.members[m] = struct{}{}
	for other := range p.members {
		if other == m || other.channel != m.channel || other.point != m.point {
			continue
		}
		p.poke()
		if (m.partitions == 1 || other.member == m.member) && other.joined.Before(m.joined) {
			other.finish(pointTaken(m.point))
		}
	}
}

func (p *Points) tend(ctx context.Context) error {
	looking, cancel := context.WithTimeout(ctx, tendWithin)
	defer cancel()
	return errors.Join(p.renew(looking), p.letGo(looking), p.give(looking), p.watch(looking))
}

const renewMembersSQL = `-- replication.renewMembers
select * from leat.renew_members($1, $2, $3, $4)`

// renew gives signs of life of the members whose last one is some time ago. Who is
// not reached, because others have its row, has its turn again with the next look.
func (p *Points) renew(ctx context.Context) error {
	asked := time.Now()
	members := p.living(func(m *membership) bool { return m.isDue(asked) })
	if len(members) == 0 {
		return nil
	}
	rows := memberRows(members)
	found, err := p.pool.Query(ctx, renewMembersSQL, rows.channels, rows.points, rows.members, rows.joins)
	if err != nil {
		return eventstore.FromPg(err)
	}
	var item int
	_, err = pgx.ForEachRow(found, []any{&item}, func() error {
		members[item-1].live(asked)
		return nil
	})
	return eventstore.FromPg(err)
}

// living are the members that have not ended, of those that are asked for.
func (p *Points) living(such func(m *membership) bool) []*membership {
	p.mu.Lock()
	defer p.mu.Unlock()
	members := make([]*membership, 0, len(p.members))
	for m := range p.members {
		if !m.over() && such(m) {
			members = append(members, m)
		}
	}
	return members
}

const leavePointsSQL = `-- replication.leavePoints
select leat.leave_points($1, $2, $3, $4)`

// letGo tells the database who has left.
func (p *Points) letGo(ctx context.Context) error {
	p.mu.Lock()
	leaving := p.leaving
	p.leaving = nil
	p.mu.Unlock()
	if len(leaving) == 0 {
		return nil
	}
	rows := memberRows(leaving)
	_, err := p.pool.Exec(ctx, leavePointsSQL, rows.channels, rows.points, rows.members, rows.joins)
	if err != nil {
		p.mu.Lock()
		p.leaving = append(p.leaving, leaving...)
		p.mu.Unlock()
	}
	return eventstore.FromPg(err)
}

const letGoSQL = `-- replication.letGo
select leat.let_go($1, $2, $3, $4, $5)`

// give tells the database which partitions are free for others. What fails is tried
// again, since the next look tells that they wait.
func (p *Points) give(ctx context.Context) error {
	var rows memberColumns
	var partitions []int16
	p.mu.Lock()
	for m := range p.members {
		m.mu.Lock()
		for _, partition := range m.parted() {
			rows.add(m)
			partitions = append(partitions, int16(partition))
		}
		m.mu.Unlock()
	}
	p.mu.Unlock()
	if len(partitions) == 0 {
		return nil
	}
	_, err := p.pool.Exec(ctx, letGoSQL, rows.channels, rows.points, rows.members, rows.joins, partitions)
	return eventstore.FromPg(err)
}

const watchMembersSQL = `-- replication.watchMembers
select w.item, w.state, w.held, w.since, w.nexts, w.leaving
from leat.watch_members($1, $2, $3, $4, $5, $6, $7) w`

// seen is what leat.watch_members tells of a member.
type seen struct {
	Item    int
	State   string
	Held    []int16 // partitions, with Since and Nexts
	Since   []time.Time
	Nexts   []eventstore.Offset
	Leaving []int16 // partitions that others wait for
}

// watch compares what the members believe with the database.
func (p *Points) watch(ctx context.Context) error {
	members := p.living(func(*membership) bool { return true })
	if len(members) == 0 {
		return nil
	}
	rows := memberRows(members)
	found, err := queryStructs[seen](ctx, p.pool, watchMembersSQL, rows.channels, rows.points, rows.members,
		rows.joins, rows.generations, rows.counts, rows.latest)
	if err != nil {
		for _, m := range members {
			m.doubt()
		}
		return err
	}
	var lost []*membership
	for _, s := range found {
		m := members[s.Item-1]
		switch s.State {
		case "held":
			m.hold(s)
		case "lost":
			lost = append(lost, m)
		case "stale":
			err = p.share(ctx, m)
		default:
			m.finish(m.endOf(s.State))
		}
		if err != nil {
			return err
		}
	}
	return p.enterAgain(ctx, lost)
}

// endOf is the error of a state of leat.watch_members that ends a membership.
func (m *membership) endOf(state string) error {
	switch state {
	case "taken":
		return pointTaken(m.point)
	case "moved":
		return eventstore.NewError(eventstore.PointMoved, "%s", pointMovedText(m.point))
	case "deleted":
		return eventstore.NewError(eventstore.PointNotFound, "Point %s of stream %s was deleted.", m.point, m.stream)
	case "gone":
		return eventstore.NewError(eventstore.ChannelNotFound, "Stream %s was deleted.", m.stream)
	default:
		return eventstore.NewError(eventstore.Internal, "The broker does not know the state %q of a member.", state)
	}
}

func pointMovedText(point string) string {
	return "Point " + point + " was moved by somebody else: connect again to read from where it is now."
}

func pointTaken(point string) error {
	return eventstore.NewError(eventstore.PointTaken, "Another consumer reads with point %s now.", point)
}

// share gives the partitions of those who have gone to the others.
func (p *Points) share(ctx context.Context, m *membership) error {
	var rows memberColumns
	rows.add(m)
	_, err := p.pool.Exec(ctx, letGoSQL, rows.channels, rows.points, rows.members, rows.joins, []*int16{nil})
	p.poke() // to see what came of it
	return eventstore.FromPg(err)
}

const rejoinPointSQL = `-- replication.rejoinPoint
select leat.rejoin_point($1, $2, $3, $4, $5, $6, $7, $8)`

// enterAgain enters members whom the database does not know any more: after a
// crash, which empties its unlogged tables, or when this broker was silent for so
// long that they counted as gone. The next look tells what they have then.
func (p *Points) enterAgain(ctx context.Context, lost []*membership) error {
	slices.SortFunc(lost, (*membership).compare)
	for len(lost) > 0 {
		n := 1
		for n < len(lost) && lost[n].compare(lost[0]) == 0 {
			n++
		}
		first, rows := lost[0], memberRows(lost[:n])
		var partitions []int16
		var holders []string
		for _, m := range lost[:n] {
			for _, partition := range m.comeBack() {
				partitions, holders = append(partitions, int16(partition)), append(holders, m.member)
			}
		}
		_, err := p.pool.Exec(ctx, rejoinPointSQL, first.channel, first.point, first.generation, p.broker,
			rows.members, rows.joins, partitions, holders)
		if err != nil {
			return eventstore.FromPg(err)
		}
		p.poke()
		lost = lost[n:]
	}
	return nil
}
