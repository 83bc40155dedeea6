package commands

import (
	"container/heap"
	"time"

	"leat/eventstore"
)

// outstanding are the deliveries that a consumer has in its hands. Those whose
// lease has ended no longer are, settled or not.
type outstanding struct {
	holds holds
	of    map[eventstore.Receipt]*hold
}

// hold is a group of deliveries whose leases end together.
type hold struct {
	ends     time.Time // by this broker's clock
	receipts []eventstore.Receipt
	left     int // of the receipts: still in hand
	place    int // in the heap
}

func newOutstanding() outstanding {
	return outstanding{of: map[eventstore.Receipt]*hold{}}
}

// add notes receipts whose lease ends then. Those that were there before move.
func (o *outstanding) add(receipts []eventstore.Receipt, ends time.Time) {
	o.remove(receipts)
	h := &hold{ends: ends, receipts: receipts, left: len(receipts)}
	for _, r := range receipts {
		o.of[r] = h
	}
	if h.left > 0 {
		heap.Push(&o.holds, h)
	}
}

// remove forgets receipts, and answers how many of them were in hand.
func (o *outstanding) remove(receipts []eventstore.Receipt) (n int) {
	for _, r := range receipts {
		h := o.of[r]
		if h == nil {
			continue
		}
		n++
		delete(o.of, r)
		if h.left--; h.left == 0 {
			heap.Remove(&o.holds, h.place)
		}
	}
	return n
}

// expire forgets what has ended, and answers when the next lease ends; zero if
// there is none.
func (o *outstanding) expire(now time.Time) (next time.Time) {
	for len(o.holds) > 0 {
		h := o.holds[0]
		if now.Before(h.ends) {
			return h.ends
		}
		heap.Pop(&o.holds)
		for _, r := range h.receipts {
			if o.of[r] == h {
				delete(o.of, r)
			}
		}
	}
	return time.Time{}
}

// len is how many are in hand.
func (o *outstanding) len() int { return len(o.of) }

// all are the receipts in hand.
func (o *outstanding) all() []eventstore.Receipt {
	receipts := make([]eventstore.Receipt, 0, len(o.of))
	for r := range o.of {
		receipts = append(receipts, r)
	}
	return receipts
}

// holds is a heap: the one that ends first is on top.
type holds []*hold

func (h holds) Len() int           { return len(h) }
func (h holds) Less(i, j int) bool { return h[i].ends.Before(h[j].ends) }

func (h holds) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

func (h *holds) Push(x any) {
	one := x.(*hold) //nolint:forcetypeassert // nothing else is pushed
	one.place = len(*h)
	*h = append(*h, one)
}

func (h *holds) Pop() any {
	last := len(*h) - 1
	one := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return one
}
