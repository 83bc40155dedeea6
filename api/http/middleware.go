package httpapi

import (
	"bufio"
	"context"
	"crypto/rand"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"time"

	"leat/api"
	"leat/eventstore"
)

// requestInfo travels with a request.
type requestInfo struct {
	id  string
	hot bool // a route that busy clients call all the time

	// Of a subscription that is over.
	end      string // why; "" for other requests
	messages int64  // that were sent
}

type requestInfoKey struct{}

func infoOf(r *http.Request) *requestInfo {
	if info, ok := r.Context().Value(requestInfoKey{}).(*requestInfo); ok {
		return info
	}
	return &requestInfo{}
}

// requestID is what the log calls the request.
func requestID(r *http.Request) string { return infoOf(r).id }

// middleware wraps everything: id, log, recovery, and the refusal of calls that
// a page of another site makes through somebody's browser.
func (s *server) middleware(next http.Handler) http.Handler {
	guard := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		started := time.Now()
		info := &requestInfo{id: chooseID(r.Header.Get("X-Request-Id"))}
		w.Header().Set("X-Request-Id", info.id)
		r = r.WithContext(context.WithValue(r.Context(), requestInfoKey{}, info))
		recorder := &recorder{ResponseWriter: w}
		defer s.finish(recorder, r, started)
		if err := guard.Check(r); err != nil {
			s.refuse(&call{w: recorder, r: r}, eventstore.NewError(api.CrossOrigin, "The browser says that another site makes this call."))
			return
		}
		next.ServeHTTP(recorder, r)
	})
}

// finish logs the request, and answers it if the handler panicked.
func (s *server) finish(w *recorder, r *http.Request, started time.Time) {
	fault := recover()
	if fault == http.ErrAbortHandler { //nolint:errorlint // net/http compares so too
		panic(fault)
	}
	if fault != nil {
		s.Logger.ErrorContext(r.Context(), "handler panicked", "request", requestID(r), "method", r.Method,
			"path", r.URL.Path, "panic", fault, "stack", string(debug.Stack()))
		if w.status != 0 {
			panic(http.ErrAbortHandler) // half an answer is out
		}
		p := api.NewProblem(eventstore.Internal, "The broker failed; its log tells why.")
		p.RequestID = requestID(r)
		if data, err := api.Marshal(p); err == nil {
			(&call{w: w, r: r}).write(p.Status, api.ContentProblem, data)
		}
	}
	if w.hijacked {
		return // logLater
	}
	var more []slog.Attr
	if info := infoOf(r); info.end != "" {
		more = []slog.Attr{slog.String("end", info.end), slog.Int64("messages", info.messages)}
	}
	s.entryOf(r, started).log(w.status, w.bytes, more...)
}

// entry is a line of the log, without what is known at the end only.
type entry struct {
	logger  *slog.Logger
	level   slog.Level
	started time.Time
	attrs   []slog.Attr
}

func (s *server) entryOf(r *http.Request, started time.Time) entry {
	return entry{s.Logger, levelOf(r), started, []slog.Attr{
		slog.String("request", requestID(r)), slog.String("method", r.Method), slog.String("path", r.URL.Path),
		slog.String("client", r.Header.Get("Leat-Client")), slog.String("remote", r.RemoteAddr),
	}}
}

func (e entry) log(status int, bytes int64, more ...slog.Attr) {
	attrs := slices.Concat(e.attrs, []slog.Attr{
		slog.Int("status", status), slog.Int64("bytes", bytes), slog.Duration("took", time.Since(e.started)),
	}, more)
	e.logger.LogAttrs(context.Background(), e.level, "request", attrs...)
}

// logLater is for a request whose connection outlives it: what it returns is
// called at the end.
func (s *server) logLater(r *http.Request) func(bytes int64, more ...slog.Attr) {
	e := s.entryOf(r, time.Now())
	return func(bytes int64, more ...slog.Attr) { e.log(http.StatusSwitchingProtocols, bytes, more...) }
}

// recorder notes what was answered.
type recorder struct {
	http.ResponseWriter
	status   int
	bytes    int64
	hijacked bool
}

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(data []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(data)
	w.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController find Flush and deadlines.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Flush sends what was written; gin asks for it by interface.
func (w *recorder) Flush() {
	if f, ok := w.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// Hijack hands a WebSocket its connection; gin asks for it by interface.
func (w *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.hijacked = true
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

// levelOf is debug for what only reads and for hot routes, info for what changes
// something.
func levelOf(r *http.Request) slog.Level {
	if infoOf(r).hot || r.Method == http.MethodGet || r.Method == http.MethodHead {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// chooseID keeps the caller's id if it is harmless in a log.
func chooseID(given string) string {
	if given == "" || len(given) > 128 {
		return rand.Text()[:16]
	}
	for i := range len(given) {
		if c := given[i]; c <= ' ' || c > '~' {
			return rand.Text()[:16]
		}
	}
	return given
}
