package commands_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"leat/commands"
	"leat/eventstore"
)

// What is in hand is what was added, was not removed, and has not ended.
func TestOutstandingProperties(t *testing.T) {
	t.Parallel()
	start := time.Now()
	rapid.Check(t, func(t *rapid.T) {
		have := commands.NewOutstanding()
		want := map[eventstore.Receipt]int{} // when it ends
		now := 0
		receipts := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) eventstore.Receipt {
			return eventstore.Receipt{Delivery: 1, Message: eventstore.MessageID(rapid.IntRange(1, 30).Draw(t, "id"))}
		}), 0, 10, rapid.ID)
		at := func(n int) time.Time { return start.Add(time.Duration(n) * time.Second) }
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				ends := now + rapid.IntRange(1, 5).Draw(t, "lease")
				list := receipts.Draw(t, "receipts")
				have.Add(list, at(ends))
				for _, r := range list {
					want[r] = ends
				}
			},
			"remove": func(t *rapid.T) {
				for _, r := range receipts.Draw(t, "receipts") {
					_, there := want[r]
					require.Equal(t, there, have.Remove([]eventstore.Receipt{r}) == 1)
					delete(want, r)
				}
			},
			"pass": func(t *rapid.T) { now += rapid.IntRange(0, 3).Draw(t, "seconds") },
			"": func(t *rapid.T) {
				next := have.Expire(at(now))
				maps.DeleteFunc(want, func(_ eventstore.Receipt, ends int) bool { return ends <= now })
				require.ElementsMatch(t, slices.Collect(maps.Keys(want)), have.All())
				if len(want) == 0 {
					require.True(t, next.IsZero())
				} else {
					require.Equal(t, at(slices.Min(slices.Collect(maps.Values(want)))), next)
				}
			},
		})
	})
}
