package ws

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"leat/api"
	"leat/eventstore"
)

// handler is what one kind of connection does.
type handler interface {
	// run works until ctx ends or there is nothing left to do, and says why.
	run(ctx context.Context, s *session) error
	// receive takes the client's frames, one after the other: valid JSON objects
	// with a type. It must not block for long: meanwhile no ping is answered. An
	// error ends the session.
	receive(ctx context.Context, s *session, kind string, frame []byte) error
}

// Summary is what there is to say of a session that is over.
type Summary struct {
	Messages int64         // that were sent
	Bytes    int64         // of frames that were sent
	Received int64         // frames
	Close    api.CloseCode // that the connection was closed with, 0 if the client went
	Reason   string
}

// session is one connection. One goroutine reads it, frames are written by one
// at a time, and it ends once, for the first reason that comes.
type session struct {
	server *Server
	conn   *websocket.Conn
	raw    net.Conn
	path   string // that was called
	id     string // of the request, for problems

	cancel  context.CancelCauseFunc
	ending  sync.Once
	parts   sync.WaitGroup
	writing chan struct{} // held by who writes
	stuck   *time.Timer   // of the frame that is being written; guarded by writing
	pings   pinger

	messages, bytes, received atomic.Int64
	closed                    api.CloseCode // what close did
	reason                    string
}

// errGone is the reason of a session whose client went, or whose connection broke.
var errGone = errors.New("connection is gone")

// serve upgrades the connection, and lets the handler work on it after it has
// returned: what net/http holds for a request, its goroutine included, costs more
// than an idle session. done is told the end. The error is an *eventstore.Error
// that nobody was told yet, because there is no connection to tell it on; done is
// not called then.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, h handler, done func(Summary)) error {
	ctx, cancel := context.WithCancelCause(context.Background())
	session := &session{
		server:  s,
		path:    r.URL.EscapedPath(),
		id:      w.Header().Get("X-Request-Id"),
		cancel:  cancel,
		writing: make(chan struct{}, 1),
	}
	err := session.accept(w, r)
	switch {
	case errors.Is(err, errGone):
		cancel(nil)
		done(Summary{})
	case err != nil:
		cancel(nil)
		return err
	default:
		s.add(session)
		go session.run(ctx, h, done)
	}
	return nil
}

// run serves the connection until it ends.
func (s *session) run(ctx context.Context, h handler, done func(Summary)) {
	defer s.server.remove(s)
	s.parts.Go(func() { s.read(ctx, h) })
	s.pings.start(s)
	s.end(guard(func() error { return h.run(ctx, s) }))
	s.pings.stop(s)
	s.parts.Wait()
	done(Summary{
		Messages: s.messages.Load(),
		Bytes:    s.bytes.Load(),
		Received: s.received.Load(),
		Close:    s.closed,
		Reason:   s.reason,
	})
}

// guard makes a panic an error: the broker outlives a fault in one session.
func guard(work func() error) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("panic: %v\n%s", fault, debug.Stack())
		}
	}()
	return work()
}

// end ends the session, if nothing else did before.
func (s *session) end(cause error) {
	s.ending.Do(func() {
		s.cancel(cause)
		s.parts.Go(func() { s.close(cause) })
	})
}

// cut ends all waiting for the peer.
func (s *session) cut() { _ = s.raw.SetDeadline(time.Now()) }

// closeWithin bounds how long the frame that says why may take.
const closeWithin = 2 * time.Second

// close tells the peer why, and closes the connection. It takes at most some
// seconds, whatever the peer does.
func (s *session) close(cause error) {
	if errors.Is(cause, errGone) {
		_ = s.conn.CloseNow()
		return
	}
	p, _ := api.ProblemOf(cause)
	p.Instance, p.RequestID = s.path, s.id
	s.closed, s.reason = api.CloseCodeOf(p.Code), string(p.Code)
	if s.closed == api.CloseInternal {
		s.server.config.Logger.Error("session failed", "request", s.id, "path", s.path, "code", p.Code, "error", withCause(cause))
	}
	if s.closed != api.CloseNoPong && s.closed != api.CloseTooSlow {
		s.writeLast(api.ErrorFrame{Type: api.FrameError, Problem: p, Close: s.closed})
	}
	_ = s.conn.Close(websocket.StatusCode(s.closed), s.reason)
}

// withCause adds what a refusal keeps from clients.
func withCause(err error) error {
	if e, ok := errors.AsType[*eventstore.Error](err); ok && e.Cause != nil {
		return fmt.Errorf("%w (%w)", err, e.Cause)
	}
	return err
}

// writeLast writes a frame if the peer takes it soon.
func (s *session) writeLast(frame any) {
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	data, err := api.Marshal(frame)
	if err != nil {
		return
	}
	select {
	case s.writing <- struct{}{}:
		// It is the last chance: that ctx closes the connection is right here.
		_ = s.conn.Write(ctx, websocket.MessageText, data)
		<-s.writing
	case <-ctx.Done():
	}
}

// send writes a frame of a wire type.
func (s *session) send(ctx context.Context, frame any) error {
	data, err := api.Marshal(frame)
	if err != nil {
		return err
	}
	return s.write(ctx, data)
}

// sendMessages writes a frame with n messages. The client may be slow to read
// it, and so to answer pings.
func (s *session) sendMessages(ctx context.Context, frame []byte, n int) error {
	s.pings.busy.Store(true)
	if err := s.write(ctx, frame); err != nil {
		return err
	}
	s.messages.Add(int64(n))
	return nil
}

var errTooSlow = eventstore.NewError(api.TooSlow, "A frame was not taken in time.")

// write writes a frame, and ends the session if the peer does not take it in
// time. Callers wait for each other.
func (s *session) write(ctx context.Context, frame []byte) error {
	select {
	case s.writing <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-s.writing }()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	patience := s.server.config.Stuck + time.Duration(len(frame)/slowest)*time.Second
	if s.stuck == nil {
		s.stuck = time.AfterFunc(patience, func() { s.end(errTooSlow) })
	} else {
		s.stuck.Reset(patience)
	}
	defer s.stuck.Stop()
	began := time.Now()
	// A context that ends would close the connection without a word: end does it.
	if err := s.conn.Write(context.Background(), websocket.MessageText, frame); err != nil {
		return fmt.Errorf("%w: %w", errGone, err)
	}
	s.bytes.Add(int64(len(frame)))
	if time.Since(began) > waited {
		s.pings.heard.Store(true)
	}
	return nil
}

// waited is how long a write takes that had to wait until the peer took
// something: proof that it is there.
const waited = 50 * time.Millisecond

// slowest is the rate in bytes a second at which large frames may be taken.
const slowest = 64 << 10

// read takes frames until the connection ends.
func (s *session) read(ctx context.Context, h handler) {
	for {
		// The context would close the connection without a word, too.
		kind, frame, err := s.readFrame(context.Background())
		if err == nil {
			s.pings.heard.Store(true)
			s.received.Add(1)
			err = guard(func() error { return h.receive(ctx, s, kind, frame) })
		}
		if err != nil {
			s.end(err)
			return
		}
	}
}

func (s *session) readFrame(ctx context.Context) (kind string, frame []byte, err error) {
	messageType, reader, err := s.conn.Reader(ctx)
	if err != nil {
		return "", nil, fmt.Errorf("%w: %w", errGone, err)
	}
	if messageType != websocket.MessageText {
		return "", nil, eventstore.NewError(eventstore.InvalidRequest, "Frames are text, not binary.")
	}
	data, err := io.ReadAll(io.LimitReader(reader, api.MaxClientFrame+1))
	if err != nil {
		return "", nil, fmt.Errorf("%w: %w", errGone, err)
	}
	if len(data) > api.MaxClientFrame {
		return "", nil, eventstore.NewError(eventstore.PayloadTooLarge, "A frame may have %d bytes.", api.MaxClientFrame)
	}
	kind, err = typeOf(data)
	return kind, data, err
}
