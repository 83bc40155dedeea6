package commands

import (
	"context"
	"encoding/json"
	"time"

	"leat/eventstore"
)

// Number is a job of one item.
type Number int

func (Number) size() (items, weight int) { return 1, 1 }

// Coalescer is for tests without a database.
type Coalescer struct{ c coalescer[Number] }

// NewCoalescer makes a coalescer.
func NewCoalescer(flights, worth, maxItems int, run func([]Number) error, separable func(error) bool) *Coalescer {
	return &Coalescer{coalescer[Number]{
		flights: flights, worth: worth, maxItems: maxItems, maxWeight: 1 << 20, run: run, separable: separable,
	}}
}

// Submit is submit.
func (c *Coalescer) Submit(ctx context.Context, n Number) error { return c.c.submit(ctx, n) }

// CheckHeaders is checkHeaders.
func CheckHeaders(raw json.RawMessage) error { return checkHeaders(raw) }

// Statements are all the statements of the package.
func Statements() []string {
	return []string{
		ackSQL, alterChannelSQL, alterLinkSQL, claimSQL, closeCircuitSQL, consumeSQL, contentsSQL, deadStartSQL, declareChannelSQL,
		declareLinkSQL, declareRelaySQL, deleteChannelSQL, deleteLinkSQL, deleteRelaySQL, extendSQL, failRelaySQL, fatesSQL, findChannelSQL, nackSQL, openCircuitSQL,
		publishSQL, purgeDeadIDsSQL, purgeDeadSQL, purgeSQL, recoverIDsSQL, recoverSQL,
		redriveIDsSQL, redriveSQL, relayStepSQL, relaysSQL, releaseSQL, remainingSQL, skipRelaySQL, sweepSQL, trimSQL,
		countReplaySQL, planReplaySQL, republishSQL, resumeReplaySQL, startReplaySQL,
	}
}

// Waiting counts the polls that have found nothing and wait.
func (b *Broker) Waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, d := range b.dispatchers {
		for _, w := range d.waiters {
			if (w.tried || !d.drained.IsZero()) && !w.claiming {
				n++
			}
		}
	}
	return n
}

// ClaimSQL is claimSQL.
const ClaimSQL = claimSQL

// Flow is for tests without a database.
type Flow struct{ f flow }

// Add is add.
func (f *Flow) Add(now time.Time, messages int) { f.f.add(now, messages) }

// Grain is grain.
func (f *Flow) Grain(now time.Time, waiters int) int { return f.f.grain(now, waiters) }

// Outstanding is for tests without a database.
type Outstanding struct{ o outstanding }

// NewOutstanding is newOutstanding.
func NewOutstanding() *Outstanding { return &Outstanding{newOutstanding()} }

// Add is add.
func (o *Outstanding) Add(receipts []eventstore.Receipt, ends time.Time) { o.o.add(receipts, ends) }

// Remove is remove.
func (o *Outstanding) Remove(receipts []eventstore.Receipt) int { return o.o.remove(receipts) }

// Expire is expire.
func (o *Outstanding) Expire(now time.Time) time.Time { return o.o.expire(now) }

// All is all.
func (o *Outstanding) All() []eventstore.Receipt { return o.o.all() }
