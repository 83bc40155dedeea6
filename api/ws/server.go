package ws

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"leat/api"
	"leat/eventstore"
)

// Config is what a Server is made of. Everything without a default is needed.
type Config struct {
	Streams   api.Streams
	Queues    Queues
	Origins   Origins       // whose pages may connect; default those of the broker's own host
	Logger    *slog.Logger  // default slog.Default()
	Ping      time.Duration // between two pings; default 20 s
	Pong      time.Duration // how long to wait for the answer; default 10 s
	Stuck     time.Duration // how long a frame may wait to be taken; default 60 s
	Heartbeat time.Duration // without messages, after which a sign of life is sent; default 15 s
}

// Server serves WebSockets until Shutdown.
type Server struct {
	config Config

	mu       sync.Mutex
	sessions map[*session]struct{}
	stopping bool
	running  sync.WaitGroup // the sessions
}

// New makes a server.
func New(config Config) *Server {
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	for _, d := range []struct {
		value     *time.Duration
		otherwise time.Duration
	}{
		{&config.Ping, 20 * time.Second},
		{&config.Pong, 10 * time.Second},
		{&config.Stuck, time.Minute},
		{&config.Heartbeat, 15 * time.Second},
	} {
		if *d.value == 0 {
			*d.value = d.otherwise
		}
	}
	return &Server{config: config, sessions: map[*session]struct{}{}}
}

var errShuttingDown = eventstore.NewError(eventstore.ShuttingDown, "The broker stops; connect again.")

// Shutdown closes all connections at once, and those that come from now on. It
// returns when the last one is gone. When ctx ends before, those that are left
// are cut off.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.stopping = true
	for session := range s.sessions {
		session.end(errShuttingDown)
	}
	s.mu.Unlock()

	gone := make(chan struct{})
	go func() {
		s.running.Wait()
		close(gone)
	}()
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	for session := range s.sessions {
		session.cut()
	}
	s.mu.Unlock()
	<-gone
	return ctx.Err()
}

// add registers a session; one that comes too late ends at once.
func (s *Server) add(session *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running.Add(1)
	s.sessions[session] = struct{}{}
	if s.stopping {
		session.end(errShuttingDown)
	}
}

func (s *Server) remove(session *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, session)
	s.running.Done()
}

// Refuse accepts a connection only to say why it cannot be served: browsers
// cannot read what refuses a handshake. Error and done are as of Subscribe.
func (s *Server) Refuse(w http.ResponseWriter, r *http.Request, refusal error, done func(Summary)) error {
	return s.serve(w, r, refused{refusal}, done)
}

type refused struct{ err error }

func (h refused) run(context.Context, *session) error { return h.err }

func (h refused) receive(context.Context, *session, string, []byte) error { return nil }
