package replication

import (
	"context"
	"time"
)

// overlap is how long the fallback goes on once the tail is back: others have to
// learn of it before they stop to notify.
const overlap = brokerLife

// fallBack runs the fallback while the mode asks for it.
func (t *Tail) fallBack(ctx context.Context) error {
	for ctx.Err() == nil {
		running, stop := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- t.cfg.Fallback(running) }()
		err := t.awaitBack(ctx, done)
		stop()
		if err == nil {
			err = <-done
		}
		if err != nil {
			return err
		}
		t.await(ctx, ModeNotify)
	}
	return nil
}

// awaitBack waits until the tail has been back for some time. An error is that of
// the fallback, which ended.
func (t *Tail) awaitBack(ctx context.Context, done chan error) error {
	for ctx.Err() == nil {
		var settled <-chan time.Time
		state, changed := t.Watch()
		if state.Mode == ModeWAL {
			settled = time.After(time.Until(state.Since.Add(overlap)))
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-settled:
			return nil
		case err := <-done:
			done <- err
			return err
		}
	}
	return nil
}

// await waits until the tail is in this mode.
func (t *Tail) await(ctx context.Context, mode Mode) {
	for state, changed := t.Watch(); state.Mode != mode; state, changed = t.Watch() {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}
