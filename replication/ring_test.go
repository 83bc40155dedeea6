package replication

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"leat/eventstore"
)

// newRing is a ring without a hub.
func newRing(limits ringLimits) *ring {
	return &ring{limits: limits, total: new(atomic.Int64), ended: make(chan struct{})}
}

// G7: whatever comes into a ring, in whatever order, with gaps and again, it hands
// out contiguous offsets only, keeps to its bounds, and knows what it lacks.
func TestG7RingIsContiguous(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limits := ringLimits{messages: rapid.IntRange(1, 40).Draw(t, "messages"), bytes: rapid.IntRange(500, 20_000).Draw(t, "bytes")}
		r := newRing(limits)
		end := eventstore.Offset(0) // that the ring was told
		anchored := false
		offset := func(name string) eventstore.Offset {
			return eventstore.Offset(rapid.IntRange(max(0, int(end)-50), int(end)+30).Draw(t, name))
		}
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				var messages []*eventstore.StreamMessage
				for o, n := offset("first"), rapid.IntRange(0, 10).Draw(t, "n"); n > 0; o, n = o+1, n-1 {
					messages = append(messages, &eventstore.StreamMessage{Offset: o, Payload: make([]byte, rapid.IntRange(0, 500).Draw(t, "size"))})
					end, anchored = max(end, o+1), true
				}
				r.apply(func() { r.put(messages) })
			},
			"extend": func(t *rapid.T) {
				o := offset("end")
				end, anchored = max(end, o), true
				r.apply(func() { r.extend(o) })
			},
			"trim": func(t *rapid.T) {
				r.apply(func() { r.trim(rapid.IntRange(0, 10_000).Draw(t, "bytes")) })
			},
			"": func(t *rapid.T) {
				require.True(t, r.base <= r.ready && r.ready <= r.end)
				require.LessOrEqual(t, int(r.end-r.base), limits.messages)
				require.LessOrEqual(t, r.bytes, limits.bytes)
				require.Equal(t, int64(r.bytes), r.total.Load())
				if anchored {
					require.Equal(t, end, r.end)
				}
				bytes := 0
				for o := r.base; o < r.end; o++ {
					if m := *r.slot(o); m != nil {
						require.Equal(t, o, m.Offset)
						bytes += m.Size()
					}
				}
				require.Equal(t, r.bytes, bytes)
				from, to, _ := r.hole()
				require.Equal(t, r.ready, from)
				require.Equal(t, r.ready < r.end, from < to)
				messages, s, err := r.read(r.base, limits.messages)
				require.NoError(t, err)
				require.Len(t, messages, int(r.ready-r.base))
				require.Equal(t, len(messages) == 0, s.wake != nil)
				for i, m := range messages {
					require.Equal(t, r.base+eventstore.Offset(i), m.Offset)
				}
			},
		})
	})
}

// A reader that waits is woken by what it waits for.
func TestRingWakes(t *testing.T) {
	t.Parallel()
	r := newRing(ringLimits{messages: 10, bytes: 1 << 20})
	r.apply(func() { r.extend(5) })
	_, s, err := r.read(5, 1)
	require.NoError(t, err)
	_, same, err := r.read(6, 1)
	require.NoError(t, err)
	require.Equal(t, s.wake, same.wake, "all share one")
	r.apply(func() { r.extend(6) })
	require.NotNil(t, r.wake, "an empty slot wakes nobody")
	r.apply(func() { r.put([]*eventstore.StreamMessage{{Offset: 5}}) })
	<-s.wake
	_, s, err = r.read(6, 1)
	require.NoError(t, err)
	r.fail(shuttingDown())
	<-s.wake
	<-r.ended
	_, _, err = r.read(5, 1)
	require.ErrorIs(t, err, shuttingDown())
}
