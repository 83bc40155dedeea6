package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"leat/api"
	"leat/eventstore"
	"leat/queries"
)

// Head says how far the log is settled.
type Head interface {
	// Wait waits until it is settled beyond a position, and says how far. It ends with
	// the context, whose error it then returns.
	Wait(ctx context.Context, after eventstore.Position) (eventstore.Position, error)
}

// eventFraming is how events become text.
type eventFraming interface {
	contentType() string
	event(b []byte, e *queries.Event) []byte
	life(b []byte) []byte
	end(b []byte, p *api.Problem) []byte
}

func (ndjson) event(b []byte, e *queries.Event) []byte { return eventOf(e).AppendLine(b) }

func (ndjson) life(b []byte) []byte { return append(b, '\n') }

func (sse) event(b []byte, e *queries.Event) []byte {
	b = append(b, "id: "...)
	b = strconv.AppendInt(b, int64(e.Position), 10)
	b = append(b, "\nevent: message\ndata: "...)
	return append(eventOf(e).AppendLine(b), '\n')
}

func (sse) life(b []byte) []byte { return append(b, ": heartbeat\n\n"...) }

// replayAhead is how many pieces are read while one is written: whoever reads slowly
// holds up nothing in the database.
const replayAhead = 2

// replay answers with all events of a choice. The first look decides the status.
func (s *server) replay(c *call, f eventFraming, filter queries.EventsFilter, follow bool) error {
	control := http.NewResponseController(c.w)
	ctx, release := s.open.context(c.ctx(), func() {
		// A client that does not read must not hold up a stop.
		_ = control.SetWriteDeadline(time.Now().Add(endWithin))
	})
	defer release()
	replay, err := s.Queries.Replay(ctx, filter)
	if err != nil {
		return err
	}
	c.w.Header().Set("Content-Type", f.contentType())
	c.w.Header().Set("X-Accel-Buffering", "no") // a proxy that collects would hold events back
	c.w.WriteHeader(http.StatusOK)
	if c.r.Method == http.MethodHead {
		return nil
	}
	w := lineWriter{c: c, control: control, patience: s.Stuck}
	err = w.write(ctx, nil)
	if err == nil {
		r := &replaying{Replay: replay, framing: f, head: s.Head, follow: follow, heartbeat: s.Heartbeat}
		err = r.copy(ctx, &w)
	}
	info := infoOf(c.r)
	info.messages, info.end = w.messages, "complete"
	if err == nil {
		return nil
	}
	info.end = clientWent
	if err = endOf(ctx, err); w.broken || errors.Is(err, context.Canceled) {
		return nil
	}
	// The status is out: the reason goes where the events go.
	p, _ := api.ProblemOf(err)
	p.Instance, p.RequestID = c.r.URL.EscapedPath(), requestID(c.r)
	s.logFailure(c, p, err)
	info.end = string(p.Code)
	_ = w.write(ctx, f.end(nil, p))
	return nil
}

// replaying is a replay on its way out.
type replaying struct {
	*queries.Replay
	framing   eventFraming
	head      Head
	follow    bool
	heartbeat time.Duration
	free      chan []byte
	told      time.Time // when something was sent last
}

// piece is some events as text.
type piece struct {
	text   []byte
	events int64
}

// copy reads in one goroutine and writes in another.
func (r *replaying) copy(ctx context.Context, w *lineWriter) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pieces := make(chan piece)
	r.free = make(chan []byte, replayAhead)
	for range replayAhead {
		r.free <- nil
	}
	failed := make(chan error, 1)
	go func() {
		defer close(pieces)
		failed <- r.read(ctx, pieces)
	}()
	for p := range pieces {
		if err := w.write(ctx, p.text); err != nil {
			cancel()
			for range pieces {
				continue // until the other one has ended
			}
			return err
		}
		w.messages += p.events
		r.free <- p.text
	}
	return <-failed
}

// read sends pieces until all is read, or without an end.
func (r *replaying) read(ctx context.Context, to chan<- piece) error {
	r.told = time.Now()
	for {
		for !r.Done() {
			if err := r.readOn(ctx, to); err != nil {
				return err
			}
		}
		if !r.follow || r.Complete() {
			return nil
		}
		if err := r.wait(ctx, to); err != nil {
			return err
		}
	}
}

// readOn sends what is found next, or now and then a sign of life.
func (r *replaying) readOn(ctx context.Context, to chan<- piece) error {
	var p piece
	select {
	case p.text = <-r.free:
	case <-ctx.Done():
		return ctx.Err()
	}
	p.text = p.text[:0]
	err := r.Next(ctx, func(e *queries.Event) {
		p.text = r.framing.event(p.text, e)
		p.events++
	})
	if err != nil {
		return err
	}
	if p.events == 0 && time.Since(r.told) >= r.heartbeat {
		p.text = r.framing.life(p.text)
	}
	if len(p.text) == 0 {
		r.free <- p.text
		return nil
	}
	return r.send(ctx, to, p)
}

func (r *replaying) send(ctx context.Context, to chan<- piece, p piece) error {
	r.told = time.Now()
	select {
	case to <- p:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// wait waits for more of the log.
func (r *replaying) wait(ctx context.Context, to chan<- piece) error {
	waiting, cancel := context.WithTimeout(ctx, r.heartbeat)
	defer cancel()
	settled, err := r.head.Wait(waiting, r.Settled())
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, context.DeadlineExceeded):
		return r.send(ctx, to, piece{text: r.framing.life((<-r.free)[:0])})
	case err != nil:
		return err
	}
	return r.Extend(ctx, settled)
}
