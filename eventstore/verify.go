package eventstore

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// FaultKind says what is wrong with a part of the log.
type FaultKind string

// What verification of the chain finds.
const (
	FaultChanged FaultKind = "changed" // as many events as were sealed, but not the same
	FaultRemoved FaultKind = "removed" // fewer
	FaultAdded   FaultKind = "added"   // more
	FaultSeal    FaultKind = "seal"    // a log.sealed event that no sealer wrote so
	FaultLink    FaultKind = "link"    // a seal does not follow on the one before, or there is none
)

// ChainFault is a part of the log that is not as it was sealed.
type ChainFault struct {
	Kind   FaultKind
	From   Position // the positions that it may be about
	To     Position
	Seal   Position // of the log.sealed event
	Sealed int64    // events that were sealed, where it is about events
	Found  int64    // events that are there
	Detail string   // a sentence for people
}

// ChainPoint is a place in the chain: a digest that covers everything up to a position.
type ChainPoint struct {
	To     Position
	Digest Digest
	Seal   Position // of the log.sealed event, 0 where the chain begins
}

// String is the place in one word.
func (p ChainPoint) String() string {
	return p.To.String() + ":" + p.Seal.String() + ":" + p.Digest.String()
}

// ParseChainPoint reads what String wrote.
func ParseChainPoint(s string) (ChainPoint, error) {
	parts := strings.Split(s, ":")
	if len(parts) != 3 {
		return ChainPoint{}, fmt.Errorf("parse place in the chain %q: not three parts", s)
	}
	to, err := ParsePosition(parts[0])
	if err != nil {
		return ChainPoint{}, err
	}
	seal, err := ParsePosition(parts[1])
	if err != nil {
		return ChainPoint{}, err
	}
	digest, err := ParseDigest(parts[2])
	return ChainPoint{to, digest, seal}, err
}

// ChainPage is what was found in a part of the chain.
type ChainPage struct {
	Begin   ChainPoint // behind which it was verified
	End     ChainPoint // of the last seal
	Seals   int
	Events  int64 // that were digested
	Bytes   int64
	Faults  []ChainFault
	Settled Position // up to here there could be seals
	Met     bool     // the expected digest is one of the chain's
	More    bool     // there are seals behind End
}

// How much a page verifies: some tenths of a second of work.
const (
	pageSeals  = 1000
	pageEvents = 1_000_000
	pageBytes  = 128 << 20
)

const sealsSQL = `-- eventstore.seals
select s.event,
       s.data
from leat.seals($1, $2) s`

// What is read is not dropped meanwhile.
const keepLogSQL = `-- eventstore.keepLog
lock table leat.events in access share mode`

const chainStartSQL = `-- eventstore.chainStart
select coalesce((e.data ->> 'to')::bigint, 0),
       coalesce(e.data ->> 'digest', '')
from (select) one
left join (
    leat.log_begin b
    join leat.events e on e.position = b.event and e.kind = 'log.dropped'
) on true`

// ChainStart is where the chain begins: at the first event, or where the log was
// dropped up to.
func (s *Store) ChainStart(ctx context.Context) (start ChainPoint, err error) {
	var digest string
	if err := s.pool.QueryRow(ctx, chainStartSQL).Scan(&start.To, &digest); err != nil {
		return start, fmt.Errorf("find the beginning of the chain: %w", FromPg(err))
	}
	if digest == "" { // nothing was sealed then: the first seal begins with the first position
		return ChainPoint{}, nil
	}
	start.Digest, err = ParseDigest(digest)
	return start, err
}

// VerifyChain verifies a page of the chain: that each seal follows on the one before,
// and that the events are those that were sealed. It begins behind a place that the
// caller trusts: ChainStart, the End of the page before, or one that was noted at
// another time. expect is a digest that the chain has to have, nil for none.
func (s *Store) VerifyChain(ctx context.Context, after ChainPoint, expect *Digest) (ChainPage, error) {
	page := ChainPage{Begin: after, End: after, Met: expect != nil && after.Digest == *expect}
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, keepLogSQL); err != nil {
			return err
		}
		var err error
		if page.Settled, err = settledPosition(ctx, tx); err != nil {
			return err
		}
		if err := page.checkBegin(ctx, tx); err != nil {
			return err
		}
		return page.verify(ctx, tx, expect)
	})
	if err != nil {
		return page, fmt.Errorf("verify the chain of the log: %w", FromPg(err))
	}
	return page, nil
}

const sealAtSQL = `-- eventstore.sealAt
select e.data ->> 'digest' = $2 and e.data ->> 'to' = $3::text
from leat.events e
where e.position = $1
  and e.kind = 'log.sealed'
union all
select true
from leat.log_begin b
where b.first_position > $1`

// checkBegin looks whether the seal that the page goes on from is there, unless it has
// left the log.
func (p *ChainPage) checkBegin(ctx context.Context, tx pgx.Tx) error {
	if p.Begin.Seal == 0 {
		return nil
	}
	rows, err := tx.Query(ctx, sealAtSQL, p.Begin.Seal, p.Begin.Digest.String(), p.Begin.To.String())
	if err != nil {
		return err
	}
	same, err := pgx.CollectRows(rows, pgx.RowTo[bool])
	if err == nil && !slices.Contains(same, true) {
		p.fault(ChainFault{
			Kind: FaultLink, From: p.Begin.To, To: p.Begin.To, Seal: p.Begin.Seal,
			Detail: "there is no such seal: the log has changed, or it is another one",
		})
	}
	return err
}

func (p *ChainPage) verify(ctx context.Context, tx pgx.Tx, expect *Digest) error {
	seals, err := p.seals(ctx, tx)
	if err != nil {
		return err
	}
	for len(seals) > 0 && p.Events < pageEvents && p.Bytes < pageBytes {
		n, events := 1, seals[0].Events
		for n < len(seals) && events < sealEvents && seals[n].From == seals[n-1].To+1 {
			events += seals[n].Events
			n++
		}
		if err := p.verifyEvents(ctx, tx, seals[:n]); err != nil {
			return err
		}
		for i := range seals[:n] {
			p.Met = p.Met || (expect != nil && seals[i].Digest == *expect)
		}
		p.End = seals[n-1].point()
		p.Seals += n
		seals = seals[n:]
	}
	p.More = p.More || len(seals) > 0
	return nil
}

// seals reads the page's seals and holds each against the one before. Those that
// cannot be read, or do not fit, are faults, and left out.
func (p *ChainPage) seals(ctx context.Context, tx pgx.Tx) (seals []Seal, err error) {
	rows, err := tx.Query(ctx, sealsSQL, p.Begin.Seal, pageSeals)
	if err != nil {
		return nil, err
	}
	var (
		event Position
		data  []byte
		last  = p.End
		read  int
	)
	_, err = pgx.ForEachRow(rows, []any{&event, &data}, func() error {
		read++
		seal, bad := parseSeal(data)
		seal.Position = event
		if bad != nil {
			p.fault(ChainFault{Kind: FaultSeal, From: event, To: event, Seal: event, Detail: "the seal cannot be read: " + bad.Error()})
		} else if p.fits(&seal, last) {
			last = seal.point()
			seals = append(seals, seal)
		}
		return nil
	})
	p.More = read == pageSeals
	return seals, err
}

// fits holds a seal against the one before. One that leaves a gap is still good for
// its events.
func (p *ChainPage) fits(s *Seal, last ChainPoint) bool {
	fault := ChainFault{Kind: FaultSeal, From: s.From, To: s.To, Seal: s.Position}
	switch {
	case s.To <= p.Begin.To && p.Begin.Seal == 0:
		return false // of events that have left the log
	case s.From <= last.To:
		fault.Detail = fmt.Sprintf("a second seal of positions up to %d", min(last.To, s.To))
	case s.Algorithm != sealAlgorithm:
		fault.Detail = fmt.Sprintf("the algorithm %q is not known", s.Algorithm)
	case s.Position <= s.To || !s.whole():
		fault.Detail = "the seal contradicts itself"
	case s.digest() != s.Digest:
		fault.Detail = "the seal's digest is not that of what it says"
	case s.From > last.To+1:
		p.fault(ChainFault{
			Kind: FaultLink, From: last.To + 1, To: s.From - 1, Seal: s.Position,
			Detail: "there is no seal of these positions any more",
		})
		return true
	case s.Previous != last.Digest:
		p.fault(ChainFault{
			Kind: FaultLink, From: last.To, To: s.From, Seal: s.Position,
			Detail: fmt.Sprintf("the seal follows on %s, and not on %s", s.Previous, last.Digest),
		})
		return true
	default:
		return true
	}
	p.fault(fault)
	return false
}

func (s *Seal) point() ChainPoint { return ChainPoint{s.To, s.Digest, s.Position} }

// whole reports whether the blocks are the seal's.
func (s *Seal) whole() bool {
	events, to := int64(0), s.From-1
	for _, b := range s.Blocks {
		if b.Events < 0 || b.To < to {
			return false
		}
		events += b.Events
		to = b.To
	}
	return to == s.To && events == s.Events && s.To >= s.From
}

func (p *ChainPage) fault(f ChainFault) { p.Faults = append(p.Faults, f) }

// verifyEvents digests the events of seals that follow on each other.
func (p *ChainPage) verifyEvents(ctx context.Context, tx pgx.Tx, seals []Seal) error {
	var (
		b       blocker
		pending []sealedBlock
	)
	for i := range seals {
		from := seals[i].From
		for _, block := range seals[i].Blocks {
			pending = append(pending, sealedBlock{block, from, seals[i].Position})
			from = block.To + 1
		}
	}
	next := func() {
		p.hold(pending[0], b.end(pending[0].To))
		pending = pending[1:]
	}
	err := readRange(ctx, tx, seals[0].From-1, seals[len(seals)-1].To, 0, func(row [][]byte) error {
		position, err := positionOf(row)
		if err != nil {
			return err
		}
		for position > pending[0].To {
			next()
		}
		b.add(row)
		p.Events++
		return nil
	})
	if err != nil {
		return err
	}
	for len(pending) > 0 {
		next()
	}
	p.Bytes += b.bytes
	return nil
}

// sealedBlock is a block as its seal has it.
type sealedBlock struct {
	Block
	from Position
	seal Position
}

// hold compares a block with what its events give now.
func (p *ChainPage) hold(sealed sealedBlock, found Block) {
	if sealed.Block == found {
		return
	}
	f := ChainFault{From: sealed.from, To: sealed.To, Seal: sealed.seal, Sealed: sealed.Events, Found: found.Events}
	switch {
	case found.Events < sealed.Events:
		f.Kind, f.Detail = FaultRemoved, fmt.Sprintf("%d of %d events are gone", sealed.Events-found.Events, sealed.Events)
	case found.Events > sealed.Events:
		f.Kind, f.Detail = FaultAdded, fmt.Sprintf("there are %d events more than the %d that were sealed", found.Events-sealed.Events, sealed.Events)
	default:
		f.Kind, f.Detail = FaultChanged, "at least one event is not what was sealed"
	}
	p.fault(f)
}
