package queries_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"leat/commands"
	"leat/eventstore"
	"leat/queries"
)

// Whatever a queue has been through, its pages hold what the view of its
// messages does.
func TestPagesAreWhole(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, mode := range []string{commands.Standard, commands.FIFO} {
		b.declare(mode, commands.ChannelSpec{Mode: mode, Policy: commands.PolicyPatch{
			Retry: commands.RetryPatch{BaseDelay: new(time.Hour), MaxDelay: new(time.Hour)},
		}})
		stir(b, mode)
		for _, state := range []queries.State{"", queries.Ready, queries.Delayed, queries.InFlight, queries.Dead} {
			for _, key := range []*string{nil, new("k1"), new("nobody's")} {
				for _, limit := range []int{3, 50} {
					filter := queries.MessagesFilter{State: state, RoutingKey: key, Limit: limit}
					require.Equal(t, seen(b, mode, filter), paged(b, mode, filter), "%s: %+v", mode, filter)
				}
			}
		}
	}
}

// stir leaves messages in every state, in runs that lie in one another.
func stir(b bench, queue string) {
	b.t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	for range 4 {
		messages := numbered(25)
		for i := range messages {
			messages[i].RoutingKey = fmt.Sprint("k", random.IntN(20))
			if queue == commands.Standard {
				messages[i].Priority = random.IntN(3)
			}
			if random.IntN(5) == 0 {
				messages[i].Delay = time.Hour
			}
		}
		b.publish(queue, messages...)
	}
	for _, action := range []string{"deadLetter", "retry", "release", "discard", "deadLetter", ""} {
		receipts := b.poll(queue, 8)
		require.NotEmpty(b.t, receipts)
		random.Shuffle(len(receipts), func(i, j int) { receipts[i], receipts[j] = receipts[j], receipts[i] })
		receipts = receipts[:(len(receipts)+1)/2]
		switch action {
		case "":
		case "release":
			_, err := b.broker.Release(b.t.Context(), commands.SettleRequest{Queue: queue, Receipts: receipts})
			require.NoError(b.t, err)
		default:
			b.nack(queue, receipts, action, "")
		}
	}
}

// seen is what the view of messages has.
func seen(b bench, queue string, f queries.MessagesFilter) []eventstore.MessageID {
	b.t.Helper()
	rows, err := b.pool.Query(b.t.Context(), `
		select m.message_id
		from leat.queue_messages m
		where m.channel = $1 and ($2 = '' or m.state = $2) and ($3::text is null or m.routing_key = $3)
		order by m.message_id`, queue, f.State, f.RoutingKey)
	require.NoError(b.t, err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[eventstore.MessageID])
	require.NoError(b.t, err)
	return list
}

// paged is what all pages have.
func paged(b bench, queue string, f queries.MessagesFilter) []eventstore.MessageID {
	b.t.Helper()
	list := []eventstore.MessageID{}
	for {
		page, next, err := b.Messages(b.t.Context(), queue, f)
		require.NoError(b.t, err)
		list = append(list, ids(page)...)
		if f.Cursor = next; next == "" {
			return list
		}
		require.Len(b.t, page, f.Limit)
	}
}
