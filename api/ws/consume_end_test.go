package ws_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
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
	"leat/projections"
)

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

// F28: while the database is away the consumer stays connected, is told, and goes on.
func TestF28ConsumerOutlastsDatabase(t *testing.T) {
	t.Parallel()
	server := dbtest.Cluster(t, map[string]string{"fsync": "off"})
	pool, err := pgxpool.New(t.Context(), server.URL())
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	rebuilding, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- projections.New(pool, slog.New(slog.DiscardHandler)).Run(rebuilding) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	f := newFarm(t, pool, ws.Config{})
	f.declare("q", commands.Standard, commands.PolicyPatch{})
	p := f.consume("/q")
	server.Kill()
	trouble := p.expect(api.FrameError)
	require.Equal(t, eventstore.DatabaseUnavailable, trouble.Problem.Code)
	require.Zero(t, trouble.Close)
	p.send(`{"type":"ack","id":9,"receipts":["1:1"]}`)
	refused := p.expect(api.FrameError)
	require.Equal(t, eventstore.DatabaseUnavailable, refused.Problem.Code)
	require.Equal(t, int64(9), *refused.ID)
	require.NoError(t, server.Restart(t.Context()))
	require.Eventually(t, func() bool {
		_, err := f.broker.Publish(t.Context(), commands.PublishRequest{Channel: "q", Messages: []commands.Message{{Payload: []byte("x")}}})
		return err == nil
	}, patience, 50*time.Millisecond)
	for {
		if next := p.any(); next.Type == api.FrameDeliveries {
			require.Len(t, next.Deliveries, 1)
			break
		}
		// What it was told meanwhile: that the views are rebuilt.
	}
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
