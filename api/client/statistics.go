package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"leat/api"
	"leat/eventstore"
)

// StatisticsFilter chooses statistics. What is zero does not restrict.
type StatisticsFilter struct {
	Channel     string
	From, To    time.Time           // default the last hour
	Step        time.Duration       // whole minutes; default one interval
	MinPosition eventstore.Position // wait until the log is counted up to here
}

// Statistics reads what happened in channels.
func (c *Client) Statistics(ctx context.Context, f StatisticsFilter) (api.StatisticsList, error) {
	query := url.Values{}
	set(query, "channel", f.Channel)
	for name, at := range map[string]time.Time{"from": f.From, "to": f.To} {
		if !at.IsZero() {
			query.Set(name, at.UTC().Format(time.RFC3339Nano))
		}
	}
	if f.Step > 0 {
		query.Set("step", f.Step.String())
	}
	setNumber(query, "minPosition", int64(f.MinPosition))
	return call[api.StatisticsList](ctx, c, request{method: http.MethodGet, path: []string{"v1", "stats"}, query: query})
}

// ActivityFilter chooses consumers or failures. What is zero does not restrict.
type ActivityFilter struct {
	Channel     string
	Limit       int                 // 1 to 1000, default 100
	MinPosition eventstore.Position // wait until the log is counted up to here
}

func (f ActivityFilter) query() url.Values {
	query := url.Values{}
	set(query, "channel", f.Channel)
	setNumber(query, "limit", int64(f.Limit))
	setNumber(query, "minPosition", int64(f.MinPosition))
	return query
}

// Consumers lists who took or settled messages, the last one first.
func (c *Client) Consumers(ctx context.Context, f ActivityFilter) (api.ConsumerList, error) {
	return call[api.ConsumerList](ctx, c, request{method: http.MethodGet, path: []string{"v1", "consumers"}, query: f.query()})
}

// Failures lists the routing keys that failed and why, most failures first.
func (c *Client) Failures(ctx context.Context, f ActivityFilter) (api.FailureList, error) {
	return call[api.FailureList](ctx, c, request{method: http.MethodGet, path: []string{"v1", "failures"}, query: f.query()})
}

// Projections lists the views that follow the log behind its commits, with their lag.
func (c *Client) Projections(ctx context.Context) (api.ProjectionList, error) {
	return call[api.ProjectionList](ctx, c, request{method: http.MethodGet, path: []string{"v1", "projections"}})
}

// StopProjection stops one, at all brokers.
func (c *Client) StopProjection(ctx context.Context, name string) (api.ProjectionResult, error) {
	return c.turnProjection(ctx, name, "stop")
}

// StartProjection lets one go on that was stopped.
func (c *Client) StartProjection(ctx context.Context, name string) (api.ProjectionResult, error) {
	return c.turnProjection(ctx, name, "start")
}

// RebuildProjection builds one anew, beside the one that queries read. It is refused
// as events_gone where the log has lost its beginning.
func (c *Client) RebuildProjection(ctx context.Context, name string) (api.ProjectionResult, error) {
	return c.turnProjection(ctx, name, "rebuild")
}

// ForceRebuildProjection is RebuildProjection also where what one has of the lost
// beginning of the log will be gone.
func (c *Client) ForceRebuildProjection(ctx context.Context, name string) (api.ProjectionResult, error) {
	return call[api.ProjectionResult](ctx, c, request{
		method: http.MethodPost, path: []string{"v1", "projections", name, "rebuild"}, query: url.Values{"force": {"true"}},
	})
}

// RetryProjection lets one that failed try its event again.
func (c *Client) RetryProjection(ctx context.Context, name string) (api.ProjectionResult, error) {
	return c.turnProjection(ctx, name, "retry")
}

// SkipProjection lets one that failed go on behind its event.
func (c *Client) SkipProjection(ctx context.Context, name string) (api.ProjectionResult, error) {
	return c.turnProjection(ctx, name, "skip")
}

func (c *Client) turnProjection(ctx context.Context, name, verb string) (api.ProjectionResult, error) {
	return call[api.ProjectionResult](ctx, c, request{method: http.MethodPost, path: []string{"v1", "projections", name, verb}})
}
