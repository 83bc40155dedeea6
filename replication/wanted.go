package replication

import (
	"context"
	"errors"
	"time"
)

// wantedEvery is how often the tail is asked for, while it rests.
const wantedEvery = 200 * time.Millisecond

var errUnwanted = errors.New("nobody here reads a stream")

// awaitWanted waits until there is use for the tail; false means that ctx has ended.
func (t *Tail) awaitWanted(ctx context.Context) bool {
	if ctx.Err() == nil && t.cfg.Wanted() {
		return true
	}
	t.missing(errUnwanted.Error())
	ticker := time.NewTicker(wantedEvery)
	defer ticker.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-ticker.C:
			if t.cfg.Wanted() {
				return true
			}
		}
	}
	return false
}

// rest notes that the tail ended because it is not wanted.
func (t *Tail) rest() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.state.Slot, t.state.Reason = "", errUnwanted.Error()
	t.turn(ModeNotify)
}
