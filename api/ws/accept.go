package ws

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"

	"leat/api"
	"leat/eventstore"
)

// IsUpgrade says whether the caller asks for a WebSocket.
func IsUpgrade(r *http.Request) bool {
	return hasToken(r, "Upgrade", "websocket")
}

func hasToken(r *http.Request, header, want string) bool {
	for _, value := range r.Header.Values(header) {
		for token := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(strings.TrimSpace(token), want) {
				return true
			}
		}
	}
	return false
}

// accept upgrades the connection of a session. Its error comes before anything
// was answered.
func (s *session) accept(w http.ResponseWriter, r *http.Request) error {
	if !s.server.config.Origins.Allow(r) {
		return eventstore.NewError(api.CrossOrigin,
			"Pages of %q may not connect; the broker's --allow-origin can allow it.", r.Header.Get("Origin"))
	}
	if err := checkHandshake(r); err != nil {
		return err
	}
	lean := &leanWriter{ResponseWriter: w}
	conn, err := websocket.Accept(lean, r, &websocket.AcceptOptions{
		InsecureSkipVerify: true, // checked above
		CompressionMode:    websocket.CompressionDisabled,
		OnPingReceived:     s.mayAnswer,
	})
	if err != nil {
		// It has answered, as far as there was somebody to answer.
		return fmt.Errorf("%w: %w", errGone, err)
	}
	conn.SetReadLimit(-1) // readFrame has its own, which says why
	s.conn, s.raw = conn, lean.conn
	return nil
}

// checkHandshake refuses what websocket.Accept would, as a problem.
func checkHandshake(r *http.Request) error {
	refuse := func(format string, args ...any) error {
		return eventstore.NewError(eventstore.InvalidRequest, format, args...)
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(r.Header.Get("Sec-WebSocket-Key")))
	switch {
	case r.Method != http.MethodGet:
		return refuse("A WebSocket begins with GET, not %s.", r.Method)
	case r.ProtoMajor != 1 || r.ProtoMinor < 1:
		return refuse("A WebSocket begins with HTTP/1.1, not %s.", r.Proto)
	case !hasToken(r, "Connection", "upgrade"):
		return refuse("The header Connection must have the token Upgrade.")
	case r.Header.Get("Sec-WebSocket-Version") != "13":
		return refuse("Sec-WebSocket-Version must be 13.")
	case err != nil || len(key) != 16 || len(r.Header.Values("Sec-WebSocket-Key")) != 1:
		return refuse("Sec-WebSocket-Key must be 16 bytes in base64.")
	}
	return nil
}

// mayAnswer says whether a ping of the client can be answered. Behind a frame
// that is stuck the answer would fail, and end the connection without a word.
func (s *session) mayAnswer(ctx context.Context, _ []byte) bool {
	patience := time.NewTimer(time.Second)
	defer patience.Stop()
	select {
	case s.writing <- struct{}{}:
		<-s.writing
		return true
	case <-patience.C:
	case <-ctx.Done():
	}
	return false
}

// leanWriter hands out the connection with buffers that thousands of idle ones
// can afford: those of net/http have 4 KiB each. Larger frames pass them by.
type leanWriter struct {
	http.ResponseWriter
	conn net.Conn
}

const leanBuffer = 512

// WriteHeaderNow is what gin's writer has, and websocket.Accept looks for.
func (w *leanWriter) WriteHeaderNow() {
	if gin, ok := w.ResponseWriter.(interface{ WriteHeaderNow() }); ok {
		gin.WriteHeaderNow()
	}
}

// Hijack takes the connection over.
func (w *leanWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffers, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	w.conn = conn
	if buffers.Reader.Buffered() == 0 {
		buffers.Reader = bufio.NewReaderSize(conn, leanBuffer)
	}
	return conn, bufio.NewReadWriter(buffers.Reader, bufio.NewWriterSize(conn, leanBuffer)), nil
}
