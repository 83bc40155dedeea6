package ws_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"leat/api"
	"leat/api/ws"
	"leat/commands"
)

// farm is a broker whose queues are consumed at /{queue}.
type farm struct {
	t       testing.TB
	pool    *pgxpool.Pool
	broker  *commands.Broker
	sockets *ws.Server
	url     string
	stop    func() // as the program does
}

func newFarm(t testing.TB, pool *pgxpool.Pool, config ws.Config) *farm {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	f := &farm{t: t, pool: pool, broker: commands.New(commands.Config{Pool: pool, Logger: logger})}
	config.Queues, config.Logger = f.broker, logger
	f.sockets = ws.New(config)
	server := httptest.NewServer(http.HandlerFunc(f.serve))
	f.url = server.URL
	running, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.broker.Run(running) }()
	f.stop = sync.OnceFunc(func() {
		ctx, cancelStop := context.WithTimeout(context.Background(), patience)
		defer cancelStop()
		require.NoError(t, f.sockets.Shutdown(ctx))
		cancel()
		require.NoError(t, <-done)
		server.Close()
	})
	t.Cleanup(f.stop)
	return f
}

func (f *farm) serve(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	request := commands.ConsumeRequest{
		Queue: strings.TrimPrefix(r.URL.Path, "/"), Consumer: query.Get("consumer"), Prefetch: 100, RoutingKeys: query["routingKeys"],
	}
	if n, err := strconv.Atoi(query.Get("prefetch")); err == nil {
		request.Prefetch = n
	}
	request.Lease, _ = time.ParseDuration(query.Get("lease"))
	if err := f.sockets.Consume(w, r, request, func(ws.Summary) {}); err != nil {
		http.Error(w, err.Error(), http.StatusTeapot)
	}
}

func (f *farm) declare(name, mode string, policy commands.PolicyPatch) {
	f.t.Helper()
	_, _, err := f.broker.DeclareChannel(f.t.Context(), "", commands.ChannelSpec{Name: name, Mode: mode, Policy: policy})
	require.NoError(f.t, err)
}

func (f *farm) publish(queue string, payloads ...string) {
	f.t.Helper()
	messages := make([]commands.Message, len(payloads))
	for i, p := range payloads {
		messages[i] = commands.Message{Payload: []byte(p)}
	}
	_, err := f.broker.Publish(f.t.Context(), commands.PublishRequest{Channel: queue, Messages: messages})
	require.NoError(f.t, err)
}

// states counts the messages of queue "q" by state, as "ready:2 dead:1".
func (f *farm) states() (got string) {
	f.t.Helper()
	require.NoError(f.t, f.pool.QueryRow(context.Background(), `
		select coalesce(string_agg(state || ':' || n, ' ' order by state), '')
		from (select state, count(*) as n from leat.queue_messages where channel = 'q' group by state) s`).Scan(&got))
	return got
}

// waitStates waits for states of queue "q".
func (f *farm) waitStates(want string) {
	f.t.Helper()
	require.Eventually(f.t, func() bool { return f.states() == want }, patience, 10*time.Millisecond, "want %s", want)
}

func numbered(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = strconv.Itoa(i)
	}
	return list
}

// puller is a client that consumes.
type puller struct {
	*client
	id      int64
	pending []pulled // deliveries that came before the answer to a settlement
}

// pulled is any frame of a consumer.
type pulled struct {
	Type           string
	ID             *int64
	Queue          string
	Mode           string
	Prefetch       int
	Lease          string
	Consumer       string
	Deliveries     []api.Delivery
	Settled        int
	AlreadySettled int
	Failed         []api.FailedReceipt
	LeaseUntil     *time.Time
	Problem        *api.Problem
	Close          api.CloseCode
}

// consume connects and reads the first frame.
func (f *farm) consume(path string) *puller {
	f.t.Helper()
	p := &puller{client: (&site{t: f.t, url: f.url}).dial(path)}
	p.expect(api.FrameConsuming)
	return p
}

func (p *puller) expect(kind string) (f pulled) {
	p.t.Helper()
	if kind == api.FrameDeliveries && len(p.pending) > 0 {
		f, p.pending = p.pending[0], p.pending[1:]
		return f
	}
	for {
		f = p.any()
		switch {
		case f.Type == api.FrameHeartbeat && kind != api.FrameHeartbeat:
		case f.Type == api.FrameDeliveries && kind == api.FrameSettled:
			p.pending = append(p.pending, f)
		default:
			require.Equal(p.t, kind, f.Type, "%+v", f)
			return f
		}
	}
}

// any reads the next frame.
func (p *puller) any() (f pulled) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, data, err := p.conn.Read(ctx)
	require.NoError(p.t, err)
	require.NoError(p.t, json.Unmarshal(data, &f), "%s", data)
	return f
}

// take reads n deliveries.
func (p *puller) take(n int) (list []api.Delivery) {
	p.t.Helper()
	for len(list) < n {
		list = append(list, p.expect(api.FrameDeliveries).Deliveries...)
	}
	require.Len(p.t, list, n)
	return list
}

// settle sends a settlement and reads its answer.
func (p *puller) settle(kind, more string, deliveries ...api.Delivery) pulled {
	p.t.Helper()
	p.id++
	p.send(fmt.Sprintf(`{"type":%q,"id":%d,"receipts":%s%s}`, kind, p.id, receipts(deliveries), more))
	f := p.expect(api.FrameSettled)
	require.Equal(p.t, p.id, *f.ID)
	return f
}

func receipts(deliveries []api.Delivery) string {
	list := make([]string, len(deliveries))
	for i, d := range deliveries {
		list[i] = d.Receipt
	}
	data, _ := json.Marshal(list)
	return string(data)
}

func payloads(deliveries []api.Delivery) []string {
	list := make([]string, len(deliveries))
	for i, d := range deliveries {
		list[i] = string(d.Bytes())
	}
	return list
}
