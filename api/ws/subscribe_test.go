package ws_test

import (
	"testing"

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
		p := s.dial(path).closed(want.close, want.code)
		require.NotNil(t, p, path)
		require.Equal(t, "the-id", p.RequestID)
		require.Contains(t, path, p.Instance)
		require.Equal(t, want.close == api.CloseOffsetAhead || want.close == api.CloseEpochChanged, p.Resume != nil)
	}
}
