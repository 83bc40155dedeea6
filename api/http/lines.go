package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"leat/api"
	"leat/eventstore"
)

// subscribeLines answers with messages, as text without an end.
func (s *server) subscribeLines(c *call, f framing, request eventstore.SubscribeRequest) error {
	control := http.NewResponseController(c.w)
	ctx, release := s.open.context(c.ctx(), func() {
		// A client that does not read must not hold up a stop.
		_ = control.SetWriteDeadline(time.Now().Add(endWithin))
	})
	defer func() {
		release()
		_ = control.SetWriteDeadline(time.Time{}) // of whatever comes next on the connection
	}()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	subscription, err := s.Streams.Subscribe(ctx, request)
	if err != nil {
		return endOf(ctx, err)
	}
	defer subscription.Close()
	at := subscription.Subscribed()
	header := c.w.Header()
	header.Set("Content-Type", f.contentType())
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no") // a proxy that collects would hold messages back
	header.Set(headerEpoch, at.Next.Epoch.String())
	header.Set(headerNext, at.Next.Offset.String())
	c.w.WriteHeader(http.StatusOK)

	w := lineWriter{c: c, control: control, patience: s.Stuck}
	err = w.write(ctx, f.begin(nil, at))
	for err == nil {
		err = w.next(ctx, f, subscription, s.Heartbeat)
	}
	info := infoOf(c.r)
	info.messages, info.end = w.messages, clientWent
	if err = endOf(ctx, err); w.broken || errors.Is(err, context.Canceled) {
		return nil
	}
	// The status is out: the reason goes where the messages go.
	p, _ := api.ProblemOf(err)
	p.Instance, p.RequestID = c.r.URL.EscapedPath(), requestID(c.r)
	s.logFailure(c, p, err)
	info.end = string(p.Code)
	_ = w.write(ctx, f.end(nil, p))
	return nil
}

// endWithin is how long the reason of an end may take.
const endWithin = 2 * time.Second

// endOf prefers why the context ended to that it did.
func endOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// lineWriter writes with a limit of time for each piece.
type lineWriter struct {
	c        *call
	control  *http.ResponseController
	patience time.Duration
	buffer   []byte
	messages int64
	broken   bool
}

// pieceSize is about how much is encoded before it is written.
const pieceSize = 256 << 10

// slowestReader is the rate in bytes a second at which large pieces may be taken.
const slowestReader = 64 << 10

// next passes a batch on, or a sign of life.
func (w *lineWriter) next(ctx context.Context, f framing, from api.Subscription, heartbeat time.Duration) error {
	batch, err := from.Next(ctx, heartbeat)
	if err != nil {
		return err
	}
	out := w.buffer[:0]
	if len(batch.Messages) == 0 || batch.Assigned {
		out = f.sign(out, &batch)
	}
	for _, m := range batch.Messages {
		if out = f.message(out, m); len(out) >= pieceSize {
			if err := w.put(ctx, out); err != nil {
				return err
			}
			out = out[:0]
		}
	}
	if err := w.write(ctx, out); err != nil {
		return err
	}
	w.messages += int64(len(batch.Messages))
	if w.buffer = out; cap(out) > 2*pieceSize || len(batch.Messages) == 0 {
		w.buffer = nil // an idle subscriber holds none
	}
	return nil
}

// write puts and flushes.
func (w *lineWriter) write(ctx context.Context, data []byte) error {
	if err := w.put(ctx, data); err != nil {
		return err
	}
	if err := w.control.Flush(); err != nil {
		w.broken = true
		return err
	}
	return nil
}

func (w *lineWriter) put(ctx context.Context, data []byte) error {
	patience := w.patience + time.Duration(len(data)/slowestReader)*time.Second
	err := w.control.SetWriteDeadline(time.Now().Add(patience))
	if err == nil && ctx.Err() != nil { // after that, or the stop would be overlooked
		err = w.control.SetWriteDeadline(time.Now().Add(endWithin))
	}
	if err == nil {
		_, err = w.c.w.Write(data)
	}
	w.broken = err != nil
	return err
}

// openAnswers are the answers without an end, which a stop of the broker ends.
type openAnswers struct {
	mu      sync.Mutex
	stopped bool
	last    int
	ends    map[int]func()
}

var errShuttingDown = eventstore.NewError(eventstore.ShuttingDown, "The broker stops; connect again.")

// context is one that ends with parent or the stop, until release. At the stop
// hurry is called, too.
func (o *openAnswers) context(parent context.Context, hurry func()) (ctx context.Context, release func()) {
	ctx, cancel := context.WithCancelCause(parent)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stopped {
		cancel(errShuttingDown)
	}
	o.last++
	id := o.last
	if o.ends == nil {
		o.ends = map[int]func(){}
	}
	o.ends[id] = func() {
		cancel(errShuttingDown)
		hurry()
	}
	return ctx, func() {
		cancel(nil)
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.ends, id)
	}
}

// stop ends them all, and those that come later.
func (o *openAnswers) stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stopped = true
	for _, end := range o.ends {
		end()
	}
}

// Headers of answers without an end.
const (
	headerEpoch = "Leat-Stream-Epoch"
	headerNext  = "Leat-Stream-Next"
)

// framing is how messages become text.
type framing interface {
	contentType() string
	begin(b []byte, at eventstore.Subscribed) []byte
	message(b []byte, m *eventstore.StreamMessage) []byte
	// sign is of life, or of other partitions.
	sign(b []byte, batch *eventstore.StreamBatch) []byte
	end(b []byte, p *api.Problem) []byte
}

// ndjson is one message a line.
type ndjson struct{}

func (ndjson) contentType() string { return ndjsonType }

func (ndjson) begin(b []byte, _ eventstore.Subscribed) []byte { return b }

func (ndjson) message(b []byte, m *eventstore.StreamMessage) []byte {
	return append(api.AppendStreamLine(b, m), '\n')
}

func (ndjson) sign(b []byte, _ *eventstore.StreamBatch) []byte { return append(b, '\n') }

func (ndjson) end(b []byte, p *api.Problem) []byte {
	b = append(b, `{"error":`...)
	return append(appendJSON(b, p), "}\n"...)
}

// sse is Server-Sent Events, as in the HTML standard.
type sse struct {
	// filtered: some messages do not come, so signs of life tell how far it is.
	filtered bool
}

const (
	// retryMillis is when a browser connects again; neverMillis when the same
	// would happen again, for it cannot be told not to.
	retryMillis = 2000
	neverMillis = 24 * 60 * 60 * 1000
)

func (sse) contentType() string { return sseType }

func (sse) begin(b []byte, at eventstore.Subscribed) []byte {
	b = appendRetry(b, retryMillis)
	b = append(b, "event: subscribed\ndata: "...)
	return append(appendJSON(b, api.SubscribedFrameOf(at)), "\n\n"...)
}

func (sse) message(b []byte, m *eventstore.StreamMessage) []byte {
	b = append(b, "id: "...)
	b = strconv.AppendInt(b, int64(m.Offset), 10)
	b = append(b, "\nevent: message\ndata: "...)
	return append(api.AppendStreamLine(b, m), "\n\n"...)
}

func (f sse) sign(b []byte, batch *eventstore.StreamBatch) []byte {
	if batch.Assigned {
		b = append(b, "event: assigned\ndata: "...)
		frame := api.AssignedFrame{Type: api.FrameAssigned, Partitions: append([]int{}, batch.Partitions...)}
		return append(appendJSON(b, frame), "\n\n"...)
	}
	b = append(b, ": heartbeat\n"...)
	if f.filtered && batch.Next.Offset > 0 {
		b = append(b, "id: "...)
		b = strconv.AppendInt(b, int64(batch.Next.Offset-1), 10)
		b = append(b, '\n')
	}
	return append(b, '\n')
}

func (sse) end(b []byte, p *api.Problem) []byte {
	retry := retryMillis
	if !api.CloseCodeOf(p.Code).Reconnect() {
		retry = neverMillis
	}
	b = append(appendRetry(b, retry), "event: error\ndata: "...)
	return append(appendJSON(b, p), "\n\n"...)
}

func appendRetry(b []byte, millis int) []byte {
	b = append(b, "retry: "...)
	return append(strconv.AppendInt(b, int64(millis), 10), '\n')
}

func appendJSON(b []byte, v any) []byte {
	data, err := api.Marshal(v)
	if err != nil {
		panic(err) // a struct of texts and numbers always has a JSON form
	}
	return append(b, data...)
}
