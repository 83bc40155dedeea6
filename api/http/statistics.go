package httpapi

import (
	"context"
	"net/http"
	"time"

	"leat/api"
	"leat/eventstore"
	"leat/queries"
)

// Async is what the API needs of the asynchronous projections. Each answers whether it
// changed anything.
type Async interface {
	Stop(ctx context.Context, name, actor string) (bool, error)
	Start(ctx context.Context, name, actor string) (bool, error)
	Rebuild(ctx context.Context, name, actor string, force bool) (bool, error)
	Retry(ctx context.Context, name, actor string) (bool, error)
	Skip(ctx context.Context, name, actor string) (bool, error)
}

const (
	defaultArrival = 5 * time.Second
	maxArrival     = time.Minute
	defaultSpan    = time.Hour
)

// arriving are the parameters of queries of asynchronous projections.
func arriving(more ...parameter) []parameter {
	return append(more,
		query[eventstore.Position]("minPosition", "wait until the log is counted up to here: the position that a command answered"),
		query[api.Duration]("wait", "for minPosition, at most 1m, default 5s; then the answer is busy"))
}

// arrive waits for minPosition, and answers how far the projection is.
func (s *server) arrive(c *call, projection string) (eventstore.Position, error) {
	q := &c.query
	at, patience := q.position("minPosition"), q.duration("wait")
	if patience > maxArrival {
		q.note("wait", "must be at most 1m")
	}
	if q.err != nil {
		return 0, q.err
	}
	if patience == 0 {
		patience = defaultArrival
	}
	return s.Queries.Arrive(c.ctx(), projection, at, patience)
}

var getStatisticsDoc = operation{
	id: "getStatistics", summary: "What happened in channels: counts, and latencies to the first delivery and to the ack",
	about: "It follows the log behind its commits, usually within a second; position says how far.",
	query: arriving(
		query[string]("channel", "only of this channel"),
		query[time.Time]("from", "default an hour before to; at most 31 days before it"),
		query[time.Time]("to", "default now"),
		query[api.Duration]("step", "of the intervals, whole minutes; default: one interval")),
	answers: ok[api.StatisticsList]("The statistics."),
}

func (s *server) getStatistics(c *call) error {
	q := &c.query
	f := queries.StatisticsFilter{Channel: q.filter("channel"), From: q.time("from"), To: q.time("to"), Step: q.duration("step")}
	position, err := s.arrive(c, "statistics")
	if err != nil {
		return err
	}
	if f.To.IsZero() {
		f.To = time.Now()
	}
	if f.From.IsZero() {
		f.From = f.To.Add(-defaultSpan)
	}
	found, f, err := s.Queries.Statistics(c.ctx(), f)
	if err != nil {
		return err
	}
	list := api.StatisticsList{From: f.From, To: f.To, Step: api.Duration(f.Step), Position: position, Statistics: make([]api.Statistics, len(found))}
	for i := range found {
		list.Statistics[i] = statisticsOf(&found[i])
	}
	return c.answer(http.StatusOK, list)
}

func statisticsOf(s *queries.Statistics) api.Statistics {
	return api.Statistics{
		Channel: s.Channel, From: s.From, To: s.To,
		Published: s.Published, Copied: s.Copied, Delivered: s.Delivered, Acked: s.Acked, Retried: s.Retried, LeaseExpired: s.LeaseExpired,
		Released: s.Released, DeadLettered: s.DeadLettered, Recovered: s.Recovered, Expired: s.Expired, Purged: s.Purged, Discarded: s.Discarded,
		FirstDelivery: latenciesOf(s.FirstDelivery), Ack: latenciesOf(s.Ack),
	}
}

func latenciesOf(l queries.Latencies) api.Latencies {
	return api.Latencies{
		Count: l.Count, P50: api.Duration(l.P50), P90: api.Duration(l.P90), P99: api.Duration(l.P99), Max: api.Duration(l.Max),
	}
}

var listConsumersDoc = operation{
	id: "listConsumers", summary: "List who took or settled messages, the last one first",
	query: arriving(
		query[string]("channel", "only in this channel"),
		query[int]("limit", "1 to 1000, default 100")),
	answers: ok[api.ConsumerList]("The consumers."),
}

func (s *server) listConsumers(c *call) error {
	channel, limit := c.query.filter("channel"), c.query.limit(queries.MaxLimit)
	position, err := s.arrive(c, "consumers")
	if err != nil {
		return err
	}
	found, err := s.Queries.Consumers(c.ctx(), channel, limit)
	if err != nil {
		return err
	}
	list := api.ConsumerList{Position: position, Consumers: make([]api.ConsumerActivity, len(found))}
	for i, a := range found {
		a.FirstSeen, a.LastSeen = a.FirstSeen.UTC(), a.LastSeen.UTC()
		list.Consumers[i] = api.ConsumerActivity(a)
	}
	return c.answer(http.StatusOK, list)
}

var listFailuresDoc = operation{
	id: "listFailures", summary: "List the routing keys that failed and why, most failures first",
	query: arriving(
		query[string]("channel", "only in this channel"),
		query[int]("limit", "1 to 1000, default 100")),
	answers: ok[api.FailureList]("The failures."),
}

func (s *server) listFailures(c *call) error {
	channel, limit := c.query.filter("channel"), c.query.limit(queries.MaxLimit)
	position, err := s.arrive(c, "failures")
	if err != nil {
		return err
	}
	found, err := s.Queries.Failures(c.ctx(), channel, limit)
	if err != nil {
		return err
	}
	list := api.FailureList{Position: position, Failures: make([]api.Failure, len(found))}
	for i, f := range found {
		f.FirstAt, f.LastAt = f.FirstAt.UTC(), f.LastAt.UTC()
		list.Failures[i] = api.Failure(f)
	}
	return c.answer(http.StatusOK, list)
}
