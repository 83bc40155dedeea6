package httpapi_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// The whole log as NDJSON; each round is 200,000 events.
func BenchmarkReplay(b *testing.B) {
	const events = 200_000
	s := setup(b)
	s.declare("orders", "")
	_, err := s.pool.Exec(b.Context(), `
		insert into leat.events (kind, channel_id, routing_key, payload, actor)
		select 'message.published', leat.queue_id('orders'), 'customer-' || n % 1000,
			convert_to('{"order":' || n || ',"pad":"' || repeat('x', 150) || '"}', 'UTF8'), 'producer'
		from generate_series(1, $1::integer) n`, events)
	require.NoError(b, err)
	_, err = s.pool.Exec(b.Context(), `vacuum analyze leat.events`)
	require.NoError(b, err)
	request, err := http.NewRequestWithContext(b.Context(), http.MethodGet, s.url+"/v1/events", http.NoBody)
	require.NoError(b, err)
	request.Header.Set("Accept", "application/x-ndjson")
	for b.Loop() {
		response, err := http.DefaultClient.Do(request)
		require.NoError(b, err)
		n, err := io.Copy(io.Discard, response.Body)
		require.NoError(b, err)
		require.NoError(b, response.Body.Close())
		b.SetBytes(n)
	}
	b.ReportMetric(float64(events*b.N)/b.Elapsed().Seconds(), "events/s")
}
