package replication

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"leat/eventstore"
)

// What is done of the partitions of a group is never said to be more than what was
// delivered up to the offset of a commit, and no less as long as deliveries are
// remembered one by one and in the order of the offsets.
func TestProgress(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := progress{
			fineMax:   rapid.SampledFrom([]int{0, 0, 8, 30}).Draw(t, "fine"),
			coarseMax: rapid.SampledFrom([]int{0, 1, 4}).Draw(t, "coarse"),
		}
		var all []delivery // the model
		var next eventstore.Offset
		committed, acked, back := uint64(0), uint64(0), false
		t.Repeat(map[string]func(*rapid.T){
			"deliver": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "back") == 0 {
					back = true
					next = eventstore.Offset(rapid.IntRange(0, int(next)).Draw(t, "to"))
				}
				var batch []delivery
				for range rapid.IntRange(1, 6).Draw(t, "n") {
					next += eventstore.Offset(rapid.IntRange(0, 3).Draw(t, "skipped"))
					batch = append(batch, delivery{next, int8(rapid.IntRange(0, 3).Draw(t, "partition"))})
					next++
				}
				all = append(all, batch...)
				next += eventstore.Offset(rapid.IntRange(0, 2).Draw(t, "behind"))
				p.add(slices.Clone(batch), next)
			},
			"commit": func(t *rapid.T) {
				if int(committed) == len(all) {
					t.Skip("nothing to commit")
				}
				i := rapid.IntRange(int(committed), len(all)-1).Draw(t, "message")
				done := p.find(all[i].offset)
				left := p.after(done)
				first := slices.IndexFunc(all[committed:], func(d delivery) bool { return d.offset == all[i].offset })
				require.LessOrEqual(t, int(done), int(committed)+first+1)
				if p.fineMax == 0 && !back {
					require.Equal(t, int(committed)+first+1, int(done))
				}
				want := firsts{}
				for _, d := range all[done:] {
					want.note(d)
				}
				for partition, offset := range want {
					require.Contains(t, left, partition)
					require.LessOrEqual(t, left[partition], offset)
				}
				if p.fineMax == 0 {
					require.Equal(t, want, left)
				}
				acked = max(acked, done)
				if rapid.Bool().Draw(t, "only ack") {
					p.ack(done)
					return
				}
				p.drop(done)
				committed = max(committed, done)
			},
			"lose": func(t *rapid.T) {
				partition := rapid.IntRange(0, 3).Draw(t, "partition")
				p.lose(partition)
				for i := range all {
					if int(all[i].partition) == partition {
						all[i].partition = void
					}
				}
			},
			"": func(t *rapid.T) {
				require.Len(t, all, int(p.count))
				open := 0
				for _, d := range all[acked:] {
					if d.partition != void {
						open++
					}
				}
				require.Equal(t, open, p.outstanding())
				fine, coarse := 0, 0
				for i, b := range p.blocks {
					fine += len(b.deliveries)
					if b.coarse {
						coarse++
						require.Equal(t, coarse-1, i, "the oldest")
					}
				}
				require.Equal(t, []int{fine, coarse}, []int{p.fine, p.coarse})
			},
		})
	})
}

func TestBacklog(t *testing.T) {
	t.Parallel()
	var b backlog
	for _, o := range []eventstore.Offset{1, 2, 3, 7, 9, 10} {
		b.add(o)
	}
	require.False(t, b.ack(0))
	require.Equal(t, 6, b.count)
	require.True(t, b.ack(2))
	require.Equal(t, 4, b.count)
	require.False(t, b.ack(2))
	require.True(t, b.ack(8))
	require.Equal(t, 2, b.count)
	require.True(t, b.ack(20))
	require.Equal(t, backlog{}, b)
}
