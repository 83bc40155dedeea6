package commands

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"leat/eventstore"
)

// sweepEvery bounds how late a due message becomes ready (design: 250 ms) and a
// lease that is over is noticed (design: 1 s).
const sweepEvery = 200 * time.Millisecond

// fullSweepShare keeps full sweeps to a twentieth of the time: under a held
// snapshot they walk index entries that cannot be removed.
const fullSweepShare = 20

// lateCommits is how far below the last sweep a bounded one looks.
const lateCommits = time.Minute

// Sweeper does what only time does: due messages become ready, leases end,
// messages expire. Any number of them may run on one database.
type Sweeper struct {
	Pool   *pgxpool.Pool
	Logger *slog.Logger
	// Wake is told the channels that have newly deliverable messages; may be nil.
	Wake func(channels ...eventstore.ChannelID)
}

// Run sweeps until ctx ends and outlives the database being away.
func (s *Sweeper) Run(ctx context.Context) error {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	var lastFull time.Time
	var took time.Duration
	healthy := true
	for {
		since := time.Now().Add(-lateCommits)
		full := time.Since(lastFull) >= fullSweepShare*took
		if full {
			since = time.Time{}
		}
		began := time.Now()
		err := s.Sweep(ctx, since)
		if full && err == nil {
			lastFull, took = time.Now(), time.Since(began)
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && healthy {
			s.Logger.Warn("sweep queues", "error", err)
		}
		healthy = err == nil
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

const sweepSQL = `-- commands.sweep
select channels, more
from leat.sweep($1)`

// Sweep does everything that is due now, page by page. since bounds the search
// from below by due time; the zero time does not.
func (s *Sweeper) Sweep(ctx context.Context, since time.Time) error {
	var from *time.Time
	if !since.IsZero() {
		from = &since
	}
	for more := true; more; {
		var channels []eventstore.ChannelID
		if err := s.Pool.QueryRow(ctx, sweepSQL, from).Scan(&channels, &more); err != nil {
			return fmt.Errorf("sweep: %w", eventstore.FromPg(err))
		}
		if len(channels) > 0 && s.Wake != nil {
			s.Wake(channels...)
		}
	}
	return nil
}
