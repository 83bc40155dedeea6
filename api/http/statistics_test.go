package httpapi_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"leat/api"
	"leat/api/client"
	"leat/eventstore"
)

// What consumers did is counted, and a query may wait for what it wrote.
func TestStatistics(t *testing.T) {
	t.Parallel()
	s := setup(t)
	ctx := t.Context()
	s.declare("q", `{"policy":{"maxDeliveries":2,"retry":{"baseDelay":"0s"}}}`)
	s.declare("other", `{}`)
	broker, err := client.New(s.url, client.Options{Client: "ann"})
	require.NoError(t, err)
	defer broker.Close()
	s.must(201, http.MethodPost, "/v1/channels/q/messages", `{"messages":[{"routingKey":"k","payload":1},{"routingKey":"k","payload":2},{"payload":3}]}`)
	var receipts []string
	for _, d := range read[api.PollResult](s.must(200, http.MethodPost, "/v1/queues/q/poll", `{"max":10,"consumer":"bob"}`)).Deliveries {
		receipts = append(receipts, d.Receipt)
	}
	require.Len(t, receipts, 3)
	s.must(200, http.MethodPost, "/v1/queues/q/nack", `{"receipts":["`+receipts[0]+`"],"reason":"no stock"}`, header{"Leat-Client": "bob"})
	s.must(200, http.MethodPost, "/v1/queues/q/nack", `{"receipts":["`+receipts[1]+`"],"action":"deadLetter","reason":"no stock"}`, header{"Leat-Client": "bob"})
	settled := read[api.SettleResult](s.must(200, http.MethodPost, "/v1/queues/q/ack", `{"receipts":["`+receipts[2]+`"]}`, header{"Leat-Client": "bob"}))

	list, err := broker.Statistics(ctx, client.StatisticsFilter{Channel: "q", MinPosition: settled.Position})
	require.NoError(t, err)
	require.Len(t, list.Statistics, 1)
	require.GreaterOrEqual(t, list.Position, settled.Position)
	require.Equal(t, time.Duration(list.Step), list.To.Sub(list.From))
	got := list.Statistics[0]
	require.EqualValues(t, 3, got.FirstDelivery.Count)
	require.EqualValues(t, 1, got.Ack.Count)
	require.LessOrEqual(t, got.FirstDelivery.P50, got.FirstDelivery.Max)
	require.Positive(t, got.Ack.Max)
	got.FirstDelivery, got.Ack = api.Latencies{}, api.Latencies{}
	require.Equal(t, api.Statistics{
		Channel: "q", From: list.From, To: list.To, Published: 3, Delivered: 3, Acked: 1, Retried: 1, DeadLettered: 1,
	}, got)

	stepped, err := broker.Statistics(ctx, client.StatisticsFilter{From: list.From, To: list.To, Step: time.Minute})
	require.NoError(t, err)
	published := int64(0)
	for _, interval := range stepped.Statistics {
		require.Equal(t, "q", interval.Channel)
		require.Equal(t, time.Minute, interval.To.Sub(interval.From))
		published += interval.Published
	}
	require.EqualValues(t, 3, published)

	consumers, err := broker.Consumers(ctx, client.ActivityFilter{MinPosition: settled.Position})
	require.NoError(t, err)
	require.Len(t, consumers.Consumers, 1)
	bob := consumers.Consumers[0]
	require.False(t, bob.LastSeen.Before(bob.FirstSeen))
	bob.FirstSeen, bob.LastSeen = time.Time{}, time.Time{}
	require.Equal(t, api.ConsumerActivity{Channel: "q", Consumer: "bob", Delivered: 3, Acked: 1, Failed: 2}, bob)

	failures, err := broker.Failures(ctx, client.ActivityFilter{Channel: "q", Limit: 10, MinPosition: settled.Position})
	require.NoError(t, err)
	require.Len(t, failures.Failures, 1)
	k := failures.Failures[0]
	k.FirstAt, k.LastAt, k.LastMessage = time.Time{}, time.Time{}, 0
	require.Equal(t, api.Failure{Channel: "q", RoutingKey: "k", Reason: "no stock", Failures: 2, Dead: 1}, k)
	none, err := broker.Failures(ctx, client.ActivityFilter{Channel: "other"})
	require.NoError(t, err)
	require.Empty(t, none.Failures)
}

func TestStatisticsRefuse(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.declare("q", `{}`)
	for query, code := range map[string]eventstore.Code{
		"channel=nope": eventstore.ChannelNotFound,
		"channel=":     eventstore.InvalidField,
		"step=90s":     eventstore.InvalidField,
		"step=-1m":     eventstore.InvalidField,
		"from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z":         eventstore.InvalidField,
		"from=2026-01-01T00:00:00Z&to=2026-03-01T00:00:00Z":         eventstore.InvalidField,
		"from=2026-01-01T00:00:00Z&to=2026-01-03T00:00:00Z&step=1m": eventstore.InvalidField,
		"from=yesterday":                     eventstore.InvalidField,
		"wait=2m":                            eventstore.InvalidField,
		"minPosition=0":                      eventstore.InvalidField,
		"minPosition=987654321987&wait=10ms": eventstore.Busy,
		"limit=5":                            eventstore.UnknownField,
	} {
		require.Equal(t, code, s.call(http.MethodGet, "/v1/stats?"+query, "").problem().Code, query)
	}
	require.Equal(t, eventstore.InvalidField, s.call(http.MethodGet, "/v1/consumers?limit=0", "").problem().Code)
	require.Equal(t, eventstore.ChannelNotFound, s.call(http.MethodGet, "/v1/failures?channel=nope", "").problem().Code)
}

// A projection that meets a damaged event says so; somebody skips it, which is on record.
func TestProjectionsByHand(t *testing.T) {
	t.Parallel()
	s := setup(t)
	ctx := t.Context()
	s.declare("q", `{}`)
	broker, err := client.New(s.url, client.Options{Client: "ann"})
	require.NoError(t, err)
	defer broker.Close()
	find := func(name string) (found []api.Projection) {
		list, err := broker.Projections(ctx)
		require.NoError(t, err)
		for _, p := range list.Projections {
			if p.Name == name {
				found = append(found, p)
			}
		}
		return found
	}
	var bad eventstore.Position
	require.NoError(t, s.pool.QueryRow(context.Background(), `select leat.append('message.acked', 1, 'x', array[null]::bigint[])`).Scan(&bad))
	require.Eventually(t, func() bool {
		found := find("statistics")
		return len(found) == 1 && found[0].Failure != nil
	}, patience, 10*time.Millisecond)
	failed := find("statistics")[0]
	require.Equal(t, bad, failed.Failure.Position)
	require.Contains(t, failed.Failure.Error, "NULL")
	require.Positive(t, failed.LagPositions)
	require.Positive(t, failed.Lag)
	status, err := broker.Status(ctx)
	require.NoError(t, err)
	require.Len(t, status.Projections, 3)

	result, err := broker.RetryProjection(ctx, "statistics")
	require.NoError(t, err)
	require.True(t, result.Changed)
	require.Eventually(t, func() bool { return find("statistics")[0].Failure != nil }, patience, 10*time.Millisecond)
	result, err = broker.SkipProjection(ctx, "statistics")
	require.NoError(t, err)
	require.True(t, result.Changed)
	require.Eventually(t, func() bool { return find("statistics")[0].LagPositions == 0 }, patience, 10*time.Millisecond)
	result, err = broker.SkipProjection(ctx, "statistics")
	require.NoError(t, err)
	require.False(t, result.Changed)

	page, err := broker.Events(ctx, client.EventsFilter{
		Kinds: []eventstore.Kind{eventstore.ProjectionFailed, eventstore.ProjectionRetried, eventstore.ProjectionSkipped},
	})
	require.NoError(t, err)
	var told []string
	for _, e := range page.Events {
		told = append(told, e.Kind+" by "+e.Actor)
	}
	require.Equal(t, []string{
		"projection.failed by leat", "projection.retried by ann", "projection.failed by leat", "projection.skipped by ann",
	}, told)

	for _, turn := range []func(context.Context, string) (api.ProjectionResult, error){
		broker.StopProjection, broker.StartProjection, broker.RebuildProjection,
	} {
		result, err := turn(ctx, "failures")
		require.NoError(t, err)
		require.True(t, result.Changed)
	}
	require.Eventually(t, func() bool {
		found := find("failures")
		return len(found) == 1 && found[0].Generation == 2 && found[0].State == "live"
	}, patience, 10*time.Millisecond)
	require.Equal(t, eventstore.ProjectionNotFound, s.must(http.StatusNotFound, http.MethodPost, "/v1/projections/x/stop", "").problem().Code)
}
