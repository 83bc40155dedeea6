package queries

import (
	"context"
	"slices"
)

var reasons = []string{"rejected", "non_retryable", "retries_exhausted", "expired"}

// Reasons lists why messages die: a consumer refused it, named an error class
// that the queue does not retry, failed too often; or its time was over.
func Reasons() []string { return slices.Clone(reasons) }

// DeadLettersFilter chooses dead letters of a queue.
type DeadLettersFilter struct {
	RoutingKey  *string // nil is any
	Reason      string  // one of Reasons; "" is any
	Cursor      string  // from an earlier page
	Limit       int     // 1 to MaxLimit; 0 is DefaultLimit
	WithPayload bool
}

// DeadLetters lists the dead letters of a queue by message id. The second
// result is the cursor of the next page, "" on the last.
func (q *Queries) DeadLetters(ctx context.Context, queue string, f DeadLettersFilter) (page []Message, next string, err error) {
	return q.Messages(ctx, queue, MessagesFilter{
		State: Dead, RoutingKey: f.RoutingKey, Reason: f.Reason, Cursor: f.Cursor, Limit: f.Limit, WithPayload: f.WithPayload,
	})
}
