package ws_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"leat/api"
	"leat/api/ws"
	"leat/eventstore"
)

func TestSubscribe(t *testing.T) {
	t.Parallel()
	s := setup(t, ws.Config{})
	s.stream.Publish(`{"n":0}`, `{"n":1}`)
	c := s.dial("/s?point=p")
	f := c.expect(api.FrameSubscribed)
	require.Equal(t, "s", f.Stream)
	require.Equal(t, int64(epoch), f.Epoch)
	require.Equal(t, "p", f.Point)
	require.NotEmpty(t, f.Member)
	require.False(t, f.Resumed)
	require.Len(t, c.messages(2), 2)
	c.send(`{"type":"commit","offset":0}`)
	require.Equal(t, int64(0), *c.expect(api.FrameCommitted).Offset)
	require.NoError(t, c.conn.Close(1000, ""))

	c = s.dial("/s?point=p")
	f = c.expect(api.FrameSubscribed)
	require.True(t, f.Resumed)
	require.Equal(t, int64(1), f.Next)
	require.JSONEq(t, `{"n":1}`, string(c.messages(1)[0].Payload))
	s.stream.Publish(`{"n":2}`)
	require.Equal(t, int64(2), int64(c.messages(1)[0].Offset))
}

// What cannot be served is told on the connection, for browsers.
func TestRefusals(t *testing.T) {
	t.Parallel()
	s := setup(t, ws.Config{})
	for path, want := range map[string]struct {
		close api.CloseCode
		code  eventstore.Code
	}{
		"/none":           {api.CloseNotFound, eventstore.ChannelNotFound},
		"/s?from=1":       {api.CloseOffsetAhead, eventstore.OffsetAhead},
		"/s?epoch=6":      {api.CloseEpochChanged, eventstore.EpochChanged},
		"/s?bad=anything": {api.CloseBadRequest, eventstore.InvalidField},
	} {
		p := s.dial(path).closed(want.close, want.code).Problem
		require.NotNil(t, p, path)
		require.Equal(t, "the-id", p.RequestID)
		require.Contains(t, path, p.Instance)
		require.Equal(t, want.close == api.CloseOffsetAhead || want.close == api.CloseEpochChanged, p.Resume != nil)
	}
}

// Commits move the point, one after the other; a refused one is told, and
// changes nothing.
func TestCommits(t *testing.T) {
	t.Parallel()
	s := setup(t, ws.Config{})
	s.stream.Publish(`0`, `1`, `2`, `3`, `4`)
	c := s.dial("/s?point=p")
	c.expect(api.FrameSubscribed)
	c.messages(5)
	c.send(`{"type":"commit","offset":2,"epoch":7}`)
	require.Equal(t, int64(2), *c.expect(api.FrameCommitted).Offset)
	for _, bad := range []struct {
		frame  string
		offset int64
		code   eventstore.Code
	}{
		{`{"type":"commit","offset":1}`, 1, eventstore.CommitBehind},
		{`{"type":"commit","offset":5}`, 5, eventstore.OffsetAhead},
		{`{"type":"commit","offset":3,"epoch":6}`, 3, eventstore.EpochChanged},
		{`{"type":"ack","offset":5}`, 5, eventstore.OffsetAhead},
	} {
		c.send(bad.frame)
		f := c.expect(api.FrameError)
		require.Equal(t, bad.offset, *f.Offset)
		require.Equal(t, bad.code, f.Problem.Code)
		require.NotNil(t, f.Problem.Resume)
		require.Zero(t, f.Close, "the connection goes on")
	}
	c.send(`{"type":"commit","offset":2}`)
	require.Equal(t, int64(2), *c.expect(api.FrameCommitted).Offset, "the same again is fine")
	require.Equal(t, eventstore.Offset(3), s.stream.Committed("p"))

	// A bad one among many costs no other.
	for _, offset := range []string{"3", "99", "4", "0", "98"} {
		c.send(`{"type":"commit","offset":` + offset + `}`)
	}
	require.Eventually(t, func() bool { return s.stream.Committed("p") == 5 }, patience, time.Millisecond)
	refused := 0
	for refused < 3 {
		if f := c.read(); f.Type == api.FrameError {
			refused++
		}
	}

	s.stream.FailCommits(errors.New("the disk is full"))
	c.send(`{"type":"commit","offset":4}`)
	c.closed(api.CloseInternal, eventstore.Internal)
}

// Thousands of commits in a row are answered with the last one at the latest.
func TestCommitsInARow(t *testing.T) {
	t.Parallel()
	s := setup(t, ws.Config{})
	const count = 5000
	for range count {
		s.stream.Publish(`0`)
	}
	c := s.dial("/s?point=p")
	c.expect(api.FrameSubscribed)
	c.messages(count)
	go func() {
		for i := range count {
			_ = c.conn.Write(t.Context(), websocket.MessageText, fmt.Appendf(nil, `{"type":"commit","offset":%d}`, i))
		}
	}()
	for last := int64(-1); last < count-1; {
		offset := *c.expect(api.FrameCommitted).Offset
		require.Greater(t, offset, last)
		last = offset
	}
}

// A window is room for messages that were not acknowledged.
func TestWindow(t *testing.T) {
	t.Parallel()
	s := setup(t, ws.Config{Heartbeat: 100 * time.Millisecond})
	s.stream.Publish(`0`, `1`, `2`, `3`, `4`)
	c := s.dial("/s?window=2")
	c.expect(api.FrameSubscribed)
	c.messages(2)
	f := c.expect(api.FrameHeartbeat)
	require.Equal(t, []int64{2, 5}, []int64{f.Next, f.End})
	c.send(`{"type":"ack","offset":0}`)
	require.Equal(t, eventstore.Offset(2), c.messages(1)[0].Offset)
	c.send(`{"type":"ack","offset":99}`)
	f = c.expect(api.FrameError)
	require.Equal(t, eventstore.OffsetAhead, f.Problem.Code)
	require.Equal(t, int64(99), *f.Offset)
	require.Zero(t, f.Close, "the connection goes on")
	c.send(`{"type":"ack","offset":2}`)
	c.messages(2)
}

// A member of a group hears of its partitions.
func TestAssigned(t *testing.T) {
	t.Parallel()
	s := setup(t, ws.Config{})
	c := s.dial("/s")
	c.expect(api.FrameSubscribed)
	s.stream.Assign(1, 3)
	require.Equal(t, []int{1, 3}, c.expect(api.FrameAssigned).Partitions)
	s.stream.Assign()
	require.Equal(t, []int{}, c.expect(api.FrameAssigned).Partitions)
}

// Many messages share frames of a bounded size; large ones go alone.
func TestFrames(t *testing.T) {
	t.Parallel()
	s := setup(t, ws.Config{})
	payload := `"` + strings.Repeat("x", 1000) + `"`
	for range 999 {
		s.stream.Publish(payload)
	}
	s.stream.Publish(`"` + strings.Repeat("y", 1<<20) + `"`)
	c := s.dial("/s")
	c.expect(api.FrameSubscribed)
	frames, n := 0, 0
	for n < 1000 {
		f := c.expect(api.FrameMessages)
		require.Equal(t, eventstore.Offset(n), f.Messages[0].Offset)
		frames++
		n += len(f.Messages)
		require.Equal(t, int64(n), f.Next)
	}
	require.Greater(t, frames, 4)
	require.Less(t, frames, 20)
}
