package ws_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"leat/api"
	"leat/api/ws"
	"leat/commands"
	"leat/eventstore"
	"leat/migrations/dbtest"
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
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		_, data, err := p.conn.Read(ctx)
		require.NoError(p.t, err)
		f = pulled{}
		require.NoError(p.t, json.Unmarshal(data, &f), "%s", data)
		switch {
		case f.Type == api.FrameHeartbeat && kind != api.FrameHeartbeat:
		case f.Type == api.FrameDeliveries && kind == api.FrameSettled:
			p.pending = append(p.pending, f)
		default:
			require.Equal(p.t, kind, f.Type, "%s", data)
			return f
		}
	}
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

func TestConsume(t *testing.T) {
	t.Parallel()
	f := newFarm(t, dbtest.New(t), ws.Config{})
	f.declare("q", commands.FIFO, commands.PolicyPatch{Lease: new(time.Hour)})
	p := &puller{client: (&site{t: t, url: f.url}).dial("/q?prefetch=3&consumer=me")}
	first := p.expect(api.FrameConsuming)
	require.Equal(t, pulled{Type: "consuming", Queue: "q", Mode: "fifo", Prefetch: 3, Lease: "1h0m0s", Consumer: "me"}, first)

	// Bytes that are no JSON, and numbers that no float holds, come as they went.
	all := []string{`{"n":1234567890123456789, "a":"<&>"}`, "\xff\x00", "", "3", "4", "5", "6"}
	f.publish("q", all...)
	got := p.take(3)
	require.Equal(t, all[:3], payloads(got))
	require.Equal(t, 1, got[0].Attempt)
	require.Equal(t, "q", got[0].Channel)

	// All of a key must be settled before the next ones of it come.
	extended := p.settle("extend", `,"lease":"2h"`, got...)
	require.Equal(t, 3, extended.Settled)
	require.WithinRange(t, *extended.LeaseUntil, time.Now().Add(119*time.Minute), time.Now().Add(121*time.Minute))
	require.Equal(t, 1, p.settle("ack", "", got[0]).Settled)
	require.Equal(t, 1, p.settle("nack", `,"action":"discard","reason":"no"`, got[1]).Settled)
	require.Equal(t, 1, p.settle("release", "", got[2]).Settled)
	again := p.expect(api.FrameDeliveries).Deliveries // as many as there was room for at the moment
	require.Equal(t, all[2], string(again[0].Bytes()))
	require.Equal(t, 1, again[0].Attempt)
	result := p.settle("ack", "", append(again, got[0])...)
	require.Equal(t, []int{len(again), 1, 0}, []int{result.Settled, result.AlreadySettled, len(result.Failed)})
	for seen := 2 + len(again); seen < len(all); {
		last := p.expect(api.FrameDeliveries).Deliveries
		require.Equal(t, all[seen:seen+len(last)], payloads(last))
		p.settle("ack", "", last...)
		seen += len(last)
	}
	require.Empty(t, f.states())
}

// FS5: one message in hand at most, and many frames at once are answered in order.
func TestFS5PrefetchOverWebSocket(t *testing.T) {
	t.Parallel()
	f := newFarm(t, dbtest.New(t), ws.Config{Heartbeat: 100 * time.Millisecond})
	f.declare("q", commands.Standard, commands.PolicyPatch{Lease: new(time.Hour)})
	f.publish("q", numbered(10)...)
	p := f.consume("/q?prefetch=1")
	for i := range 10 {
		got := p.take(1)
		if i < 2 {
			p.expect(api.FrameHeartbeat) // and nothing else
		}
		require.Equal(t, 1, strings.Count(f.states(), "in_flight:1"))
		p.settle("ack", "", got...)
	}

	// Acks one by one, all at once, are answered in their order.
	many := f.consume("/q?prefetch=1000")
	f.publish("q", numbered(300)...)
	got := many.take(299)
	for i, d := range got {
		many.send(fmt.Sprintf(`{"type":"ack","id":%d,"receipts":[%q]}`, i, d.Receipt))
	}
	for i := range got {
		answer := many.expect(api.FrameSettled)
		require.Equal(t, []int64{int64(i), 1}, []int64{*answer.ID, int64(answer.Settled)})
	}
	p.settle("ack", "", p.take(1)...)
	require.Empty(t, f.states())
}

// G8: what is no frame ends the connection, and the broker goes on.
func TestBadConsumerFrames(t *testing.T) {
	t.Parallel()
	f := newFarm(t, dbtest.New(t), ws.Config{})
	f.declare("q", commands.Standard, commands.PolicyPatch{Lease: new(time.Hour)})
	f.publish("q", "x")
	for text, code := range map[string]eventstore.Code{
		`{`:                               eventstore.InvalidRequest,
		`[]`:                              eventstore.InvalidRequest,
		`7`:                               eventstore.InvalidRequest,
		`{}`:                              eventstore.InvalidField,
		`{"type":7}`:                      eventstore.InvalidField,
		`{"type":"commit"}`:               eventstore.InvalidField,
		`{"type":"ack","ids":1}`:          eventstore.UnknownField,
		`{"type":"ack","receipts":"1:1"}`: eventstore.InvalidField,
		`{"type":"ack","receipts":[1]}`:   eventstore.InvalidField,
		`{"type":"ack","id":"x"}`:         eventstore.InvalidField,
		`{"type":"nack","delay":5}`:       eventstore.InvalidField,
		`{"type":"ack","receipts":["` + strings.Repeat("1", 70_000) + `"]}`: eventstore.PayloadTooLarge,
	} {
		p := f.consume("/q")
		p.take(1)
		p.send(text)
		p.closed(api.CloseBadRequest, code)
		f.waitStates("ready:1")
	}
}

// A settlement that is refused is told by its id, and the connection goes on.
func TestRefusedSettlements(t *testing.T) {
	t.Parallel()
	f := newFarm(t, dbtest.New(t), ws.Config{})
	f.declare("q", commands.Standard, commands.PolicyPatch{Lease: new(time.Hour)})
	f.declare("other", commands.Standard, commands.PolicyPatch{Lease: new(time.Hour)})
	f.publish("q", "x")
	f.publish("other", "y")
	p, other := f.consume("/q"), f.consume("/other")
	got, foreign := p.take(1), other.take(1)
	for text, code := range map[string]eventstore.Code{
		`{"type":"ack","id":5,"receipts":[]}`:                            eventstore.BatchEmpty,
		`{"type":"release","id":5}`:                                      eventstore.BatchEmpty,
		`{"type":"ack","id":5,"receipts":["x"]}`:                         eventstore.ReceiptMalformed,
		`{"type":"nack","id":5,"receipts":["1:1"],"action":"eat"}`:       eventstore.InvalidField,
		`{"type":"nack","id":5,"receipts":["1:1"],"delay":"-5s"}`:        eventstore.InvalidField,
		`{"type":"extend","id":5,"receipts":["1:1"],"lease":"0s"}`:       eventstore.InvalidField,
		`{"type":"extend","id":5,"receipts":["1:1"],"lease":"1000000h"}`: eventstore.InvalidField,
	} {
		p.send(text)
		answer := p.expect(api.FrameError)
		require.Equal(t, code, answer.Problem.Code, text)
		require.Equal(t, int64(5), *answer.ID)
		require.Zero(t, answer.Close)
	}
	for _, kind := range []string{"ack", "nack", "extend", "release"} {
		result := p.settle(kind, "", foreign...)
		require.Zero(t, result.Settled)
		require.Equal(t, eventstore.ReceiptUnknown, result.Failed[0].Code)
	}
	require.Equal(t, 1, p.settle("ack", "", got...).Settled)
	require.Equal(t, eventstore.AlreadySettled, p.settle("nack", "", got...).Failed[0].Code)
	require.Equal(t, 1, other.settle("ack", "", foreign...).Settled)
}

// What cannot be consumed is told, with whether to come again.
func TestConsumeRefusals(t *testing.T) {
	t.Parallel()
	f := newFarm(t, dbtest.New(t), ws.Config{})
	f.declare("q", commands.Standard, commands.PolicyPatch{})
	f.declare("gone", commands.Standard, commands.PolicyPatch{})
	dial := func(path string) *client { return (&site{t: t, url: f.url}).dial(path) }
	dial("/nope").closed(api.CloseNotFound, eventstore.ChannelNotFound)
	dial("/q?prefetch=0").closed(api.CloseBadRequest, eventstore.InvalidField)
	dial("/q?prefetch=1001").closed(api.CloseBadRequest, eventstore.InvalidField)
	dial("/q?lease=1ns").closed(api.CloseBadRequest, eventstore.InvalidField)

	// A queue that is deleted, and one that is declared again.
	p := f.consume("/gone")
	require.NoError(t, f.broker.DeleteChannel(t.Context(), "", "gone", true))
	f.declare("gone", commands.Standard, commands.PolicyPatch{})
	p.closed(api.CloseNotFound, eventstore.ChannelNotFound)
	f.publish("gone", "x")
	f.consume("/gone").take(1)
}

// F8, F3: an ack that comes after the lease changes nothing, and the consumer
// gets the next messages meanwhile.
func TestF08LateAckOverWebSocket(t *testing.T) {
	t.Parallel()
	f := newFarm(t, dbtest.New(t), ws.Config{})
	f.declare("q", commands.Standard, commands.PolicyPatch{Retry: commands.RetryPatch{BaseDelay: new(time.Hour), MaxDelay: new(time.Hour)}})
	f.publish("q", "1", "2")
	p := f.consume("/q?prefetch=1&lease=300ms")
	first := p.take(1)
	second := p.take(1)
	require.Equal(t, []string{"1", "2"}, payloads(append(first, second...)))
	f.waitStates("delayed:2")
	require.Equal(t, eventstore.LeaseLost, p.settle("ack", "", first...).Failed[0].Code)
	f.waitStates("delayed:2")
}

// FS3: whatever ends a connection, the others get its messages at once, and it is
// still their first attempt.
func TestFS3DisconnectReleases(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(*puller){
		"closed": func(p *puller) { assert.NoError(p.t, p.conn.Close(websocket.StatusNormalClosure, "")) },
		"cut":    func(p *puller) { assert.NoError(p.t, p.conn.CloseNow()) },
		"silent": func(*puller) {}, // reads no more, and so answers no ping
	} {
		for _, mode := range []string{commands.Standard, commands.FIFO} {
			t.Run(name+" "+mode, func(t *testing.T) {
				t.Parallel()
				f := newFarm(t, dbtest.New(t), ws.Config{Ping: 200 * time.Millisecond, Pong: time.Second, Stuck: time.Second})
				f.declare("q", mode, commands.PolicyPatch{Lease: new(time.Hour)})
				f.publish("q", numbered(50)...)
				p := f.consume("/q?prefetch=50")
				got := p.take(50)
				p.settle("ack", "", got[:10]...)
				leave(p)
				other := f.consume("/q")
				again := other.take(40)
				require.Equal(t, payloads(got[10:]), payloads(again))
				for _, d := range again {
					require.Equal(t, 1, d.Attempt)
				}
			})
		}
	}
}

// consumerEnv makes the test binary a consumer of this URL.
const consumerEnv = "LEAT_TEST_CONSUME"

// consumeForEver says how many deliveries it got first, and then holds them.
func consumeForEver(url string) {
	conn, _, err := websocket.Dial(context.Background(), url, nil) //nolint:bodyclose // the library closes it
	for i := 0; err == nil && i < 2; i++ {
		var data []byte
		if _, data, err = conn.Read(context.Background()); err == nil && i == 1 {
			var f pulled
			err = json.Unmarshal(data, &f)
			fmt.Fprintln(os.Stdout, len(f.Deliveries))
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_, _, _ = conn.Read(context.Background())
}

// FS3, F8: kill -9 of a consumer.
func TestFS3KilledConsumer(t *testing.T) {
	t.Parallel()
	f := newFarm(t, dbtest.New(t), ws.Config{})
	f.declare("q", commands.Standard, commands.PolicyPatch{Lease: new(time.Hour)})
	f.publish("q", numbered(20)...)
	process := exec.CommandContext(t.Context(), os.Args[0])
	process.Env = append(os.Environ(), consumerEnv+"="+f.url+"/q?prefetch=20")
	out, err := process.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, process.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "20\n", line)
	require.Equal(t, "in_flight:20", f.states())
	require.NoError(t, process.Process.Kill())
	_ = process.Wait() // it was killed
	for _, d := range f.consume("/q").take(20) {
		require.Equal(t, 1, d.Attempt)
	}
}

// Acks that were sent before the connection ended count.
func TestAcksBeforeTheEnd(t *testing.T) {
	t.Parallel()
	f := newFarm(t, dbtest.New(t), ws.Config{})
	f.declare("q", commands.Standard, commands.PolicyPatch{Lease: new(time.Hour)})
	f.publish("q", numbered(100)...)
	p := f.consume("/q")
	for _, d := range p.take(100)[:60] {
		p.send(fmt.Sprintf(`{"type":"ack","receipts":[%q]}`, d.Receipt))
	}
	_ = p.conn.Close(websocket.StatusNormalClosure, "") // answers may still be on their way
	f.waitStates("ready:40")
}

// A stop says so, and what was outstanding is ready for the other broker, whose
// consumer need not wait for leases.
func TestConsumersOfTwoBrokers(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	a, b := newFarm(t, pool, ws.Config{}), newFarm(t, pool, ws.Config{})
	a.declare("q", commands.Standard, commands.PolicyPatch{Lease: new(time.Hour)})
	a.publish("q", numbered(100)...)
	var clients []*puller
	for range 5 {
		p := a.consume("/q?prefetch=20")
		p.take(20)
		clients = append(clients, p)
	}
	other := b.consume("/q")
	a.stop()
	for _, p := range clients {
		p.closed(api.CloseGoingAway, eventstore.ShuttingDown)
	}
	for _, d := range other.take(100) {
		require.Equal(t, 1, d.Attempt)
	}
}

// While the views are lost the consumer stays connected, is told, and goes on.
func TestConsumerOutlastsLostViews(t *testing.T) {
	t.Parallel()
	f := newFarm(t, dbtest.New(t), ws.Config{})
	f.declare("q", commands.Standard, commands.PolicyPatch{})
	p := f.consume("/q")
	_, err := f.pool.Exec(t.Context(), `select leat.lose_views()`)
	require.NoError(t, err)
	trouble := p.expect(api.FrameError)
	require.Equal(t, eventstore.ViewsRebuilding, trouble.Problem.Code)
	require.Zero(t, trouble.Close)
	f.publish("q", "x")
	p.send(`{"type":"ack","id":9,"receipts":["1:1"]}`)
	refused := p.expect(api.FrameError)
	require.Equal(t, eventstore.ViewsRebuilding, refused.Problem.Code)
	require.Equal(t, int64(9), *refused.ID)
	_, err = f.pool.Exec(t.Context(), `select leat.rebuild_views()`)
	require.NoError(t, err)
	require.Equal(t, 1, p.settle("ack", "", p.take(1)...).Settled)
}

// Consumers of two brokers that come and go all the time lose nothing, and what
// is acked stays so.
func TestConsumersComeAndGo(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	farms := []*farm{newFarm(t, pool, ws.Config{}), newFarm(t, pool, ws.Config{})}
	farms[0].declare("q", commands.FIFO, commands.PolicyPatch{Lease: new(time.Hour)})
	const total = 400
	messages := make([]commands.Message, total)
	for i := range messages {
		messages[i] = commands.Message{RoutingKey: strconv.Itoa(i % 20), Payload: []byte(strconv.Itoa(i))}
	}
	_, err := farms[0].broker.Publish(t.Context(), commands.PublishRequest{Channel: "q", Messages: messages})
	require.NoError(t, err)
	var wg sync.WaitGroup
	for worker := range 6 {
		wg.Go(func() {
			for round := 0; farms[0].states() != ""; round++ {
				comeAndGo(t, farms[(worker+round)%2].url+"/q?prefetch=7", round%3 == 0)
			}
		})
	}
	wg.Wait()
	var (
		acked int
		order bool
	)
	require.NoError(t, pool.QueryRow(t.Context(), `
		select count(*), bool_and(a.before is null or a.id > a.before) from (
			select i.id, lag(i.id) over (partition by p.routing_key order by e.position, i.n) as before
			from leat.events e
			cross join lateral unnest(e.message_ids) with ordinality i (id, n)
			join leat.events p on p.position = i.id
			where e.kind = 'message.acked') a`).Scan(&acked, &order))
	require.Equal(t, total, acked, "each once")
	require.True(t, order, "G4: each key in its order")
	var differences int
	require.NoError(t, pool.QueryRow(t.Context(), `select count(*) from leat.verify_views()`).Scan(&differences))
	require.Zero(t, differences)
}

// comeAndGo takes deliveries until a second passes without any, acks them, and
// goes: perhaps in the middle, leaving some.
func comeAndGo(t *testing.T, url string, early bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, url, nil) //nolint:bodyclose // the library closes it
	if !assert.NoError(t, err) {
		return
	}
	defer func() { _ = conn.CloseNow() }()
	for n := 0; n < 5; {
		idle, stop := context.WithTimeout(ctx, time.Second)
		_, data, err := conn.Read(idle)
		stop()
		if err != nil {
			return // nothing came
		}
		var f pulled
		assert.NoError(t, json.Unmarshal(data, &f))
		switch {
		case f.Type == api.FrameDeliveries && early && n > 1:
			return
		case f.Type == api.FrameDeliveries:
			assert.NoError(t, conn.Write(ctx, websocket.MessageText, []byte(`{"type":"ack","receipts":`+receipts(f.Deliveries)+`}`)))
		case f.Type == api.FrameSettled:
			n++
		}
	}
}
