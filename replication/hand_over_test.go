package replication_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"leat/eventstore"
	"leat/migrations/dbtest"
	"leat/replication"
)

// fakeTail passes on what is committed while it is live, late, in pieces, and
// sometimes again. What is committed while it is interrupted it never tells.
type fakeTail struct {
	hub *replication.Hub

	mu    sync.Mutex
	live  bool
	queue []func() // what is to be told
	wake  chan struct{}
	last  []func() // what was told last, to be told again
}

func (f *fakeTail) push(tell ...func()) {
	f.queue = append(f.queue, tell...)
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// turn begins or ends a connection.
func (f *fakeTail) turn(live bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.live = live
	if live {
		f.push(f.hub.Live)
		f.push(f.last...)
	} else {
		f.queue = nil
		f.push(f.hub.Interrupted)
	}
}

// commit commits while nothing changes, and tells of it before or after.
func (f *fakeTail) commit(early bool, tell func(), commit func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !early {
		commit()
	}
	if f.live {
		f.push(tell)
		f.last = append(f.last[max(0, len(f.last)-5):], tell)
	}
	if early {
		commit()
	}
}

// run tells until ctx ends.
func (f *fakeTail) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.wake:
		}
		for {
			f.mu.Lock()
			if len(f.queue) == 0 {
				f.mu.Unlock()
				break
			}
			tell := f.queue[0]
			f.queue = f.queue[1:]
			f.mu.Unlock()
			tell()
			if rand.IntN(3) == 0 {
				f.hub.Flush()
			}
			pause(ctx, rand.IntN(3))
		}
		f.hub.Flush()
	}
}

// pause waits some milliseconds.
func pause(ctx context.Context, n int) {
	if n > 0 {
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(n) * time.Millisecond):
		}
	}
}

// steps of the hand-over test. LEAT_TEST_STEPS is for longer runs by hand.
func steps(t *testing.T) int {
	t.Helper()
	if text := os.Getenv("LEAT_TEST_STEPS"); text != "" {
		n, err := strconv.Atoi(text)
		require.NoError(t, err)
		return n
	}
	return 1500
}

// G7, F26: every subscriber sees every offset once and in order, whatever is
// committed and rolled back, whatever the tail loses, repeats or delays, and wherever
// the subscriber reads: rings are tiny here, some subscribers slow, some come and go.
func TestG7HandOverIsExact(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	hub := startHub(t, replication.HubConfig{
		Pool: pool, RingMessages: 40, RingBytes: 30_000, RingsBytes: 70_000, PagesBytes: 200_000,
	})
	tail := &fakeTail{hub: hub, wake: make(chan struct{}, 1)}
	run(t, tail.run)
	streams := []*stream{newStream(t, pool, "x"), newStream(t, pool, "y"), newStream(t, pool, "z")}
	done := make(chan struct{}) // closed when all is written
	var readers sync.WaitGroup
	for _, s := range streams {
		for i := range 6 {
			readers.Go(func() { assert.NoError(t, s.readAll(hub, done, i)) })
		}
	}
	for range steps(t) {
		s := streams[rand.IntN(len(streams))]
		switch step := rand.IntN(100); {
		case step < 3:
			tail.turn(true)
		case step < 6:
			tail.turn(false)
		case step < 10:
			s.rollBack(1 + rand.IntN(5))
		case step < 12:
			hub.Poke()
		case step < 14:
			hub.Poke(s.channel)
		case step < 40:
			s.step(tail, copyIn, 1+rand.IntN(60))
		default:
			s.step(tail, write, 1+rand.IntN(15))
		}
		pause(ctx, rand.IntN(2))
	}
	close(done)
	readers.Wait()
}

// step commits messages, of which the tail hears.
func (s *stream) step(tail *fakeTail, sql string, n int) {
	first := s.next
	tell := func() {
		if sql == copyIn {
			tail.hub.Batch(s.channel, first, n)
			return
		}
		for _, m := range s.messages(first, n) {
			if tail.hub.Wants(s.channel, m.Offset+1) {
				tail.hub.Message(s.channel, m)
			}
		}
	}
	tail.commit(rand.IntN(2) == 0, tell, func() { s.commit(sql, n) })
}

// readAll reads the stream from its beginning to its end. Reader 0 is fast, others
// are slow, and the last ones subscribe again and again.
func (s *stream) readAll(hub *replication.Hub, done <-chan struct{}, i int) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	r := &reader{t: s.t}
	for {
		sub, err := hub.Subscribe(ctx, eventstore.SubscribeRequest{Stream: s.name, Start: from(r.next), Window: 100 * (i % 2)})
		if err != nil {
			return err
		}
		for r.sub = sub; i < 4 || rand.IntN(10) > 0; {
			batch, err := sub.Next(ctx, 200*time.Millisecond)
			if err == nil {
				err = r.check(batch)
			}
			if err == nil {
				err = sub.Ack(batch.Next.Offset - 1)
			}
			if err != nil {
				return errors.Join(err, ctx.Err())
			}
			select {
			case <-done:
				if r.next == s.next {
					sub.Close()
					return nil
				}
			default:
			}
			pause(ctx, i*rand.IntN(8))
		}
		sub.Close()
	}
}
