package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sync/errgroup"

	"leat/commands"
)

const (
	// tailRate is the messages per second of the case of a fixed rate.
	tailRate = 20_000
	// tailBatch is how many messages a publish of the stream cases has.
	tailBatch = 100
	// tailReaders is how many subscribers share a stream in the fan-out case.
	tailReaders = 10
	// tailWait bounds how long a sample waits for what it published.
	tailWait = time.Minute
	// catchUp is how many messages a subscriber finds in the table.
	catchUp = 200_000
)

// bare is the floor of the streams: a tail that only decodes, and hands on.
const bare = "pgoutput"

// flow is a stream, or the floor's table, with who writes and who reads.
type flow interface {
	// write stores messages in one transaction.
	write(ctx context.Context, messages []commands.Message) error
	// read hands over what comes, from the beginning or from now on, until the
	// context ends; begun is called when nothing more will be missed.
	read(ctx context.Context, begun func(), see func(payloads [][]byte) error) error
}

// streamWorks are the cases of streams: the way from the commit to those who read.
func (l *lab) streamWorks() []work {
	reading := func(name string, open func(ctx context.Context) (flow, error),
		take func(ctx context.Context, c *clock, f flow) (tally, error),
	) side {
		return side{name: name, take: func(ctx context.Context, c *clock) (tally, error) {
			f, err := open(ctx)
			if err != nil {
				return tally{}, err
			}
			return take(ctx, c, f)
		}}
	}
	sides := func(floor bool, take func(ctx context.Context, c *clock, f flow) (tally, error)) (sides []side) {
		if floor {
			sides = append(sides, reading(bare, l.bareFlow, take))
		}
		return append(sides, reading(leat, l.hubFlow, take), reading(leat+" ws", l.socketFlow, take))
	}
	return []work{
		{name: "stream/rate", sides: sides(true, l.tailAtRate)},
		{name: "stream/fanout", sides: sides(true, l.tailFanOut)},
		{name: "stream/latency", sides: sides(true, l.tailLatency)},
		{name: "stream/catchup", sides: sides(false, l.catchUp)},
		{name: "stream/idle", sides: []side{{name: leat + " ws", take: l.idleReaders}}},
	}
}

// declareStream makes a stream for one sample.
func (l *lab) declareStream(ctx context.Context) (string, error) {
	name := "bench-" + rand.Text()[:8]
	_, _, err := l.main.node.Commands.DeclareChannel(ctx, actor, commands.ChannelSpec{Name: name, Kind: commands.Stream})
	if err != nil {
		return "", fmt.Errorf("declare stream: %w", err)
	}
	return name, nil
}

// audience reads a flow, so many times at once.
type audience struct {
	group   *errgroup.Group
	stop    context.CancelFunc
	seen    atomic.Int64
	want    atomic.Int64
	reached chan struct{}
	once    sync.Once
}

// gather returns when all readers have begun.
func gather(ctx context.Context, f flow, readers int, see func(reader int, payloads [][]byte) error) (*audience, error) {
	reading, stop := context.WithCancel(ctx)
	a := &audience{stop: stop, reached: make(chan struct{})}
	a.want.Store(1 << 62)
	group, reading := errgroup.WithContext(reading)
	a.group = group
	var begun sync.WaitGroup
	begun.Add(readers)
	for reader := range readers {
		group.Go(func() error {
			once := sync.OnceFunc(begun.Done)
			defer once() // also if it never does
			err := f.read(reading, once, func(payloads [][]byte) error {
				if err := see(reader, payloads); err != nil {
					return err
				}
				a.add(len(payloads))
				return nil
			})
			if reading.Err() != nil {
				return nil
			}
			return fmt.Errorf("read: %w", err)
		})
	}
	begun.Wait()
	if reading.Err() != nil {
		return nil, a.end()
	}
	return a, nil
}

func (a *audience) add(n int) {
	if a.seen.Add(int64(n)) >= a.want.Load() {
		a.once.Do(func() { close(a.reached) })
	}
}

// await returns when all together have seen so many messages, and none twice.
func (a *audience) await(ctx context.Context, messages int) error {
	a.want.Store(int64(messages))
	a.add(0)
	timer := time.NewTimer(tailWait)
	defer timer.Stop()
	select {
	case <-a.reached:
	case <-timer.C:
		return fmt.Errorf("%w: %d received instead of %d", errCount, a.seen.Load(), messages)
	case <-ctx.Done():
		return ctx.Err()
	}
	if seen := a.seen.Load(); seen != int64(messages) {
		return fmt.Errorf("%w: %d received instead of %d", errCount, seen, messages)
	}
	return nil
}

func (a *audience) end() error {
	a.stop()
	return a.group.Wait()
}

// tailAtRate publishes at a fixed rate, and takes the time from when a message
// was due.
func (l *lab) tailAtRate(ctx context.Context, c *clock, f flow) (tally, error) {
	latency := hdrhistogram.New(1, time.Minute.Microseconds(), 3)
	a, err := gather(ctx, f, 1, func(_ int, payloads [][]byte) error {
		now := time.Since(l.epoch)
		for _, payload := range payloads {
			at, err := stampOf(payload)
			if err != nil {
				return err
			}
			if err := latency.RecordValue(max(1, (now - at).Microseconds())); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return tally{}, err
	}
	messages := l.cfg.Messages
	if messages == 0 {
		messages = int(3 * l.cfg.Duration.Seconds() * tailRate)
	}
	if err := l.awaitTail(ctx); err != nil {
		return tally{}, errors.Join(err, a.end())
	}
	if err := c.start(ctx); err != nil {
		return tally{}, errors.Join(err, a.end())
	}
	err = l.writeAtRate(ctx, f, messages)
	if err == nil {
		err = a.await(ctx, messages)
	}
	err = errors.Join(err, c.stop(ctx), a.end())
	return tally{messages: messages, latency: latency}, err
}

func (l *lab) writeAtRate(ctx context.Context, f flow, messages int) error {
	const every = time.Second * tailBatch / tailRate
	start := time.Now()
	for sent := 0; sent < messages; sent += tailBatch {
		due := start.Add(time.Duration(sent/tailBatch) * every)
		if err := waitUntil(ctx, due); err != nil {
			return err
		}
		cards := deck{keys: l.keys, payload: l.payload(due.Sub(l.epoch))}
		if err := f.write(ctx, cards.deal(min(tailBatch, messages-sent))); err != nil {
			return fmt.Errorf("publish: %w", err)
		}
	}
	return nil
}

// tailFanOut publishes as fast as one publisher can, to many readers. It counts
// what was delivered.
func (l *lab) tailFanOut(ctx context.Context, c *clock, f flow) (tally, error) {
	a, err := gather(ctx, f, tailReaders, func(int, [][]byte) error { return nil })
	if err != nil {
		return tally{}, err
	}
	if err := l.awaitTail(ctx); err != nil {
		return tally{}, errors.Join(err, a.end())
	}
	if err := c.start(ctx); err != nil {
		return tally{}, errors.Join(err, a.end())
	}
	run := newQuota(l.cfg.Messages, 2*l.cfg.Duration)
	cards := deck{keys: l.keys, payload: l.payload(0)}
	sent := 0
	for n := run.take(tailBatch); n > 0 && err == nil; n = run.take(tailBatch) {
		err = f.write(ctx, cards.deal(n))
		sent += n
	}
	if err == nil {
		err = a.await(ctx, sent*tailReaders)
	}
	err = errors.Join(err, c.stop(ctx), a.end())
	return tally{messages: sent * tailReaders}, err
}

// tailLatency takes the time from when the publisher knew of the commit.
func (l *lab) tailLatency(ctx context.Context, c *clock, f flow) (tally, error) {
	messages := l.cfg.Messages
	if messages == 0 {
		messages = int(3 * l.cfg.Duration.Seconds() * openRate)
	}
	came := make([]time.Time, messages)
	a, err := gather(ctx, f, 1, func(_ int, payloads [][]byte) error {
		now := time.Now()
		for _, payload := range payloads {
			number, err := stampOf(payload)
			if err != nil {
				return err
			}
			came[number] = now
		}
		return nil
	})
	if err != nil {
		return tally{}, err
	}
	if err := l.awaitTail(ctx); err != nil {
		return tally{}, errors.Join(err, a.end())
	}
	if err := c.start(ctx); err != nil {
		return tally{}, errors.Join(err, a.end())
	}
	committed := make([]time.Time, messages)
	start := time.Now()
	for i := 0; i < messages && err == nil; i++ {
		if err = waitUntil(ctx, start.Add(time.Duration(i)*time.Second/openRate)); err != nil {
			break
		}
		cards := deck{keys: l.keys, payload: l.payload(time.Duration(i))}
		err = f.write(ctx, cards.deal(1))
		committed[i] = time.Now()
	}
	if err == nil {
		err = a.await(ctx, messages)
	}
	err = errors.Join(err, c.stop(ctx), a.end())
	latency := hdrhistogram.New(1, time.Minute.Microseconds(), 3)
	for i := range came {
		if recordErr := latency.RecordValue(max(1, came[i].Sub(committed[i]).Microseconds())); err == nil {
			err = recordErr
		}
	}
	return tally{messages: messages, latency: latency}, err
}

// awaitTail waits until somebody reads the log, which a broker does only for
// subscribers. One that cannot goes on without.
func (l *lab) awaitTail(ctx context.Context) error {
	for until := time.Now().Add(5 * time.Second); time.Now().Before(until); {
		senders, err := l.meter.senders(ctx)
		if err != nil || len(senders) > 0 || l.meter.postmaster == 0 {
			return err
		}
		if err := waitUntil(ctx, time.Now().Add(10*time.Millisecond)); err != nil {
			return err
		}
	}
	return nil
}

// catchUp reads what was published before.
func (l *lab) catchUp(ctx context.Context, c *clock, f flow) (tally, error) {
	messages := catchUp / l.cfg.Scale
	cards := deck{keys: l.keys, payload: l.payload(0)}
	for sent := 0; sent < messages; {
		n := min(1000, messages-sent)
		if err := f.write(ctx, cards.deal(n)); err != nil {
			return tally{}, fmt.Errorf("publish: %w", err)
		}
		sent += n
	}
	if err := c.start(ctx); err != nil {
		return tally{}, err
	}
	a, err := gather(ctx, f, 1, func(int, [][]byte) error { return nil })
	if err != nil {
		return tally{}, err
	}
	err = a.await(ctx, messages)
	return tally{messages: messages}, errors.Join(err, c.stop(ctx), a.end())
}
