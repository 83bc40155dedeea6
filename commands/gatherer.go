package commands

import "time"

// Bounds of a gatherer's patience.
const (
	gatherShare = 4 // of the time that a batch takes
	maxGather   = 2 * time.Millisecond
)

// gatherer makes batches of callers that ask again and again: they were answered
// together, so they will be back at almost the same time, and one batch of all
// costs little more than the first one alone. So a batch that would be smaller
// than the last one waits for the others, at most a quarter of what the last one
// took. A caller that is alone never waits. A mutex of its user guards it.
type gatherer struct {
	last int           // callers in the last batch
	took time.Duration // by the last batch
	full chan struct{} // closed when enough have come; nil: nobody waits for that
}

// wait is called without the mutex that guards the call for it: it returns when
// as many callers have come as last time, or it has been long enough.
func (g *gatherer) wait(have int, worth bool) (wait func()) {
	if have == 0 || have >= g.last || worth || g.full != nil {
		return func() {}
	}
	full := make(chan struct{})
	g.full = full
	timer := time.NewTimer(min(g.took/gatherShare, maxGather))
	return func() {
		defer timer.Stop()
		select {
		case <-full:
		case <-timer.C:
		}
	}
}

// came says how many callers are there, and whether they are worth a batch.
func (g *gatherer) came(have int, worth bool) {
	if g.full != nil && (have >= g.last || worth) {
		close(g.full)
		g.full = nil
	}
}

// begin ends the wait: the batch leaves.
func (g *gatherer) begin() { g.full = nil }

// done notes a batch.
func (g *gatherer) done(callers int, took time.Duration) { g.last, g.took = callers, took }
