package async

import (
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"leat/eventstore"
)

// leastWait is how long to wait after an error; it is doubled for each that follows.
const leastWait = 50 * time.Millisecond

// errNothingFetched is an error of which the subscriber says that there are no messages.
var errNothingFetched = errors.New("the log could not be read: no answer and no error")

// backoff decides, between two transactions of the subscriber, when the next one is.
// It blocks until then, instead of telling a time to sleep, so that a wake-up ends it.
type backoff struct {
	runner *runner
	done   <-chan struct{}
}

// HandleError looks at how the transaction went; not at noMsg, which is also the
// subscriber's answer to errors of fetching, and is not told of errors of commits.
func (b *backoff) HandleError(_ watermill.LoggerAdapter, _ bool, err error) time.Duration {
	r := b.runner
	select {
	case <-b.done:
		return 0 // what ended with it is no trouble
	default:
	}
	if r.look.problem != nil {
		err = r.look.problem
	}
	if err == nil && !r.look.fetched {
		err = errNothingFetched
	}
	if err != nil {
		if r.size > 1 {
			r.size /= 2 // perhaps it was too much for a time-out, or the memory
		}
		b.pause(r.trouble.meets(r, err))
		return 0
	}
	r.trouble.ends(r)
	r.size = min(r.size*2, r.BatchSize)
	b.rest()
	return 0
}

// rest waits for something to do.
func (b *backoff) rest() {
	r := b.runner
	l := r.look
	switch {
	case l.status == statusGone:
		r.end()
	case l.batch != nil && l.batch.failed != nil:
		r.logger.Error("projection waits at an event that it cannot take: retry or skip it", "projection", r.projection.Name(),
			"generation", r.generation, "position", l.batch.done+1, "error", l.batch.failed)
	case l.batch != nil && l.batch.done < l.batch.settled:
		return // there is more
	case l.batch != nil:
		b.pause(r.Gather)
		r.looked = time.Now()
		return
	}
	timer := time.NewTimer(r.Look)
	defer timer.Stop()
	select {
	case <-b.done:
	case <-r.wake:
		b.pause(r.Gather - time.Since(r.looked))
	case <-timer.C:
	}
	r.looked = time.Now()
}

func (b *backoff) pause(d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-b.done:
	case <-timer.C:
	}
}

// trouble is a row of errors. The first one of a row is logged.
type trouble struct {
	wait  time.Duration
	since time.Time
}

// meets notes an error, and answers how long to wait.
func (t *trouble) meets(r *runner, err error) time.Duration {
	if t.wait == 0 {
		t.wait, t.since = leastWait, time.Now()
		if !errors.Is(err, errEnded) {
			r.logger.Warn("projection does not move", "projection", r.projection.Name(), "generation", r.generation,
				"error", err, "database", eventstore.Unreachable(err))
		}
		return t.wait
	}
	t.wait = min(t.wait*2, r.mostWait)
	return t.wait
}

// ends notes that it works again.
func (t *trouble) ends(r *runner) {
	if t.wait > 0 {
		r.logger.Info("projection moves again", "projection", r.projection.Name(), "generation", r.generation,
			"after", time.Since(t.since).Round(time.Millisecond))
	}
	*t = trouble{}
}
