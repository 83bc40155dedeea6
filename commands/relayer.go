package commands

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"leat/eventstore"
)

// Times and sizes of relays.
const (
	relaysEvery  = time.Second // between two looks for relays
	relayPage    = 1000        // rows of a step
	relayTimeout = 30 * time.Second
	maxRelayWait = 10 * time.Second // between two tries of a step that fails
)

// Relayer moves rows for all relays. Any number of them may run on one database;
// a relay is at one of them at a time.
type Relayer struct {
	Pool   *pgxpool.Pool
	Logger *slog.Logger
	// Wake is told the channels that may have got messages; may be nil.
	Wake func(channels ...eventstore.ChannelID)
}

const relaysSQL = `-- commands.relays
select r.name, r.every, r.failure is not null from leat.relays r`

// task is a relay at work.
type task struct {
	name  string
	every time.Duration
}

// worker is who moves the rows of a relay.
type worker struct {
	stop context.CancelFunc
	// again tells that nothing is known any more of why the relay failed: somebody
	// has skipped the row.
	again chan struct{}
}

// Run works until the context ends, and outlives the database being away.
func (r *Relayer) Run(ctx context.Context) error {
	var workers sync.WaitGroup
	defer workers.Wait()
	at := map[task]worker{}
	defer func() {
		for _, w := range at {
			w.stop()
		}
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		timer.Reset(relaysEvery)
		tasks, err := r.tasks(ctx)
		if err != nil {
			continue // the sweeper says that the database is away
		}
		for t, w := range at {
			if _, there := tasks[t]; !there {
				w.stop()
				delete(at, t)
			}
		}
		for t, failing := range tasks {
			w, there := at[t]
			if !there {
				working, stop := context.WithCancel(ctx)
				w = worker{stop, make(chan struct{})}
				at[t] = w
				workers.Go(func() { r.work(working, t, w.again) })
			}
			if !failing {
				select {
				case w.again <- struct{}{}:
				default:
				}
			}
		}
	}
}

// tasks are the relays, and whether each fails as far as others know.
func (r *Relayer) tasks(ctx context.Context) (map[task]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, relayTimeout)
	defer cancel()
	rows, err := r.Pool.Query(ctx, relaysSQL)
	if err != nil {
		return nil, eventstore.FromPg(err)
	}
	tasks := map[task]bool{}
	var (
		t       task
		failing bool
	)
	_, err = pgx.ForEachRow(rows, []any{&t.name, &t.every, &failing}, func() error {
		tasks[t] = failing
		return nil
	})
	return tasks, eventstore.FromPg(err)
}

// work moves the rows of one relay. A page that is refused is gone through row by
// row, up to the one that is bad.
func (r *Relayer) work(ctx context.Context, t task, again <-chan struct{}) {
	page, failing := relayPage, 0
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-again:
			if failing == 0 {
				continue // it comes by itself
			}
		}
		more, err := r.step(ctx, t, page)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && more:
			page, failing = min(2*page, relayPage), 0
			timer.Reset(0)
		case err == nil:
			page, failing = relayPage, 0
			timer.Reset(t.every)
		case page > 1 && refusedRow(err):
			page = 1
			timer.Reset(0)
		default:
			failing++
			r.failed(ctx, t, err, failing)
			timer.Reset(min(t.every<<min(failing-1, 10), max(maxRelayWait, t.every)))
		}
	}
}

// refusedRow reports whether a step failed for what is in it.
func refusedRow(err error) bool {
	return separable(err) && !errors.Is(err, &eventstore.Error{Code: eventstore.Busy})
}

const relayStepSQL = `-- commands.relayStep
select s.more, s.restored, s.channels, coalesce(s.failure, '') from leat.relay_step($1, $2) s`

// step moves a page; more says that there may be another one.
func (r *Relayer) step(ctx context.Context, t task, page int) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, relayTimeout)
	defer cancel()
	var (
		restored bool
		channels []eventstore.ChannelID
		failure  string
	)
	if err := queryRow(ctx, r.Pool, relayStepSQL, []any{t.name, page}, &more, &restored, &channels, &failure); err != nil {
		return false, err
	}
	if restored {
		r.Logger.Warn("the table of a relay is in another cluster than before, or began anew: "+
			"rows that were not moved are told by their offsets, once", "relay", t.name)
	}
	if len(channels) > 0 && r.Wake != nil {
		r.Wake(channels...)
	}
	if failure != "" {
		return false, &rowError{failure}
	}
	return more, nil
}

// rowError says which row is refused, and why. The relay has it already.
type rowError struct{ text string }

func (e *rowError) Error() string { return e.text }

const failRelaySQL = `-- commands.failRelay
update leat.relays r
set failure = $2, failed_at = clock_timestamp()
where r.name = $1 and r.failure is distinct from $2
returning true`

// failed says why a relay does not go on, to those who look at it too.
func (r *Relayer) failed(ctx context.Context, t task, err error, failing int) {
	if failing == 1 {
		r.Logger.Warn("relay: will be tried again", "relay", t.name, "error", err)
	}
	if _, noted := errors.AsType[*rowError](err); noted {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, relayTimeout)
	defer cancel()
	var changed bool
	text := strings.ReplaceAll(err.Error(), "\x00", "\uFFFD")
	noting := queryRow(ctx, r.Pool, failRelaySQL, []any{t.name, text}, &changed)
	if noting != nil && !errors.Is(noting, pgx.ErrNoRows) && failing == 1 {
		r.Logger.Warn("note that a relay fails", "relay", t.name, "error", noting)
	}
}
