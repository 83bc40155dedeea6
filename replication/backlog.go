package replication

import "leat/eventstore"

// backlog is what was delivered and not acknowledged, in the order of the delivery,
// as runs of offsets.
type backlog struct {
	runs  []offsetRun
	count int
}

type offsetRun struct{ first, last eventstore.Offset }

// add takes a message that was delivered.
func (b *backlog) add(offset eventstore.Offset) {
	b.count++
	if n := len(b.runs); n > 0 && b.runs[n-1].last == offset-1 {
		b.runs[n-1].last = offset
		return
	}
	b.runs = append(b.runs, offsetRun{offset, offset})
}

// ack drops everything up to and with an offset, and reports whether there was
// something.
func (b *backlog) ack(offset eventstore.Offset) bool {
	before := b.count
	done := 0
	for ; done < len(b.runs) && b.runs[done].last <= offset; done++ {
		b.count -= int(b.runs[done].last - b.runs[done].first + 1)
	}
	b.runs = b.runs[done:]
	if len(b.runs) == 0 {
		b.runs = nil // lest it hold on to the memory of a peak
	} else if r := &b.runs[0]; r.first <= offset {
		b.count -= int(offset - r.first + 1)
		r.first = offset + 1
	}
	return b.count < before
}
