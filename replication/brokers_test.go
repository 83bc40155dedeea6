package replication_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"leat/commands"
	"leat/eventstore"
	"leat/migrations/dbtest"
	"leat/replication"
)

// node is a broker with everything by which it hears of others.
type node struct {
	*member
	*commands.Broker
}

func startNode(t *testing.T, pool *pgxpool.Pool, address, id string, change func(*replication.TailConfig)) *node {
	t.Helper()
	n := &node{}
	var announcer *replication.Announcer
	n.Broker = commands.New(commands.Config{
		Pool: pool, Logger: quiet,
		Announce: func(channels []eventstore.ChannelID, logged bool) { announcer.Announce(channels, logged) },
		Tails:    func() bool { return n.State().Mode == replication.ModeWAL },
	})
	n.member = join(t, pool, address, id, func(c *replication.TailConfig) {
		c.Wake = n.Broker.Wake
		c.Fallback = (&replication.Listener{URL: address, Logger: quiet, Wake: n.Broker.Wake}).Run
		if change != nil {
			change(c)
		}
	})
	announcer = replication.NewAnnouncer(pool, n.registry, quiet)
	run(t, announcer.Run)
	run(t, n.Broker.Run)
	return n
}

// F4: what one broker publishes, or gives back, wakes a poll that waits at another,
// whichever way each of them hears.
func TestF04BrokersWakeEachOther(t *testing.T) {
	t.Parallel()
	for name, modes := range map[string][2]func(*replication.TailConfig){
		"wal and wal":       {nil, nil},
		"wal and notify":    {nil, off},
		"notify and wal":    {off, nil},
		"notify and notify": {off, off},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, address := dbtest.NewURL(t)
			a, b := startNode(t, pool, address, "a", modes[0]), startNode(t, pool, address, "b", modes[1])
			for _, n := range []struct {
				*node
				off bool
			}{{a, modes[0] != nil}, {b, modes[1] != nil}} {
				if !n.off {
					n.live(t, 1)
				}
			}
			a.knows(t, modes[1] == nil, modes[1] != nil)
			b.knows(t, modes[0] == nil, modes[0] != nil)
			_, _, err := a.DeclareChannel(ctx, "test", commands.ChannelSpec{Name: "q"})
			require.NoError(t, err)

			// Polls look by themselves after a second: most of those that are woken are
			// answered long before.
			var woken int
			for range 5 {
				got := make(chan time.Time, 1)
				var receipt eventstore.Receipt
				waiting, cancel := context.WithTimeout(ctx, patience)
				go func() {
					deliveries, err := b.Poll(waiting, commands.PollRequest{Queue: "q", Max: 1, Wait: patience})
					if assert.NoError(t, err) && assert.Len(t, deliveries, 1) {
						receipt = deliveries[0].Receipt
					}
					got <- time.Now()
				}()
				_, err := b.Poll(ctx, commands.PollRequest{Queue: "q", Max: 1}) // time for it to wait
				require.NoError(t, err)
				began := time.Now()
				_, err = a.Publish(ctx, commands.PublishRequest{Channel: "q", Messages: []commands.Message{{Payload: []byte("x")}}})
				require.NoError(t, err)
				if (<-got).Sub(began) < 500*time.Millisecond {
					woken++
				}
				cancel()
				_, err = b.Ack(ctx, commands.SettleRequest{Queue: "q", Receipts: []string{receipt.String()}})
				require.NoError(t, err)
			}
			require.GreaterOrEqual(t, woken, 3)
		})
	}
}
