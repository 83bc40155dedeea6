package commands_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"leat/commands"
)

// G5, G4, FS1: publishers, consumers that fail, brokers that sweep and an operator
// at once: each key is acked in the order of its publishes, without a gap.
func TestG5G4FS01OrderInSpiteOfFailures(t *testing.T) {
	t.Parallel()
	coolDown := 30 * time.Millisecond
	b := circuits(t, coolDown, 1)
	other := serve(t, b.pool, commands.Config{})
	exec(t, b.pool, `update leat.channels set base_delay = '0', max_deliveries = 2`)
	const keys, perKey = 5, 60
	var (
		mu    sync.Mutex
		acked = map[string][]string{}
		left  atomic.Int64
		work  sync.WaitGroup
	)
	left.Store(keys * perKey)
	deadline := time.Now().Add(2 * forgiving)
	for k := range keys {
		work.Go(func() { // half of it from transactions that stay open for a while
			for i := range perKey {
				tx, err := b.pool.Begin(ctx)
				if !assert.NoError(t, err) {
					return
				}
				_, err = tx.Exec(ctx, `select leat.publish('f', convert_to($1, 'UTF8'), $2)`, fmt.Sprint(i), fmt.Sprint(k))
				assert.NoError(t, err)
				if i%2 == 0 {
					_, err = tx.Exec(ctx, `select pg_sleep(0.005)`)
					assert.NoError(t, err)
				}
				assert.NoError(t, tx.Commit(ctx))
			}
		})
	}
	for n := range 4 {
		broker := []broker{b, other}[n%2]
		random := rand.New(rand.NewPCG(uint64(n), 7))
		work.Go(func() {
			for left.Load() > 0 && assert.True(t, time.Now().Before(deadline), "%d left", left.Load()) {
				got, err := broker.Poll(ctx, commands.PollRequest{Queue: "f", Max: 1, Wait: 100 * time.Millisecond})
				if !assert.NoError(t, err) || len(got) == 0 {
					continue
				}
				req := settle("f", got...)
				switch random.IntN(10) {
				case 0:
					_, err = broker.Nack(ctx, commands.NackRequest{SettleRequest: req, Action: commands.DeadLetterAction})
				case 1:
					_, err = broker.Nack(ctx, commands.NackRequest{SettleRequest: req, Delay: new(time.Duration(0))})
				case 2:
					_, err = broker.Release(ctx, req)
				default:
					mu.Lock()
					acked[got[0].RoutingKey] = append(acked[got[0].RoutingKey], string(got[0].Payload))
					mu.Unlock()
					_, err = broker.Ack(ctx, req)
					left.Add(-1)
				}
				assert.NoError(t, err)
			}
		})
	}
	work.Go(func() { // the operator
		random := rand.New(rand.NewPCG(9, 9))
		for left.Load() > 0 && time.Now().Before(deadline) {
			req := commands.CircuitRequest{Queue: "f", RoutingKey: fmt.Sprint(random.IntN(keys))}
			_, err := b.CloseCircuit(ctx, req, true)
			assert.NoError(t, err)
			if random.IntN(4) == 0 {
				_, err = b.OpenCircuit(ctx, req)
				assert.NoError(t, err)
			}
			time.Sleep(20 * time.Millisecond) //nolint:forbidigo // the pace of an operator
		}
	})
	work.Wait()
	for k := range keys {
		require.Equal(t, numbered(perKey), acked[fmt.Sprint(k)], "key %d", k)
	}
	require.Empty(t, b.states("f"))
	b.verify()
}
