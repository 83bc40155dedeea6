package eventstore

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// Digest is a SHA-256. In JSON and for people it is 64 hexadecimal digits.
type Digest [sha256.Size]byte

// String is the digest in hexadecimal.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// ParseDigest reads what String wrote.
func ParseDigest(s string) (d Digest, err error) {
	if err := d.UnmarshalText([]byte(s)); err != nil {
		return Digest{}, err
	}
	return d, nil
}

// MarshalText is String.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText is ParseDigest.
func (d *Digest) UnmarshalText(text []byte) error {
	if len(text) != hex.EncodedLen(len(d)) {
		return fmt.Errorf("parse digest %q: not %d hexadecimal digits", text, hex.EncodedLen(len(d)))
	}
	if _, err := hex.Decode(d[:], text); err != nil {
		return fmt.Errorf("parse digest %q: %w", text, err)
	}
	return nil
}

// sealAlgorithm names how digests are made. Whatever changes that, a column of the
// log among them, gets another name, and this one goes on to be verified.
const sealAlgorithm = "leat-sha256-1"

// Block is a part of a seal's range with a digest of its own, so that a change is
// found in few events. It begins behind the block before.
type Block struct {
	To     Position `json:"to"`
	Events int64    `json:"events"`
	Digest Digest   `json:"digest"`
}

// Seal is what a log.sealed event says: the digest of the events from From to To,
// over the digest of the seal before. Every position up to To was settled.
type Seal struct {
	From      Position `json:"from"`
	To        Position `json:"to"`
	Events    int64    `json:"events"`
	Bytes     int64    `json:"bytes"` // that were digested
	Digest    Digest   `json:"digest"`
	Previous  Digest   `json:"previous"` // of the first seal: zeros
	Algorithm string   `json:"algorithm"`
	Blocks    []Block  `json:"blocks"`

	Position Position `json:"-"` // of the event
}

// digest is what Digest has to be.
func (s *Seal) digest() Digest {
	text := append([]byte(s.Algorithm), 0)
	text = append(text, s.Previous[:]...)
	for _, n := range []int64{int64(s.From), int64(s.To), s.Events, s.Bytes, int64(len(s.Blocks))} {
		text = binary.BigEndian.AppendUint64(text, uint64(n))
	}
	for _, b := range s.Blocks {
		text = binary.BigEndian.AppendUint64(text, uint64(b.To))
		text = binary.BigEndian.AppendUint64(text, uint64(b.Events))
		text = append(text, b.Digest[:]...)
	}
	return sha256.Sum256(text)
}

// parseSeal reads the data of a log.sealed event.
func parseSeal(data []byte) (Seal, error) {
	var s Seal
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&s)
	return s, err
}

// Bounds of a seal: what is sealed at once, and how finely a change is located.
const (
	sealEvents  = 65_536
	sealBytes   = 64 << 20
	blockEvents = 1024
)

// blocker makes the digests of blocks out of events in their order.
type blocker struct {
	hasher hasher
	events int64 // of the block
	bytes  int64 // of all blocks
}

// add takes an event into the block.
func (b *blocker) add(row [][]byte) {
	b.bytes += b.hasher.add(row)
	b.events++
}

// end gives the block up to a position and begins the next.
func (b *blocker) end(to Position) Block {
	block := Block{To: to, Events: b.events, Digest: b.hasher.sum()}
	b.events = 0
	return block
}
