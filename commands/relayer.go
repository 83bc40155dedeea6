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
select r.name, r.every from leat.relays r`

// task is a relay at work.
type task struct {
	name  string
	every time.Duration
}

// Run works until the context ends, and outlives the database being away.
func (r *Relayer) Run(ctx context.Context) error {
	var workers sync.WaitGroup
	defer workers.Wait()
	stops := map[task]context.CancelFunc{}
	defer func() {
		for _, stop := range stops {
			stop()
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
		for t, stop := range stops {
			if !tasks[t] {
				stop()
				delete(stops, t)
			}
		}
		for t := range tasks {
			if stops[t] != nil {
				continue
			}
			working, stop := context.WithCancel(ctx)
			stops[t] = stop
			workers.Go(func() { r.work(working, t) })
		}
	}
}

func (r *Relayer) tasks(ctx context.Context) (map[task]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, relayTimeout)
	defer cancel()
	rows, err := r.Pool.Query(ctx, relaysSQL)
	if err != nil {
		return nil, eventstore.FromPg(err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (t task, err error) {
		return t, row.Scan(&t.name, &t.every)
	})
	tasks := map[task]bool{}
	for _, t := range list {
		tasks[t] = true
	}
	return tasks, eventstore.FromPg(err)
}

// work moves the rows of one relay. A page that is refused is gone through row by
// row, up to the one that is bad.
func (r *Relayer) work(ctx context.Context, t task) {
	page, failing := relayPage, 0
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
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
