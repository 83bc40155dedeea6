package async

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"

	"leat/eventstore"
)

// blockSize is how many neighbouring message ids share a row: few enough that a row is
// small, enough that a batch of messages touches few rows.
const blockSize = 4096

// entry is a message that may still be delivered or acked.
type entry struct {
	start     int64 // microseconds since 1970
	delivered bool  // once at least
}

// blockKey is the key of a row of leat.pending_messages.
type blockKey struct {
	channel eventstore.ChannelID
	block   int64
}

type block struct {
	entries map[int64]entry // by message id
	stored  bool            // there is a row
	changed bool
}

// pending are the blocks that a batch touches.
type pending map[blockKey]*block

func keyOf(channel eventstore.ChannelID, id int64) blockKey { return blockKey{channel, id / blockSize} }

// want makes room for the block of a message; load fills it.
func (p pending) want(channel eventstore.ChannelID, id int64) {
	key := keyOf(channel, id)
	if p[key] == nil {
		p[key] = &block{entries: map[int64]entry{}}
	}
}

func (p pending) add(channel eventstore.ChannelID, id, start int64) {
	b := p[keyOf(channel, id)]
	b.entries[id] = entry{start: start}
	b.changed = true
}

// deliver marks a message, and answers since when it waited if this is its first delivery.
func (p pending) deliver(channel eventstore.ChannelID, id int64) (start int64, first bool) {
	b := p[keyOf(channel, id)]
	e, ok := b.entries[id]
	if !ok || e.delivered {
		return 0, false
	}
	e.delivered = true
	b.entries[id] = e
	b.changed = true
	return e.start, true
}

// remove answers since when it was there.
func (p pending) remove(channel eventstore.ChannelID, id int64) (start int64, ok bool) {
	b := p[keyOf(channel, id)]
	e, ok := b.entries[id]
	if ok {
		delete(b.entries, id)
		b.changed = true
	}
	return e.start, ok
}

// removeRange removes the messages from low to high, of which there may be millions.
func (p pending) removeRange(channel eventstore.ChannelID, low, high int64) {
	for key, b := range p {
		if key.channel != channel || key.block < low/blockSize || key.block > high/blockSize {
			continue
		}
		before := len(b.entries)
		maps.DeleteFunc(b.entries, func(id int64, _ entry) bool { return id >= low && id <= high })
		b.changed = b.changed || len(b.entries) != before
	}
}

// removeChannel removes what is loaded of a channel; its other rows are deleted.
func (p pending) removeChannel(channel eventstore.ChannelID) {
	for key, b := range p {
		if key.channel == channel {
			clear(b.entries)
			b.changed = true
		}
	}
}

// encode writes the entries of a block by id: the distance to the id before and
// whether it was delivered, then the distance to the time before. Neighbours were mostly
// published at one time, so a message takes two or three bytes.
func (b *block) encode(number int64) []byte {
	data := make([]byte, 0, 3*len(b.entries)+16)
	id, at := number*blockSize, int64(0)
	for _, next := range slices.Sorted(maps.Keys(b.entries)) {
		e := b.entries[next]
		distance := uint64(next-id) << 1
		if e.delivered {
			distance |= 1
		}
		data = binary.AppendUvarint(data, distance)
		data = binary.AppendVarint(data, e.start-at)
		id, at = next, e.start
	}
	return data
}

var errBlock = errors.New("a row of leat.pending_messages is damaged: rebuild the projection")

// decode reads what encode wrote.
func (b *block) decode(number int64, data []byte) error {
	id, at := number*blockSize, int64(0)
	for len(data) > 0 {
		distance, n := binary.Uvarint(data)
		if n <= 0 || distance>>1 >= blockSize {
			return errBlock
		}
		data = data[n:]
		since, n := binary.Varint(data)
		if n <= 0 {
			return errBlock
		}
		data = data[n:]
		id += int64(distance >> 1)
		at += since
		if id/blockSize != number {
			return errBlock
		}
		b.entries[id] = entry{start: at, delivered: distance&1 == 1}
	}
	return nil
}
