package async

import (
	"time"

	"leat/eventstore"
)

// minuteKey is the key of a row of leat.channel_minutes.
type minuteKey struct {
	channel eventstore.ChannelID
	minute  int64 // since 1970
}

// counter is a place in minute.counts, in the order of the columns.
type counter int

const (
	countPublished counter = iota
	countCopied
	countDelivered
	countAcked
	countRetried
	countLeaseExpired
	countReleased
	countDeadLettered
	countRecovered
	countExpired
	countPurged
	countDiscarded
	counters
)

var counterOf = map[eventstore.Kind]counter{
	eventstore.MessageCopied:       countCopied,
	eventstore.MessageDelivered:    countDelivered,
	eventstore.MessageAcked:        countAcked,
	eventstore.MessageRetried:      countRetried,
	eventstore.MessageLeaseExpired: countLeaseExpired,
	eventstore.MessageReleased:     countReleased,
	eventstore.MessageDeadLettered: countDeadLettered,
	eventstore.MessageRecovered:    countRecovered,
	eventstore.MessageExpired:      countExpired,
	eventstore.MessagePurged:       countPurged,
	eventstore.MessageDiscarded:    countDiscarded,
}

// minute is what a batch adds to a row.
type minute struct {
	counts        [counters]int64
	firstDelivery sketch // with what the row has
	ack           sketch
}

// span is a range of blocks of one channel.
type span struct {
	channel   eventstore.ChannelID
	low, high int64
}

// fold is one batch over the rows that it touches.
type fold struct {
	minutes map[minuteKey]*minute
	pending pending
	spans   []span                 // of blocks to load, if there are rows
	deleted []eventstore.ChannelID // whose rows go
}

// newFold finds out which rows a batch touches.
func newFold(first []published, then []happened) *fold {
	f := &fold{minutes: map[minuteKey]*minute{}, pending: pending{}}
	for i := range first {
		p := &first[i]
		f.touch(p.Channel, p.At)
		for _, id := range p.IDs {
			f.pending.want(p.Channel, id)
		}
	}
	for i := range then {
		f.touches(&then[i])
	}
	return f
}

func (f *fold) touches(h *happened) {
	if h.Kind == eventstore.ChannelDeleted {
		f.deleted = append(f.deleted, h.Channel)
		return
	}
	f.touch(h.Channel, h.At)
	if !f.follows(h) {
		return
	}
	for _, id := range h.IDs {
		f.pending.want(h.Channel, id)
	}
	for i := range h.Lows {
		f.spans = append(f.spans, span{h.Channel, h.Lows[i] / blockSize, h.Highs[i] / blockSize})
	}
}

// follows says whether an event is the beginning, the first delivery or the end of a
// message in a queue.
func (f *fold) follows(h *happened) bool {
	switch h.Kind {
	case eventstore.MessageCopied:
		return h.Queue
	case eventstore.MessageDelivered, eventstore.MessageAcked, eventstore.MessageExpired, eventstore.MessagePurged, eventstore.MessageDiscarded:
		return true
	case eventstore.MessageRecovered:
		return h.Leaves
	default:
		return false
	}
}

func (f *fold) touch(channel eventstore.ChannelID, at time.Time) *minute {
	key := minuteKey{channel, at.Unix() / 60}
	if f.minutes[key] == nil {
		f.minutes[key] = &minute{}
	}
	return f.minutes[key]
}

// fold counts the batch.
func (f *fold) fold(first []published, then []happened) error {
	for i := range first {
		p := &first[i]
		f.touch(p.Channel, p.At).counts[countPublished] += p.Count
		for _, id := range p.IDs {
			f.pending.add(p.Channel, id, p.Start.UnixMicro())
		}
	}
	for i := range then {
		if err := f.one(&then[i]); err != nil {
			return err
		}
	}
	return nil
}

func (f *fold) one(h *happened) error {
	if h.Kind == eventstore.ChannelDeleted {
		f.pending.removeChannel(h.Channel)
		return nil
	}
	m := f.touch(h.Channel, h.At)
	m.counts[counterOf[h.Kind]] += h.count()
	if !f.follows(h) {
		return nil
	}
	for _, id := range h.IDs {
		if err := f.move(m, h, id); err != nil {
			return err
		}
	}
	for i := range h.Lows {
		f.pending.removeRange(h.Channel, h.Lows[i], h.Highs[i])
	}
	return nil
}

// move takes one message further.
func (f *fold) move(m *minute, h *happened, id int64) error {
	switch h.Kind {
	case eventstore.MessageCopied:
		f.pending.add(h.Channel, id, h.Start.UnixMicro())
	case eventstore.MessageDelivered:
		if start, first := f.pending.deliver(h.Channel, id); first {
			return m.firstDelivery.add(h.At.UnixMicro() - start)
		}
	case eventstore.MessageAcked:
		if start, ok := f.pending.remove(h.Channel, id); ok {
			return m.ack.add(h.At.UnixMicro() - start)
		}
	default:
		f.pending.remove(h.Channel, id)
	}
	return nil
}
