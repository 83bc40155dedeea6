package ws_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"leat/api"
	"leat/api/ws"
	"leat/eventstore"
)

// large is a payload of which some fill the buffers of a socket.
var large = `"` + strings.Repeat("x", 60<<10) + `"`

// over waits for the end of a session.
func (s *site) over(n int) ws.Summary {
	s.t.Helper()
	var last ws.Summary
	require.Eventually(s.t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.summaries) < n {
			return false
		}
		last = s.summaries[n-1]
		return true
	}, patience, time.Millisecond)
	return last
}

// Whatever a client sends, it is told what is wrong with it, and nobody else
// notices.
func TestBadFrames(t *testing.T) {
	t.Parallel()
	s := setup(t, ws.Config{})
	other := s.dial("/s")
	other.expect(api.FrameSubscribed)
	for _, c := range []struct {
		name  string
		frame string
		code  eventstore.Code
		field string
	}{
		{"empty", ``, eventstore.InvalidRequest, ""},
		{"no JSON", `{"type":"ack"`, eventstore.InvalidRequest, ""},
		{"two values", `{"type":"heartbeat"}{}`, eventstore.InvalidRequest, ""},
		{"array", `[]`, eventstore.InvalidRequest, ""},
		{"null", `null`, eventstore.InvalidRequest, ""},
		{"number", `7`, eventstore.InvalidRequest, ""},
		{"deep", strings.Repeat(`[`, 60000), eventstore.InvalidRequest, ""},
		{"no type", `{"offset":1}`, eventstore.InvalidField, "type"},
		{"type of other case", `{"Type":"ack","offset":1}`, eventstore.InvalidField, "type"},
		{"type is a number", `{"type":1}`, eventstore.InvalidField, "type"},
		{"type is null", `{"type":null}`, eventstore.InvalidField, "type"},
		{"unknown type", `{"type":"nack","offset":1}`, eventstore.InvalidField, "type"},
		{"unknown field", `{"type":"ack","offset":1,"extra":1}`, eventstore.UnknownField, "extra"},
		{"field of another frame", `{"type":"ack","offset":1,"epoch":1}`, eventstore.UnknownField, "epoch"},
		{"heartbeat with more", `{"type":"heartbeat","next":1}`, eventstore.UnknownField, "next"},
		{"offset is text", `{"type":"commit","offset":"1"}`, eventstore.InvalidField, "offset"},
		{"offset is no whole number", `{"type":"commit","offset":1.5}`, eventstore.InvalidField, "offset"},
		{"offset is too large", `{"type":"commit","offset":9223372036854775808}`, eventstore.InvalidField, "offset"},
		{"no offset", `{"type":"commit"}`, eventstore.InvalidField, "offset"},
		{"negative offset", `{"type":"ack","offset":-1}`, eventstore.InvalidField, "offset"},
		{"negative epoch", `{"type":"commit","offset":1,"epoch":-1}`, eventstore.InvalidField, "epoch"},
		{"twice", `{"type":"ack","offset":1,"offset":2}`, eventstore.InvalidRequest, "offset"},
		{"not UTF-8", "{\"type\":\"\xff\"}", eventstore.InvalidRequest, ""},
		{"too large", `{"type":"heartbeat"` + strings.Repeat(" ", api.MaxClientFrame) + `}`, eventstore.PayloadTooLarge, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := s.in(t).dial("/s")
			client.expect(api.FrameSubscribed)
			client.send(c.frame)
			p := client.closed(api.CloseBadRequest, c.code).Problem
			if c.field == "" {
				require.Empty(t, p.Errors)
			} else {
				require.Equal(t, c.field, p.Errors[0].Field)
			}
		})
	}
	client := s.dial("/s")
	client.expect(api.FrameSubscribed)
	require.NoError(t, client.conn.Write(t.Context(), websocket.MessageBinary, []byte(`{"type":"heartbeat"}`)))
	client.closed(api.CloseBadRequest, eventstore.InvalidRequest)

	other.send(`{"type":"heartbeat"}`)
	s.stream.Publish(`1`)
	other.messages(1)
}

// A subscription that ends tells why, and whether to come again.
func TestEndsAreTold(t *testing.T) {
	t.Parallel()
	for code, want := range map[eventstore.Code]api.CloseCode{
		eventstore.ChannelNotFound: api.CloseNotFound, eventstore.EpochChanged: api.CloseEpochChanged,
		eventstore.OffsetGone: api.CloseOffsetGone, eventstore.PointNotFound: api.ClosePointDeleted,
		eventstore.PointTaken: api.ClosePointTaken, eventstore.ShuttingDown: api.CloseGoingAway,
		eventstore.DatabaseUnavailable: api.CloseNotReady,
	} {
		t.Run(string(code), func(t *testing.T) {
			t.Parallel()
			s := setup(t, ws.Config{})
			c := s.dial("/s")
			c.expect(api.FrameSubscribed)
			e := eventstore.NewError(code, "It is over.")
			e.Resume = &eventstore.StreamPosition{Epoch: 8, Offset: 3}
			s.stream.End(e)
			require.Equal(t, &api.StreamPosition{Epoch: 8, Offset: 3}, c.closed(want, code).Problem.Resume)
			summary := s.over(1)
			require.Equal(t, want, summary.Close)
			require.Equal(t, string(code), summary.Reason)
		})
	}
	t.Run("fault", func(t *testing.T) {
		t.Parallel()
		s := setup(t, ws.Config{})
		c := s.dial("/s")
		c.expect(api.FrameSubscribed)
		s.stream.End(errors.New("a deadline of ours"))
		require.NotContains(t, c.closed(api.CloseInternal, eventstore.Internal).Problem.Detail, "deadline")
	})
}

// A newer subscriber takes a point over.
func TestTakeover(t *testing.T) {
	t.Parallel()
	s := setup(t, ws.Config{})
	older := s.dial("/s?point=p")
	older.expect(api.FrameSubscribed)
	newer := s.dial("/s?point=p")
	require.True(t, newer.expect(api.FrameSubscribed).Resumed)
	older.closed(api.ClosePointTaken, eventstore.PointTaken)
}

// Origins and handshakes that are wrong get a plain HTTP answer.
func TestHandshake(t *testing.T) {
	t.Parallel()
	origins, err := ws.ParseOrigins([]string{"https://*.shop.example", "http://[::1]:3000"})
	require.NoError(t, err)
	s := setup(t, ws.Config{Origins: origins})
	good := map[string]string{
		"Upgrade": "websocket", "Connection": "keep-alive, Upgrade", "Sec-WebSocket-Version": "13",
		"Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
	}
	for _, c := range []struct {
		header, value string
		status        int
	}{
		{"Origin", "https://evil.example", 403},
		{"Origin", "https://shop.example", 403},
		{"Origin", "null", 403},
		{"Origin", "https://a.shop.example", 101},
		{"Origin", "HTTPS://A.B.Shop.Example", 101},
		{"Origin", "http://[::1]:3000", 101},
		{"Origin", s.url, 101},
		{"Sec-Fetch-Site", "cross-site", 403},
		{"Sec-Fetch-Site", "same-origin", 101},
		{"Sec-WebSocket-Version", "8", 400},
		{"Sec-WebSocket-Key", "short", 400},
		{"Connection", "close", 400},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/s", nil)
		require.NoError(t, err)
		for name, value := range good {
			req.Header.Set(name, value)
		}
		req.Header.Set(c.header, c.value)
		response, err := http.DefaultTransport.RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, c.status, response.StatusCode, "%+v", c)
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

func TestOriginPatterns(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "shop.example", "https://", "://x", "https://x/", "https://x/path", "https://a b", "https://x?q", "https://u@x"} {
		_, err := ws.ParseOrigins([]string{bad})
		require.Error(t, err, bad)
	}
	all, err := ws.ParseOrigins([]string{"*"})
	require.NoError(t, err)
	require.True(t, all.Match("https://any.example:8443"))
	some, err := ws.ParseOrigins([]string{"https://a.b"})
	require.NoError(t, err)
	require.False(t, some.Match("https://aXb"), "a dot is a dot")
	require.False(t, some.Match("https://a.b.evil.example"))
}

// An idle connection stays open by pings; what answers none is closed, be it
// there or not.
func TestPings(t *testing.T) {
	t.Parallel()
	s := setup(t, ws.Config{Ping: 50 * time.Millisecond, Pong: 3 * time.Second, Heartbeat: time.Hour})
	mute := s.dialRaw("/s")
	alive := s.dialRaw("/s")
	alive.until(opText)
	for range 10 {
		alive.send(opPong, string(alive.until(opPing)))
	}
	mute.until(opPing)
	end := mute.until(opClose) // without having answered
	require.Equal(t, uint16(api.CloseNoPong), binary.BigEndian.Uint16(end))
	require.Equal(t, string(api.NoPong), string(end[2:]))
	alive.send(opPing, "back")
	for string(alive.until(opPong)) != "back" {
		t.Log("a pong of another ping")
	}
	s.stream.Publish(`1`)
	require.Contains(t, string(alive.until(opText)), "messages")
}

// Frames of a client are signs of life, too: what answers no ping in time may
// have a backlog to read.
func TestPingsHeard(t *testing.T) {
	t.Parallel()
	s := setup(t, ws.Config{Ping: 20 * time.Millisecond, Pong: 2 * time.Second, Heartbeat: time.Hour})
	c := s.dialRaw("/s")
	stop := time.Now().Add(5 * time.Second)
	pings := 0
	for time.Now().Before(stop) {
		c.send(opText, `{"type":"heartbeat"}`)
		require.NoError(t, c.conn.SetReadDeadline(time.Now().Add(200*time.Millisecond)))
		if opcode, _, err := c.next(); err == nil {
			require.NotEqual(t, byte(opClose), opcode)
			if opcode == opPing {
				pings++
			}
		}
	}
	require.GreaterOrEqual(t, pings, 2)
}

// Half-open: the peer vanished without a word.
func TestF35HalfOpen(t *testing.T) {
	t.Parallel()
	s := setup(t, ws.Config{Ping: 100 * time.Millisecond, Pong: 2 * time.Second})
	c := s.dialRaw("/s?point=p")
	c.until(opText)
	// It reads and writes nothing any more, and nobody closes the connection.
	summary := s.over(1)
	require.Equal(t, api.CloseNoPong, summary.Close)
	require.Zero(t, s.stream.Subscribers())
}

// A subscriber that never reads is closed, and can resume; others get all at
// their pace, and the broker holds little for it.
func TestF35NeverReads(t *testing.T) {
	t.Parallel()
	s := setup(t, ws.Config{Stuck: 3 * time.Second})
	lazy := s.dialRaw("/s?point=lazy")
	lazy.until(opText)
	reader := s.dial("/s")
	reader.expect(api.FrameSubscribed)
	const count = 30
	go func() {
		for range count { // more than the sockets hold
			s.stream.Publish(large)
		}
	}()
	reader.messages(count)
	summary := s.over(1)
	require.Equal(t, api.CloseTooSlow, summary.Close)
	require.Equal(t, string(api.TooSlow), summary.Reason)
	require.Less(t, summary.Messages, int64(count))

	back := s.dial("/s?point=lazy")
	require.Equal(t, int64(0), back.expect(api.FrameSubscribed).Next)
	back.messages(count)
}

// A subscriber that reads slowly, but does, is served.
func TestF35ReadsSlowly(t *testing.T) {
	t.Parallel()
	s := setup(t, ws.Config{Stuck: 4 * time.Second, Ping: 100 * time.Millisecond, Pong: 2 * time.Second})
	slow := s.dial("/s")
	slow.expect(api.FrameSubscribed)
	for range 60 {
		s.stream.Publish(large)
	}
	// Longer than a pong may take: it is behind the messages.
	for n := 0; n < 60; {
		<-time.After(400 * time.Millisecond)
		for _, m := range slow.expect(api.FrameMessages).Messages {
			require.Equal(t, eventstore.Offset(n), m.Offset)
			n++
		}
	}
}

// A thousand subscribers that come at once are all served, and go without a
// trace.
func TestF35ThousandAtOnce(t *testing.T) {
	t.Parallel()
	s := setup(t, ws.Config{})
	s.stream.Publish(`1`, `2`)
	const count = 1000
	before := runtime.NumGoroutine()
	var group errgroup.Group
	clients := make([]*websocket.Conn, count)
	for i := range clients {
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
			defer cancel()
			conn, _, err := websocket.Dial(ctx, s.url+"/s", nil) //nolint:bodyclose // the library closes it
			if err != nil {
				return err
			}
			clients[i] = conn
			for _, want := range []string{"subscribed", "messages"} {
				_, data, err := conn.Read(ctx)
				if err != nil {
					return err
				}
				if !strings.Contains(string(data), want) {
					return fmt.Errorf("%s instead of %s", data, want)
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	for _, c := range clients {
		_ = c.CloseNow()
	}
	require.Eventually(t, func() bool { return s.stream.Subscribers() == 0 }, patience, 10*time.Millisecond)
	require.Equal(t, api.CloseCode(0), s.over(count).Close, "the client went")
	require.Eventually(t, func() bool { return runtime.NumGoroutine() < before+100 }, patience, 10*time.Millisecond)
}

// A stop closes all connections at once, and waits for none that does not answer.
func TestShutdown(t *testing.T) {
	t.Parallel()
	s := setup(t, ws.Config{})
	for range 20 {
		s.dialRaw("/s").until(opText) // will not answer
	}
	lazy := s.dialRaw("/s")
	lazy.until(opText)
	for range 24 {
		s.stream.Publish(large) // nor read
	}
	require.Eventually(t, func() bool { return s.stream.Subscribers() == 21 }, patience, time.Millisecond)
	answering := s.dial("/s?from=24")
	answering.expect(api.FrameSubscribed)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	began := time.Now()
	require.ErrorIs(t, s.server.Shutdown(ctx), context.DeadlineExceeded)
	require.Less(t, time.Since(began), patience/2)
	answering.closed(api.CloseGoingAway, eventstore.ShuttingDown)
	s.dial("/s").closed(api.CloseGoingAway, eventstore.ShuttingDown)
}

// panicking is streams with a fault.
type panicking struct{ api.Streams }

func (panicking) Subscribe(context.Context, eventstore.SubscribeRequest) (api.Subscription, error) {
	panic("a fault")
}

// A fault ends one session, not the broker.
func TestPanic(t *testing.T) {
	t.Parallel()
	server := ws.New(ws.Config{Streams: panicking{}, Logger: slog.New(slog.DiscardHandler)})
	serving := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.NoError(t, server.Subscribe(w, r, eventstore.SubscribeRequest{}, func(ws.Summary) {}))
	}))
	t.Cleanup(func() {
		require.NoError(t, server.Shutdown(context.Background()))
		serving.Close()
	})
	s := site{t: t, url: serving.URL}
	p := s.dial("/").closed(api.CloseInternal, eventstore.Internal).Problem
	require.NotContains(t, p.Detail, "fault")
}
