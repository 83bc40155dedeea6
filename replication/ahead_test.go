package replication_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"leat/eventstore"
)

// A commit or an ack beyond the end of the stream is refused, says where that is, and
// changes nothing, whoever makes it. What lies within the stream but was not delivered
// is everything below it.
func TestAheadOfStream(t *testing.T) {
	t.Parallel()
	for name, partitions := range map[string]int{"alone": 0, "group": 4} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hub, s := pointsHub(t)
			s.append(10)
			sub := s.subscribe(hub, eventstore.SubscribeRequest{Point: "p", Partitions: partitions, Start: from(0), Window: 4})
			r := read(t, sub)
			r.until(4)
			for _, n := range []eventstore.Offset{10, 11, 1 << 40} {
				requireCode(t, sub.Ack(n), eventstore.OffsetAhead, s.at(10))
				requireCode(t, sub.Commit(ctx, *s.at(n)), eventstore.OffsetAhead, s.at(10))
			}
			batch, err := sub.Next(ctx, soon)
			require.NoError(t, err)
			require.Empty(t, batch.Messages, "nothing was acknowledged")
			requireCode(t, sub.Commit(ctx, eventstore.StreamPosition{Epoch: s.epoch + 1, Offset: 99}), eventstore.EpochChanged, s.at(0))

			require.NoError(t, sub.Ack(7))
			r.until(8)
			require.NoError(t, sub.Commit(ctx, *s.at(5)))
			s.append(3)
			require.NoError(t, sub.Commit(ctx, *s.at(9)))
		})
	}
}

// The messages of a partition that went to another member need no room in the window
// any more, whether they are acknowledged or not.
func TestLostPartitionFreesRoom(t *testing.T) {
	t.Parallel()
	hub, s := pointsHub(t)
	s.append(40)
	group := eventstore.SubscribeRequest{Point: "p", Partitions: 2, Start: from(0), Window: 12}
	sub := s.subscribe(hub, group)
	read(t, sub).until(12)
	group.Member = "other"
	s.subscribe(hub, group)
	for {
		batch, err := next(ctx, sub)
		require.NoError(t, err)
		if len(batch.Messages) > 0 {
			break // there is room again
		}
		require.True(t, batch.Assigned)
		require.Len(t, batch.Partitions, 1)
	}
}
