package replication

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"leat/eventstore"
)

// share is what a subscription reads of one partition of its point.
type share struct {
	grant uint64
	// from is where it reads on: the messages below were delivered, or are not its own.
	from eventstore.Offset
}

// gained is a share of a new grant. What this subscription has committed is not read
// again, even if the grant was made before.
func (s *Subscription) gained(partition int, g grant) share {
	return share{grant: g.id, from: max(g.next, s.committed[partition])}
}

// join makes the subscription a member of its point.
func (s *Subscription) join(ctx context.Context) error {
	err := tryAhead(ctx, func() (err error) {
		s.member, err = s.hub.config.Points.join(ctx, s.request)
		return err
	})
	if err != nil {
		return err
	}
	m := s.member
	s.stream = streamState{channel: m.channel, name: m.stream, epoch: m.epoch, first: m.first, end: m.end}
	s.next = m.end
	if _, err := s.reassign(); err != nil {
		m.leave()
		return err
	}
	s.subscribed.Point, s.subscribed.Member, s.subscribed.Resumed = m.point, m.member, m.resumed
	s.subscribed.Partitions = s.partitions()
	return nil
}

// changes receives when the membership has something to tell.
func (s *Subscription) changes() <-chan struct{} {
	if s.member == nil {
		return nil
	}
	return s.member.changed()
}

// reassign takes in what the membership grants now, and reports whether that is
// something else. For a partition that others have not read as far as this
// subscription has, it goes back.
func (s *Subscription) reassign() (changed bool, err error) {
	grants, version, err := s.member.held()
	if err != nil {
		return false, err
	}
	defer s.member.took(version)
	s.mu.Lock()
	defer s.mu.Unlock()
	for partition := range s.shares {
		if _, still := grants[partition]; !still {
			delete(s.shares, partition)
			s.progress.lose(partition)
			changed = true
		}
	}
	next := noMessage
	for partition, g := range grants {
		if s.shares[partition].grant != g.id {
			next = min(next, s.gained(partition, g).from)
		}
	}
	if next == noMessage {
		return changed, nil
	}
	if len(s.shares) == 0 {
		s.next = next
	}
	for partition, sh := range s.shares {
		sh.from = max(sh.from, s.next)
		s.shares[partition] = sh
	}
	for partition, g := range grants {
		if s.shares[partition].grant != g.id {
			s.progress.lose(partition)
			s.shares[partition] = s.gained(partition, g)
		}
	}
	s.next = min(s.next, next)
	return true, nil
}

// partitions are those that the member has, nil without a group.
func (s *Subscription) partitions() []int {
	if !s.grouped() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]int{}, slices.Sorted(maps.Keys(s.shares))...)
}

func (s *Subscription) grouped() bool { return s.member != nil && s.member.partitions > 1 }

// idle reports whether all of the point is held by others, or, in a group, may be.
func (s *Subscription) idle() bool {
	return s.member != nil && len(s.shares) == 0 || s.grouped() && !s.member.isAlive()
}

// Ack says that everything delivered so far, up to and with the message of this
// offset, needs no room in the window any more.
func (s *Subscription) Ack(offset eventstore.Offset) error {
	if err := s.ahead(offset); err != nil {
		return err
	}
	s.mu.Lock()
	var freed bool
	if s.grouped() {
		freed = s.progress.ack(s.progress.find(offset))
	} else {
		freed = s.backlog.ack(offset)
	}
	s.mu.Unlock()
	if freed {
		signal(s.acked)
	}
	return nil
}

// Commit is Ack, and moves the replication point durably. In a group it moves the
// partitions that the subscriber has; those of which nothing is under way go with
// the others. If it covers messages of partitions that went to others meanwhile it
// answers point_taken, once, and the rest counts: those messages come again.
func (s *Subscription) Commit(ctx context.Context, last eventstore.StreamPosition) error {
	if s.member == nil {
		return eventstore.NewError(eventstore.PointNotFound, "The subscription has no replication point to commit to.")
	}
	if err := s.aheadOf(ctx, last); err != nil {
		return err
	}
	count, done, lost := s.done(last.Offset)
	if err := s.commit(ctx, last.Epoch, done); err != nil {
		if s.grouped() && errors.Is(err, &eventstore.Error{Code: eventstore.CommitBehind}) {
			err = pointTaken(s.member.point) // others had a partition meanwhile, and were faster
		}
		return err
	}
	s.mu.Lock()
	for partition, p := range done {
		s.committed[partition] = max(s.committed[partition], p.last+1)
	}
	if s.grouped() {
		s.progress.drop(count)
	} else {
		s.backlog.ack(last.Offset)
		s.next = max(s.next, last.Offset+1) // processed in an earlier life
	}
	s.mu.Unlock()
	signal(s.acked)
	if lost {
		return pointTaken(s.member.point)
	}
	return nil
}

// commit tries again what is refused for being ahead, for as long as the stream only
// does not show yet what the ring was told is committed.
func (s *Subscription) commit(ctx context.Context, epoch eventstore.Position, done map[int]processed) error {
	for {
		err := s.member.commit(ctx, epoch, done)
		if !isAhead(err) || s.ring.span().end <= greatest(done) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.closed:
			return ErrClosed
		case <-time.After(aheadPause):
		}
	}
}

func greatest(done map[int]processed) eventstore.Offset {
	most := eventstore.Offset(-1)
	for _, p := range done {
		most = max(most, p.last)
	}
	return most
}

// done is what is processed of each partition when everything up to and with the
// message of an offset is, and how many deliveries that is. lost says that some of
// them are of partitions that were in other hands meanwhile, or that the offset came
// again since and it is not known which of the two is meant.
func (s *Subscription) done(offset eventstore.Offset) (count uint64, done map[int]processed, lost bool) {
	if !s.grouped() {
		return 0, map[int]processed{0: {last: offset}}, false
	}
	grants, _, _ := s.member.held() // the commit tells why there are none
	s.mu.Lock()
	defer s.mu.Unlock()
	count = s.progress.find(offset)
	left := s.progress.after(count)
	done = make(map[int]processed, len(s.shares))
	for partition, sh := range s.shares {
		if grants[partition].id != sh.grant {
			continue // it was in other hands meanwhile
		}
		next, some := left[partition]
		if !some {
			next = max(sh.from, s.next)
		}
		if next > 0 {
			done[partition] = processed{last: next - 1, grant: sh.grant}
		}
	}
	lost = s.progress.any(count, func(partition int) bool {
		sh, held := s.shares[partition]
		return !held || grants[partition].id != sh.grant
	}) || s.progress.again(count, offset)
	return count, done, lost
}
