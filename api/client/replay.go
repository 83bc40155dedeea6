package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strconv"
	"time"

	"leat/api"
	"leat/eventstore"
)

// replayBuffer is what CopyEvents reads and writes at once; a longer line makes it
// grow.
const replayBuffer = 256 << 10

// replay asks for all chosen events.
func (c *Client) replay(ctx context.Context, f EventsFilter) (*http.Response, error) {
	return c.send(ctx, request{
		method: http.MethodGet, path: []string{"v1", "events"}, query: f.values(), accept: "application/x-ndjson",
	})
}

// StreamEvents reads all chosen events as the server finds them. The last pair
// has the error, if there is one: also when the answer broke off.
func (c *Client) StreamEvents(ctx context.Context, f EventsFilter) iter.Seq2[api.Event, error] {
	return func(yield func(api.Event, error) bool) {
		response, err := c.replay(ctx, f)
		if err != nil {
			yield(api.Event{}, err)
			return
		}
		defer func() { _ = response.Body.Close() }()
		decoder := json.NewDecoder(response.Body)
		for {
			var line struct {
				api.Event
				Error *api.Problem `json:"error"`
			}
			err := decoder.Decode(&line)
			if errors.Is(err, io.EOF) {
				return
			}
			if err == nil && line.Error != nil {
				err = line.Error
			}
			if err != nil {
				yield(api.Event{}, fmt.Errorf("read events: %w", err))
				return
			}
			if !yield(line.Event, nil) {
				return
			}
		}
	}
}

// ReplayConfig says how CopyEvents goes about it.
type ReplayConfig struct {
	// OnLost is told of a lost connection, and of when it is made again; OnResumed when
	// that is done. Only following makes one again.
	OnLost    func(err error, retryIn time.Duration)
	OnResumed func(from eventstore.Position)
}

// CopyEvents writes all chosen events as NDJSON, one a line, whole lines only, and
// answers the position of the last one that it wrote. Following, it makes a lost
// connection again, and goes on behind that one.
func (c *Client) CopyEvents(ctx context.Context, w io.Writer, f EventsFilter, config ReplayConfig) (last eventstore.Position, err error) {
	copied := &lineCopy{to: w}
	var wait backoff
	for resumed := false; ; resumed = true {
		response, err := c.replay(ctx, f)
		if err == nil {
			wait.reset()
			if resumed && config.OnResumed != nil {
				config.OnResumed(f.From)
			}
			err = copied.all(response.Body)
			_ = response.Body.Close()
		}
		if copied.last > 0 {
			f.From, f.Cursor = copied.last+1, ""
		}
		if err == nil || !f.Follow || ctx.Err() != nil || copied.broken || !passes(err, resumed) {
			return copied.last, err
		}
		if f.Limit > 0 {
			f.Limit -= copied.lines
			copied.lines = 0
		}
		d := wait.next()
		if config.OnLost != nil {
			config.OnLost(err, d)
		}
		if !pause(ctx, d) {
			return copied.last, ctx.Err()
		}
	}
}

// passes reports whether a replay may go on after the error: not one that was refused,
// nor one that never began.
func passes(err error, resumed bool) bool {
	if p, ok := errors.AsType[*api.Problem](err); ok {
		return p.Status >= http.StatusInternalServerError
	}
	_, broke := errors.AsType[*brokenReplayError](err)
	return broke || resumed
}

// brokenReplayError is an answer that did not come to its end.
type brokenReplayError struct{ err error }

func (e *brokenReplayError) Error() string { return "read events: " + e.err.Error() }

func (e *brokenReplayError) Unwrap() error { return e.err }

// lineCopy passes lines on as they are.
type lineCopy struct {
	to     io.Writer
	buffer []byte
	last   eventstore.Position // of the last line
	lines  int
	broken bool // to takes no more
}

// all copies an answer to its end.
func (l *lineCopy) all(from io.Reader) error {
	rest := 0 // of a line that is not whole yet
	for {
		if len(l.buffer)-rest < replayBuffer/2 {
			l.buffer = append(l.buffer, make([]byte, max(replayBuffer, len(l.buffer)))...)
		}
		n, err := from.Read(l.buffer[rest:])
		filled := l.buffer[:rest+n]
		whole := rest + bytes.LastIndexByte(filled[rest:], '\n') + 1
		if whole > rest {
			if err := l.write(filled[:whole]); err != nil {
				return err
			}
			rest = copy(l.buffer, filled[whole:])
		} else {
			rest += n
		}
		switch {
		case errors.Is(err, io.EOF) && rest == 0:
			return nil
		case errors.Is(err, io.EOF):
			return &brokenReplayError{io.ErrUnexpectedEOF}
		case err != nil:
			return &brokenReplayError{err}
		}
	}
}

// write passes whole lines on, but for signs of life, and for the reason of an end.
func (l *lineCopy) write(text []byte) error {
	if text[0] == '\n' || bytes.Contains(text, []byte("\n\n")) {
		text = withoutEmptyLines(text)
	}
	begin := bytes.LastIndexByte(text[:max(len(text)-1, 0)], '\n') + 1
	reason := endOfReplay(text[begin:])
	if reason != nil {
		text = text[:begin]
		begin = bytes.LastIndexByte(text[:max(len(text)-1, 0)], '\n') + 1
	}
	if len(text) > 0 {
		if _, err := l.to.Write(text); err != nil {
			l.broken = true
			return fmt.Errorf("write events: %w", err)
		}
		l.lines += bytes.Count(text, []byte{'\n'})
		l.last = positionOf(text[begin:], l.last)
	}
	return reason
}

func withoutEmptyLines(text []byte) (kept []byte) {
	for line := range bytes.Lines(text) {
		if len(line) > 1 {
			kept = append(kept, line...)
		}
	}
	return kept
}

// endOfReplay is the problem that a last line tells; nil when it is an event.
func endOfReplay(line []byte) error {
	if !bytes.HasPrefix(line, []byte(`{"error":`)) {
		return nil
	}
	var end struct {
		Error *api.Problem `json:"error"`
	}
	if err := json.Unmarshal(line, &end); err != nil || end.Error == nil {
		return &brokenReplayError{fmt.Errorf("a line that is no event: %.200q", line)}
	}
	return end.Error
}

// positionOf reads the first member of an event.
func positionOf(line []byte, otherwise eventstore.Position) eventstore.Position {
	digits, ok := bytes.CutPrefix(line, []byte(`{"position":`))
	if n := bytes.IndexByte(digits, ','); ok && n > 0 {
		if p, err := strconv.ParseInt(string(digits[:n]), 10, 64); err == nil {
			return eventstore.Position(p)
		}
	}
	return otherwise
}
