package queries

import (
	"context"
	"time"
)

// DeadLettersFilter chooses dead letters of a queue.
type DeadLettersFilter struct {
	RoutingKey  *string   // nil is any
	Reason      string    // one of eventstore.DeathReasons; "" is any
	DiedAfter   time.Time // or at it; zero is any
	DiedBefore  time.Time // zero is any
	Cursor      string    // from an earlier page
	Limit       int       // 1 to MaxLimit; 0 is DefaultLimit
	AsOf        *Moment   // nil is now
	WithPayload bool
}

// DeadLetters lists the dead letters of a queue by message id. The second
// result is the cursor of the next page, "" on the last.
func (q *Queries) DeadLetters(ctx context.Context, queue string, f DeadLettersFilter) (page []Message, next string, err error) {
	return q.Messages(ctx, queue, MessagesFilter{
		State: Dead, RoutingKey: f.RoutingKey, Reason: f.Reason, DiedAfter: f.DiedAfter, DiedBefore: f.DiedBefore,
		AsOf: f.AsOf, Cursor: f.Cursor, Limit: f.Limit, WithPayload: f.WithPayload,
	})
}
