package client

import (
	"slices"

	"leat/api"
	"leat/eventstore"
)

// order checks that a connection delivers what it promised: every offset, or
// with a pattern ascending ones; in a group ascending ones of each partition.
type order struct {
	sparse     bool // offsets are left out
	group      bool
	partitions uint64            // 0 or 1: not known
	next       eventstore.Offset // not of a group
	of         map[int]eventstore.Offset
}

func newOrder(sparse, group bool, partitions uint64, next eventstore.Offset) order {
	return order{sparse: sparse, group: group, partitions: partitions, next: next, of: map[int]eventstore.Offset{}}
}

func (o *order) check(m *api.StreamMessage) error {
	if o.group {
		return o.checkPartition(m)
	}
	if m.Offset < o.next || (m.Offset > o.next && !o.sparse) {
		return &GapError{Want: o.next, Got: m.Offset}
	}
	o.next = m.Offset + 1
	return nil
}

func (o *order) checkPartition(m *api.StreamMessage) error {
	if o.partitions <= 1 {
		return nil
	}
	partition := partitionOf(m.RoutingKey, o.partitions)
	if next := o.of[partition]; m.Offset < next {
		return &GapError{Want: next, Got: m.Offset}
	}
	o.of[partition] = m.Offset + 1
	return nil
}

// end is behind a frame: without a pattern right behind its last message.
func (o *order) end(next eventstore.Offset) error {
	if o.group {
		return nil
	}
	if next < o.next || (next > o.next && !o.sparse) {
		return &GapError{Want: o.next, Got: next}
	}
	o.next = next
	return nil
}

// assign forgets the partitions that are gone: when they come back, they begin
// where they were committed.
func (o *order) assign(partitions []int) {
	for partition := range o.of {
		if !slices.Contains(partitions, partition) {
			delete(o.of, partition)
		}
	}
}
