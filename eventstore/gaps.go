package eventstore

import (
	"context"
	"fmt"
)

const trimGapsSQL = `-- eventstore.trimGaps
select leat.trim_gaps()`

// TrimGaps looks for partitions that somebody dropped by hand, and says so. Streams
// that have lost messages begin behind them.
func (s *Store) TrimGaps(ctx context.Context) error {
	var gaps string
	if err := s.pool.QueryRow(ctx, trimGapsSQL).Scan(&gaps); err != nil {
		return fmt.Errorf("look for gaps of the log: %w", FromPg(err))
	}
	if before := s.gaps.Swap(&gaps); gaps != "" && (before == nil || *before != gaps) {
		s.logger().Error("positions are gone from the log that retention has not dropped: somebody has dropped or detached their partitions",
			"positions", gaps)
	}
	return nil
}
