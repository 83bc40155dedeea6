package bench

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"

	"leat/commands"
	"leat/eventstore"
)

// chainShare is the part of the audit's events that a round seals.
const chainShare = 5

// The sides of the chain: what seals, and what verifies.
const (
	sealed   = leat + " seal"
	verified = leat + " verify"
)

// chain is a log that grows by a stretch in each round, so that there is something to
// seal.
type chain struct {
	bed    *bed
	queue  string
	before eventstore.Position   // the stretch lies behind it
	last   eventstore.Position   // of the stretch
	begin  eventstore.ChainPoint // the end of the chain before it
	sealed tally                 // of the stretch
}

// chainWorks seal and verify what was appended, against a digest of what COPY has of it.
func (l *lab) chainWorks() []work {
	ch := &chain{}
	return []work{{name: "audit/chain", sides: []side{
		{name: "copy+sha256", take: func(ctx context.Context, c *clock) (tally, error) { return l.digestCopy(ctx, c, ch) }},
		{name: sealed, take: func(ctx context.Context, c *clock) (tally, error) { return ch.seal(ctx, c) }},
		{name: verified, take: func(ctx context.Context, c *clock) (tally, error) { return ch.verify(ctx, c) }},
	}}}
}

// grow appends the stretch of a round.
func (ch *chain) grow(ctx context.Context, l *lab) (err error) {
	if ch.bed == nil {
		b, err := l.newDatabase(ctx, Parts{})
		if err != nil {
			return err
		}
		if ch.queue, err = declare(ctx, b, commands.Standard); err != nil {
			return err
		}
		if err := eventstore.New(b.node.Pool).SealAll(ctx, 0); err != nil {
			return err
		}
		ch.bed = b
	}
	batches := max(1, l.pastEvents()/chainShare/(pastBatch+2))
	first, last, err := l.fillPast(ctx, ch.bed, ch.queue, batches)
	ch.before, ch.last = first-1, last
	return err
}

func (l *lab) digestCopy(ctx context.Context, c *clock, ch *chain) (tally, error) {
	if err := ch.grow(ctx, l); err != nil {
		return tally{}, err
	}
	var got counter
	digest := sha256.New()
	if err := c.start(ctx); err != nil {
		return tally{}, err
	}
	err := copyEvents(ctx, ch.bed, io.MultiWriter(&got, digest), copyBinarySQL, int64(ch.before), int64(ch.last))
	if err != nil {
		return tally{}, fmt.Errorf("copy: %w", err)
	}
	digest.Sum(nil)
	return tally{messages: int(ch.last - ch.before), bytes: got.bytes}, c.stop(ctx)
}

func (ch *chain) seal(ctx context.Context, c *clock) (tally, error) {
	store := eventstore.New(ch.bed.node.Pool)
	var (
		done tally
		err  error
	)
	if ch.begin, err = endOfChain(ctx, store); err != nil {
		return tally{}, err
	}
	if err := c.start(ctx); err != nil {
		return tally{}, err
	}
	for {
		seal, err := store.Seal(ctx, 0)
		if err != nil {
			return tally{}, err
		}
		if seal == nil {
			break
		}
		done.messages += int(seal.Events)
		done.bytes += seal.Bytes
	}
	if err := c.stop(ctx); err != nil {
		return tally{}, err
	}
	ch.sealed = done
	if least := int(ch.last - ch.before); done.messages < least {
		return tally{}, fmt.Errorf("%w: %d sealed instead of %d", errCount, done.messages, least)
	}
	return done, nil
}

func endOfChain(ctx context.Context, store *eventstore.Store) (eventstore.ChainPoint, error) {
	seal, _, err := store.LastSeal(ctx)
	if err != nil || seal == nil {
		return eventstore.ChainPoint{}, err
	}
	return eventstore.ChainPoint{To: seal.To, Digest: seal.Digest, Seal: seal.Position}, nil
}

func (ch *chain) verify(ctx context.Context, c *clock) (tally, error) {
	store := eventstore.New(ch.bed.node.Pool)
	var done tally
	at := ch.begin
	if err := c.start(ctx); err != nil {
		return tally{}, err
	}
	for more := true; more; {
		page, err := store.VerifyChain(ctx, at, nil)
		if err != nil {
			return tally{}, err
		}
		if len(page.Faults) > 0 {
			return tally{}, fmt.Errorf("the chain is not whole: %s", page.Faults[0].Detail)
		}
		done.messages += int(page.Events)
		done.bytes += page.Bytes
		at, more = page.End, page.More
	}
	if err := c.stop(ctx); err != nil {
		return tally{}, err
	}
	if done.messages != ch.sealed.messages || done.bytes != ch.sealed.bytes {
		return tally{}, fmt.Errorf("%w: %d verified instead of %d", errCount, done.messages, ch.sealed.messages)
	}
	return done, nil
}
