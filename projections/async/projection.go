package async

import (
	"context"

	"github.com/jackc/pgx/v5"

	"leat/eventstore"
)

// Projection is a view that follows the log. Its rows bear the generation that made
// them: several generations may be there at once.
type Projection interface {
	// Name is that of its row, and never changes.
	Name() string
	// Version is that of its code. A greater one is built anew, beside the old view.
	Version() int
	// Apply puts the effects of the events in a range into the rows of its generation.
	// It keeps nothing in memory from one call to the next. An error leaves nothing
	// behind; if it is not the database's, the range has an event that Apply cannot
	// take.
	Apply(ctx context.Context, tx pgx.Tx, r Range) error
	// Drop removes some of the rows of a generation, and answers how many.
	Drop(ctx context.Context, tx pgx.Tx, generation int) (int64, error)
}

// Range is the events of the log behind After, up to UpTo, for one generation.
// All of them are settled.
type Range struct {
	Generation  int
	After, UpTo eventstore.Position
}

// All are the projections that a broker keeps.
func All() []Projection { return []Projection{Statistics{}, Consumers{}, Failures{}} }
