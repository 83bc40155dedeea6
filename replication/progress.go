package replication

import (
	"cmp"
	"math"
	"slices"

	"leat/eventstore"
)

const (
	fineDeliveries = 1 << 16
	coarseBlocks   = 1 << 11
)

// progress is what a member of a group was given and has not committed, in the order
// of the delivery. That is the order of the offsets but where the member got a
// partition that others had not read as far: then it goes back for that one.
type progress struct {
	blocks []block
	fine   int // deliveries in blocks that have them
	coarse int // blocks that have none
	// fineMax is how many messages are remembered one by one; of older ones only the
	// ends of blocks may be committed. Default: fineDeliveries.
	fineMax int
	// coarseMax is how many such blocks there are before two and two become one.
	// Default: coarseBlocks.
	coarseMax int
	count     uint64 // of deliveries so far
	acked     uint64 // of them
	open      int    // neither acked nor lost
}

// block is a batch that was delivered.
type block struct {
	begin, end uint64            // in the count of deliveries
	next       eventstore.Offset // behind the batch
	last       eventstore.Offset // of its messages
	low, high  eventstore.Offset // of them
	deliveries []delivery        // nil when they are forgotten
	firsts     firsts            // then: the first message of each partition,
	open       map[int]int       // and how many of each are neither acked nor lost
	coarse     bool
	vague      bool // coarse, and an offset may be in it twice
}

type delivery struct {
	offset    eventstore.Offset
	partition int8 // void when somebody else has it now
}

const (
	void      = -1
	noMessage = eventstore.Offset(math.MaxInt64)
)

// firsts are offsets by partition.
type firsts map[int]eventstore.Offset

func (f firsts) note(d delivery) {
	if first, there := f[int(d.partition)]; d.partition != void && (!there || d.offset < first) {
		f[int(d.partition)] = d.offset
	}
}

// add takes a batch; next is the offset behind it.
func (p *progress) add(deliveries []delivery, next eventstore.Offset) {
	b := block{begin: p.count, next: next, low: noMessage, high: -1, deliveries: deliveries}
	for _, d := range deliveries {
		b.last, b.low, b.high = d.offset, min(b.low, d.offset), max(b.high, d.offset)
	}
	p.count += uint64(len(deliveries))
	p.open += len(deliveries)
	p.fine += len(deliveries)
	b.end = p.count
	p.blocks = append(p.blocks, b)
	for p.fine > cmp.Or(p.fineMax, fineDeliveries) && p.coarse < len(p.blocks)-1 {
		p.coarsen()
	}
}

// outstanding is how many messages of partitions that the member has are not
// acknowledged.
func (p *progress) outstanding() int { return p.open }

// coarsen forgets the oldest deliveries one by one.
func (p *progress) coarsen() {
	b := &p.blocks[p.coarse]
	b.firsts, b.open = firsts{}, map[int]int{}
	for i, d := range b.deliveries {
		b.firsts.note(d)
		if d.partition != void && b.begin+uint64(i) >= p.acked {
			b.open[int(d.partition)]++
		}
	}
	p.fine -= len(b.deliveries)
	b.deliveries, b.coarse = nil, true
	p.coarse++
	if p.coarse <= cmp.Or(p.coarseMax, coarseBlocks) {
		return
	}
	kept := p.blocks[:0:0]
	for i := 0; i < p.coarse; i += 2 {
		b := p.blocks[i]
		if i+1 < p.coarse {
			b = b.with(p.blocks[i+1])
		}
		kept = append(kept, b)
	}
	rest := p.blocks[p.coarse:]
	p.coarse = len(kept)
	p.blocks = slices.Concat(kept, rest)
}

// with is one block of two coarse ones.
func (b block) with(other block) block {
	for partition, offset := range other.firsts {
		b.firsts.note(delivery{offset, int8(partition)})
	}
	for partition, n := range other.open {
		b.open[partition] += n
	}
	b.vague = b.vague || other.vague || other.low <= b.high
	b.end, b.next, b.last = other.end, other.next, other.last
	b.low, b.high = min(b.low, other.low), max(b.high, other.high)
	return b
}

// find answers how many deliveries are done when everything up to and with the
// message of an offset is: the first that has it, or the batch that ends there. Of
// an offset that was not delivered, it is all that lie below in one go.
func (p *progress) find(offset eventstore.Offset) uint64 {
	for i := range p.blocks {
		b := &p.blocks[i]
		switch {
		case !b.vague && (offset == b.last || offset == b.next-1):
			return b.end
		case b.coarse && b.low <= offset && offset <= b.high:
			return b.begin // it may be one of those that are forgotten
		}
		for j, d := range b.deliveries {
			if d.offset == offset {
				return b.begin + uint64(j) + 1
			}
		}
	}
	done := p.count
	for i := len(p.blocks) - 1; i >= 0; i-- {
		b := &p.blocks[i]
		for j, d := range slices.Backward(b.deliveries) {
			if d.offset > offset {
				done = b.begin + uint64(j)
			}
		}
		if b.coarse && b.high > offset {
			done = b.begin
		}
	}
	return done
}

// ack says that so many deliveries need no room any more.
func (p *progress) ack(done uint64) bool {
	if done <= p.acked {
		return false
	}
	for i := range p.blocks {
		b := &p.blocks[i]
		switch {
		case b.begin >= done:
		case b.end <= p.acked:
		case !b.coarse:
			for _, d := range b.deliveries[max(p.acked, b.begin)-b.begin : min(done, b.end)-b.begin] {
				if d.partition != void {
					p.open--
				}
			}
		case b.end <= done: // else it became one of two meanwhile, and keeps its room until both are done
			for _, n := range b.open {
				p.open -= n
			}
			clear(b.open)
		}
	}
	p.acked = done
	return true
}

// after are the first messages that are not done after so many deliveries, by
// partition.
func (p *progress) after(done uint64) firsts {
	left := firsts{}
	for i := range p.blocks {
		b := &p.blocks[i]
		switch {
		case b.end <= done:
		case b.coarse:
			for partition, offset := range b.firsts {
				left.note(delivery{offset, int8(partition)})
			}
		default:
			for _, d := range b.deliveries[max(done, b.begin)-b.begin:] {
				left.note(d)
			}
		}
	}
	return left
}

// any reports whether one of so many deliveries is of such a partition; those that are
// forgotten one by one are not asked.
func (p *progress) any(done uint64, such func(partition int) bool) bool {
	for i := range p.blocks {
		b := &p.blocks[i]
		if b.begin >= done {
			return false
		}
		for _, d := range b.deliveries[:min(uint64(len(b.deliveries)), done-b.begin)] {
			if such(int(d.partition)) {
				return true
			}
		}
	}
	return false
}

// again reports whether an offset fits behind so many deliveries too: the member went
// back since.
func (p *progress) again(done uint64, offset eventstore.Offset) bool {
	return slices.ContainsFunc(p.blocks, func(b block) bool {
		switch {
		case b.begin < done || b.begin == b.end:
			return false
		case offset == b.last || offset == b.next-1:
			return true
		default:
			return slices.ContainsFunc(b.deliveries, func(d delivery) bool { return d.offset == offset })
		}
	})
}

// drop forgets deliveries that are committed.
func (p *progress) drop(done uint64) {
	p.ack(done)
	n := 0
	for ; n < len(p.blocks) && p.blocks[n].end <= done; n++ {
		p.fine -= len(p.blocks[n].deliveries)
		if p.blocks[n].coarse {
			p.coarse--
		}
	}
	p.blocks = p.blocks[n:]
	if len(p.blocks) == 0 {
		p.blocks = nil
	} else if b := &p.blocks[0]; b.begin < done && !b.coarse {
		p.fine -= int(done - b.begin)
		b.deliveries, b.begin = b.deliveries[done-b.begin:], done
	}
}

// lose forgets what was delivered of a partition that the member has no more, or
// begins anew. It needs no room any more.
func (p *progress) lose(partition int) {
	for i := range p.blocks {
		b := &p.blocks[i]
		p.open -= b.open[partition]
		delete(b.open, partition)
		delete(b.firsts, partition)
		for j := range b.deliveries {
			if d := &b.deliveries[j]; int(d.partition) == partition {
				d.partition = void
				if b.begin+uint64(j) >= p.acked {
					p.open--
				}
			}
		}
	}
}
