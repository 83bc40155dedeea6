package commands_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"leat/commands"
)

// batches records what a coalescer ran. Each run takes a second of fake time.
type batches struct {
	mu     sync.Mutex
	ran    [][]commands.Number
	flying int
	most   int
	worth  int // of a second flight
	fail   func([]commands.Number) error
}

var errBad = errors.New("bad")

func (b *batches) run(batch []commands.Number) error {
	b.mu.Lock()
	b.ran = append(b.ran, batch)
	b.flying++
	b.most = max(b.most, b.flying)
	b.mu.Unlock()
	time.Sleep(time.Second) //nolint:forbidigo // fake time: a commit takes a second
	b.mu.Lock()
	b.flying--
	b.mu.Unlock()
	if b.fail != nil {
		if err := b.fail(batch); err != nil {
			return err
		}
	}
	return nil
}

func (b *batches) coalescer(flights, maxItems int) *commands.Coalescer {
	return commands.NewCoalescer(flights, b.worth, maxItems, b.run, func(err error) bool { return errors.Is(err, errBad) })
}

// submitAll submits 0 to n-1 in order, and waits for all answers.
func submitAll(t *testing.T, c *commands.Coalescer, n int) (errs map[int]error) {
	t.Helper()
	var (
		wg sync.WaitGroup
		mu sync.Mutex
	)
	errs = map[int]error{}
	for i := range n {
		wg.Go(func() {
			if err := c.Submit(t.Context(), commands.Number(i)); err != nil {
				mu.Lock()
				errs[i] = err
				mu.Unlock()
			}
		})
		synctest.Wait()
	}
	wg.Wait()
	return errs
}

func TestCoalescerGathersWhileInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b batches
		start := time.Now()
		require.Empty(t, submitAll(t, b.coalescer(1, 100), 10))
		require.Equal(t, [][]commands.Number{{0}, {1, 2, 3, 4, 5, 6, 7, 8, 9}}, b.ran)
		require.Equal(t, 2*time.Second, time.Since(start), "a lone request leaves at once")
	})
}

func TestCoalescerBounds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b batches
		require.Empty(t, submitAll(t, b.coalescer(2, 3), 10))
		require.Equal(t, [][]commands.Number{{0}, {1}}, b.ran[:2])
		require.Equal(t, 2, b.most, "no more batches than flights at once")
		for _, batch := range b.ran {
			require.LessOrEqual(t, len(batch), 3)
		}
		require.Len(t, slices.Concat(b.ran...), 10)
	})
}

func TestCoalescerBadItemFailsAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := batches{fail: func(batch []commands.Number) error {
			if slices.Contains(batch, 3) {
				return errBad
			}
			return nil
		}}
		errs := submitAll(t, b.coalescer(1, 100), 6)
		require.Equal(t, map[int]error{3: errBad}, errs)
		require.Equal(t, [][]commands.Number{{0}, {1, 2, 3, 4, 5}, {1}, {2}, {3}, {4}, {5}}, b.ran)
	})
}

func TestCoalescerInseparableErrorFailsAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lost := errors.New("connection lost")
		b := batches{fail: func(batch []commands.Number) error {
			if len(batch) > 1 {
				return lost
			}
			return nil
		}}
		errs := submitAll(t, b.coalescer(1, 100), 3)
		require.Equal(t, map[int]error{1: lost, 2: lost}, errs)
		require.Equal(t, [][]commands.Number{{0}, {1, 2}}, b.ran, "nothing runs twice")
	})
}

func TestCoalescerCancelledCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b batches
		c := b.coalescer(1, 100)
		flying, stopFlying := context.WithCancel(t.Context())
		waiting, stopWaiting := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		submit := func(ctx context.Context, n commands.Number, want error) {
			wg.Go(func() {
				assert.ErrorIs(t, c.Submit(ctx, n), want)
			})
			synctest.Wait()
		}
		submit(flying, 1, context.Canceled)
		submit(waiting, 2, context.Canceled)
		submit(t.Context(), 3, nil)
		stopFlying()
		stopWaiting()
		wg.Wait()
		require.Equal(t, [][]commands.Number{{1}, {3}}, b.ran, "who is on its way goes on, who waits is withdrawn")
		require.ErrorIs(t, c.Submit(flying, 4), context.Canceled)
	})
}

// A second batch leaves beside the first when it is worth a commit, or when the
// first is held up.
func TestCoalescerSecondFlight(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		requests int
		after    time.Duration // the first batch left
		want     [][]commands.Number
		most     int
	}{
		"small":   {2, time.Millisecond, [][]commands.Number{{0}, {1, 2}}, 1},
		"worth":   {3, time.Millisecond, [][]commands.Number{{0}, {1, 2, 3}}, 2},
		"overdue": {1, 100 * time.Millisecond, [][]commands.Number{{0}, {1}}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := batches{worth: 3}
				c2 := b.coalescer(2, 100)
				var wg sync.WaitGroup
				submit := func(n commands.Number) {
					wg.Go(func() {
						assert.NoError(t, c2.Submit(t.Context(), n))
					})
					synctest.Wait()
				}
				submit(0)
				time.Sleep(c.after) //nolint:forbidigo // fake time
				for n := range c.requests {
					submit(commands.Number(n + 1))
				}
				wg.Wait()
				require.Equal(t, c.want, b.ran)
				require.Equal(t, c.most, b.most)
			})
		})
	}
}

// Callers that were answered together and ask again one after the other make one
// batch again; who is not back after a moment is not waited for.
func TestCoalescerGathers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := batches{worth: 100}
		c := b.coalescer(1, 100)
		var wg sync.WaitGroup
		submit := func(n commands.Number) {
			wg.Go(func() {
				assert.NoError(t, c.Submit(t.Context(), n))
			})
			synctest.Wait()
		}
		pause := func() { time.Sleep(time.Millisecond / 2) } //nolint:forbidigo // fake time
		submit(0)
		submit(1)
		submit(2) // gathers behind 0, with 1
		wg.Wait()
		submit(3)
		pause()
		submit(4)
		wg.Wait()
		submit(5)
		wg.Wait()
		submit(6)
		pause()
		submit(7) // 6 was alone, as 5 before it, and has left
		wg.Wait()
		require.Equal(t, [][]commands.Number{{0}, {1, 2}, {3, 4}, {5}, {6}, {7}}, b.ran)
	})
}
