package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"leat/api"
	"leat/eventstore"
)

// fakeQueue is a queue in memory with push consumers.
type fakeQueue struct {
	mode  string
	lease time.Duration

	mu       sync.Mutex
	messages []*fakeMessage // not settled, in order
	nacks    []api.NackFrame
	acked    []int
	released int
	extended int
	refuse   *api.Problem // of settlements
	changed  chan struct{}
	delivery int
}

type fakeMessage struct {
	n        int
	key      string
	attempt  int
	receipt  string    // "" is ready
	expires  time.Time // of the lease
	consumer *websocket.Conn
}

// anyFrame is any frame of a client.
type anyFrame struct {
	api.NackFrame
	Lease *api.Duration `json:"lease"`
}

func newFakeQueue(t *testing.T, mode string, lease time.Duration) (*fakeQueue, *httptest.Server) {
	t.Helper()
	q := &fakeQueue{mode: mode, lease: lease, changed: make(chan struct{})}
	mux := http.NewServeMux()
	var sessions sync.WaitGroup
	mux.HandleFunc("GET /v1/queues/q/consume", func(w http.ResponseWriter, r *http.Request) {
		sessions.Add(1)
		defer sessions.Done()
		q.serve(w, r)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		server.Close()
		sessions.Wait()
	})
	return q, server
}

func (q *fakeQueue) publish(keys ...string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, key := range keys {
		q.messages = append(q.messages, &fakeMessage{n: len(q.messages), key: key})
	}
	q.wake()
}

func (q *fakeQueue) wake() {
	close(q.changed)
	q.changed = make(chan struct{})
}

func (q *fakeQueue) serve(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	prefetch, _ := strconv.Atoi(r.URL.Query().Get("prefetch"))
	q.send(conn, api.ConsumingFrame{Type: api.FrameConsuming, Queue: "q", Mode: q.mode, Prefetch: prefetch, Lease: api.Duration(q.lease)})
	var pusher sync.WaitGroup
	pusher.Go(func() { q.push(ctx, conn, prefetch) })
	for {
		_, data, err := conn.Read(ctx)
		if err != nil {
			break
		}
		q.receive(conn, data)
	}
	cancel()
	pusher.Wait()
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, m := range q.messages {
		if m.consumer == conn && m.receipt != "" {
			m.receipt = ""
			m.attempt--
		}
	}
	q.wake()
}

func (q *fakeQueue) send(conn *websocket.Conn, frame any) {
	data, _ := api.Marshal(frame)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_ = conn.Write(ctx, websocket.MessageText, data) // the reader notices
}

// push delivers what is ready; of a FIFO queue nothing behind what is not.
func (q *fakeQueue) push(ctx context.Context, conn *websocket.Conn, prefetch int) {
	for {
		q.mu.Lock()
		outstanding := 0
		busy := map[string]bool{}
		for _, m := range q.messages {
			if m.receipt != "" {
				busy[m.key] = true
				if m.consumer == conn {
					outstanding++
				}
			}
		}
		q.delivery++
		var frame api.DeliveriesFrame
		for _, m := range q.messages {
			if m.receipt != "" || outstanding >= prefetch || (q.mode == "fifo" && busy[m.key]) {
				continue
			}
			outstanding++
			m.attempt++
			m.receipt, m.consumer = fmt.Sprintf("%d:%d", q.delivery, m.n+1), conn
			m.expires = time.Now().Add(q.lease)
			frame.Deliveries = append(frame.Deliveries, api.Delivery{
				Receipt: m.receipt, MessageID: eventstore.MessageID(m.n + 1), Channel: "q", RoutingKey: m.key, Attempt: m.attempt,
				Content: api.NewContent([]byte(strconv.Itoa(m.n)), api.ContentJSON, nil),
			})
		}
		changed := q.changed
		q.mu.Unlock()
		if len(frame.Deliveries) > 0 {
			q.send(conn, frame)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

func (q *fakeQueue) receive(conn *websocket.Conn, data []byte) {
	var f anyFrame
	if err := json.Unmarshal(data, &f); err != nil {
		return
	}
	q.mu.Lock()
	if q.refuse != nil && f.Type != api.FrameExtend {
		problem := q.refuse
		q.mu.Unlock()
		q.send(conn, api.ErrorFrame{Type: api.FrameError, Problem: problem, ID: &f.ID})
		return
	}
	answer := api.SettledFrame{Type: api.FrameSettled, ID: f.ID, Failed: []api.FailedReceipt{}}
	for _, receipt := range f.Receipts {
		if q.settle(&f, receipt) {
			answer.Settled++
		} else {
			answer.Failed = append(answer.Failed, api.FailedReceipt{Receipt: receipt, Code: eventstore.LeaseLost})
		}
	}
	q.wake()
	q.mu.Unlock()
	q.send(conn, answer)
}

func (q *fakeQueue) settle(f *anyFrame, receipt string) bool {
	i := slices.IndexFunc(q.messages, func(m *fakeMessage) bool { return m.receipt == receipt && time.Now().Before(m.expires) })
	if i < 0 {
		return false
	}
	m := q.messages[i]
	switch f.Type {
	case api.FrameAck:
		q.acked = append(q.acked, m.n)
		q.messages = slices.Delete(q.messages, i, i+1)
	case api.FrameNack:
		q.nacks = append(q.nacks, f.NackFrame)
		m.receipt = ""
		if f.Action != "retry" {
			q.messages = slices.Delete(q.messages, i, i+1)
		}
	case api.FrameRelease:
		q.released++
		m.attempt--
		m.receipt = ""
	case api.FrameExtend:
		q.extended++
		m.expires = time.Now().Add(q.lease)
	}
	return true
}

// steal takes a message away from its consumer, as an expired lease does.
func (q *fakeQueue) steal(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, m := range q.messages {
		if m.n == n {
			m.receipt = strings.Repeat("9", 10) + ":1"
		}
	}
}

func (q *fakeQueue) settled() (acked []int, left int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.acked), len(q.messages)
}
