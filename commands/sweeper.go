package commands

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"leat/eventstore"
)

// Times of the sweeper.
const (
	sweepEvery    = 250 * time.Millisecond // at least, so that nothing is later than that
	sweepAtMost   = 20 * time.Millisecond  // between two sweeps that found nothing
	sweepTimeout  = 30 * time.Second
	sweepMargin   = 10 * time.Second // what a bounded sweep looks back
	maxSweepDelay = 5 * time.Second  // between two tries while the database is away
	trimEvery     = time.Second
	trimPage      = 5000 // messages of one transaction
)

// Sweeper does what only time does: due messages become ready, leases end,
// messages expire, streams are trimmed. Any number of them may run on one database; a Broker has one.
type Sweeper struct {
	Pool   *pgxpool.Pool
	Logger *slog.Logger
	// Wake is told the channels that have newly deliverable messages; may be nil.
	Wake func(channels ...eventstore.ChannelID)

	full    pacer     // under a held snapshot a full sweep walks what cannot be removed
	last    time.Time // of the last good sweep, by the server's clock
	failing int       // sweeps that failed in a row
	trimmed time.Time // when streams were trimmed last, or could not be
	stuck   bool      // the last time they could not
}

// Run sweeps until the context ends and outlives the database being away.
func (s *Sweeper) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		delay := s.sweep(ctx)
		s.trim(ctx)
		timer.Reset(delay)
	}
}

const trimSQL = `-- commands.trim
select leat.trim_streams($1)`

// trim holds streams to their retention, a page at a time.
func (s *Sweeper) trim(ctx context.Context) {
	if time.Since(s.trimmed) < trimEvery {
		return
	}
	var more bool
	trimming, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	err := queryRow(trimming, s.Pool, trimSQL, []any{trimPage}, &more)
	if err != nil && !s.stuck && ctx.Err() == nil {
		s.Logger.Warn("trim streams: will be tried again", "error", err)
	}
	s.stuck = err != nil
	if !more {
		s.trimmed = time.Now()
	}
}

// The pause until something is due is reckoned on the server, whose clock is
// the only one that counts.
const sweepSQL = `-- commands.sweep
select s.channels, coalesce(s.next_due - clock_timestamp(), interval '1 hour'), s.more, clock_timestamp()
from leat.sweep($1) s`

// sweep does one page and answers how long to wait until the next.
func (s *Sweeper) sweep(ctx context.Context) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	var (
		start    = time.Now()
		_, full  = s.full.due(start)
		since    = pgtype.Timestamptz{Time: s.last.Add(-sweepMargin), Valid: !full && !s.last.IsZero()}
		channels []eventstore.ChannelID
		due      pgtype.Interval
		more     bool
		now      time.Time
	)
	err := queryRow(ctx, s.Pool, sweepSQL, []any{since}, &channels, &due, &more, &now)
	if err != nil {
		return s.failed(ctx, err)
	}
	if s.failing > 0 {
		s.Logger.Info("sweeps work again", "failed", s.failing)
		s.failing = 0
	}
	if !since.Valid {
		s.full.ran(start)
	}
	s.last = now
	if len(channels) > 0 && s.Wake != nil {
		s.Wake(channels...)
	}
	switch {
	case more:
		return 0
	case due.Days > 0 || due.Months > 0:
		return sweepEvery
	default:
		return min(max(time.Duration(due.Microseconds)*time.Microsecond, sweepAtMost), sweepEvery)
	}
}

// failed logs the first of several errors, and answers how long to wait.
func (s *Sweeper) failed(ctx context.Context, err error) time.Duration {
	s.failing++
	rebuilding := errors.Is(err, &eventstore.Error{Code: eventstore.ViewsRebuilding})
	if s.failing == 1 && !errors.Is(ctx.Err(), context.Canceled) && !rebuilding {
		s.Logger.Warn("sweep due messages and leases: will be tried again", "error", err)
	}
	if rebuilding {
		return sweepEvery
	}
	return min(sweepEvery<<min(s.failing-1, 5), maxSweepDelay)
}
