package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/coder/websocket"

	"leat/api"
)

const (
	// handshakeWithin bounds the way to the first answer.
	handshakeWithin = 10 * time.Second
	// writeWithin is how long a frame of ours may take to leave.
	writeWithin = 10 * time.Second
	// defaultSilence is longer than two of the server's pings are apart.
	defaultSilence = 45 * time.Second
	// maxFrame is more than the largest message in base64.
	maxFrame = 256 << 20
)

// finalError is one after which the same request will not succeed.
type finalError struct{ error }

func (e *finalError) Unwrap() error { return e.error }

// socket is one WebSocket connection. One goroutine reads, one writes.
type socket struct {
	conn    *websocket.Conn
	silence *time.Timer // ends the connection, unless something comes before
	after   time.Duration
	said    *api.Problem // with which the server announced the end
}

// dial opens a connection. It ends by itself when nothing comes for so long.
func (c *Client) dial(ctx context.Context, r request, silence time.Duration) (*socket, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeWithin)
	defer cancel()
	s := &socket{after: positive(silence, defaultSilence)}
	alive := make(chan struct{}) // closed when s is complete
	header := http.Header{}
	if c.client != "" {
		header.Set("Leat-Client", c.client)
	}
	//nolint:bodyclose // the package closes it, and leaves the beginning of what it read
	conn, response, err := websocket.Dial(ctx, c.url(r), &websocket.DialOptions{
		HTTPClient: c.http, HTTPHeader: header,
		OnPingReceived: func(context.Context, []byte) bool {
			<-alive
			s.silence.Reset(s.after)
			return true
		},
	})
	if err != nil {
		return nil, refused(r, response, err)
	}
	conn.SetReadLimit(maxFrame)
	s.conn = conn
	s.silence = time.AfterFunc(s.after, func() { _ = conn.CloseNow() })
	close(alive)
	return s, nil
}

// refused says why there is no connection.
func refused(r request, response *http.Response, err error) error {
	if response == nil || response.StatusCode == http.StatusSwitchingProtocols {
		return fmt.Errorf("connect to %s: %w", r.name(), err)
	}
	refusal := problem(response)
	switch status := response.StatusCode; {
	case status == http.StatusTooManyRequests, status == http.StatusRequestTimeout, status >= http.StatusInternalServerError:
		return refusal
	default:
		return &finalError{refusal}
	}
}

// read waits for a frame, which is the caller's to keep.
func (s *socket) read() ([]byte, error) {
	// The context would close the connection without a word.
	_, reader, err := s.conn.Reader(context.Background())
	if err != nil {
		return nil, s.ended(err)
	}
	data, err := io.ReadAll(reader)
	if err != nil {
		return nil, s.ended(err)
	}
	s.silence.Reset(s.after)
	return data, nil
}

// ended makes of the end of the connection what it means.
func (s *socket) ended(err error) error {
	var closed websocket.CloseError
	if !errors.As(err, &closed) {
		if errors.Is(err, websocket.ErrMessageTooBig) {
			return &finalError{err}
		}
		return fmt.Errorf("connection lost: %w", err)
	}
	code := api.CloseCode(closed.Code)
	var end error = s.said
	if s.said == nil {
		end = fmt.Errorf("connection closed: %w", closed)
	}
	if code.Reconnect() || closed.Code == websocket.StatusNormalClosure {
		return end
	}
	return &finalError{end}
}

// write sends a frame.
func (s *socket) write(frame any) error {
	data, err := api.Marshal(frame)
	if err != nil {
		return fmt.Errorf("write frame: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), writeWithin)
	defer cancel()
	if err := s.conn.Write(ctx, websocket.MessageText, data); err != nil {
		return fmt.Errorf("write frame: %w", err)
	}
	return nil
}

// close says goodbye.
func (s *socket) close() {
	_ = s.conn.Close(websocket.StatusNormalClosure, "") // it is over either way
	s.drop()
}

// drop ends the connection without a word.
func (s *socket) drop() {
	s.silence.Stop()
	_ = s.conn.CloseNow()
}

// decode reads a frame of a known type.
func decode[T any](data []byte) (T, error) {
	var frame T
	if err := json.Unmarshal(data, &frame); err != nil {
		return frame, fmt.Errorf("read frame: %w", err)
	}
	return frame, nil
}

// frameType is what a frame is.
func frameType(data []byte) (string, error) {
	frame, err := decode[struct{ Type string }](data)
	return frame.Type, err
}

// problemFrame reads an error frame, and remembers the problem that ends the
// connection.
func (s *socket) problemFrame(data []byte) (api.ErrorFrame, error) {
	frame, err := decode[api.ErrorFrame](data)
	if err != nil {
		return frame, err
	}
	if frame.Problem == nil {
		return frame, errors.New("read frame: an error without a problem")
	}
	if frame.Close != 0 {
		s.said = frame.Problem
	}
	return frame, nil
}

// opening reads the first frame, which is of the type, or says why not.
func (s *socket) opening(want string) ([]byte, error) {
	for {
		data, err := s.read()
		if err != nil {
			return nil, err
		}
		kind, err := frameType(data)
		if err != nil {
			return nil, err
		}
		switch kind {
		case want:
			return data, nil
		case api.FrameError:
			frame, err := s.problemFrame(data)
			if err != nil {
				return nil, err
			}
			s.said = frame.Problem
		default: // of a later version, which will say so
		}
	}
}

// line is what keeps a connection up.
type line struct {
	request  func() request // of the next connection
	failFast bool
	silence  time.Duration
	// session works on a connection until it ends, and says whether it began.
	session func(s *socket) (began bool, err error)
	lost    func(err error, retryIn time.Duration)
}

// hold connects, again and again, until the context ends, for which it answers
// nil, or an error is final.
func (c *Client) hold(ctx context.Context, l line) error {
	var wait backoff
	for first := true; ; {
		dialled := time.Now()
		began := false
		s, err := c.dial(ctx, l.request(), l.silence)
		if err == nil {
			began, err = l.session(s)
			s.drop()
		}
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the end was asked for
		}
		if final, ok := errors.AsType[*finalError](err); ok {
			return final.error
		}
		first = first && !began
		if first && l.failFast {
			return err
		}
		// One that held for a while was good.
		if began && time.Since(dialled) > wait.last {
			wait.reset()
		}
		after := wait.next()
		if problem, ok := errors.AsType[*api.Problem](err); ok {
			after = max(after, problem.RetryAfter)
		}
		if l.lost != nil {
			l.lost(err, after)
		}
		if !pause(ctx, after) {
			return nil
		}
	}
}
