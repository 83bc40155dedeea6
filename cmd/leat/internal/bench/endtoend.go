package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"leat/commands"
)

const (
	// pairs is how many producers there are, and how many consumers.
	pairs = 8
	// window bounds what was sent and is not received yet, so that a rate is one
	// that can be kept up.
	window = 1000
	// openRate is the messages per second of the latency cases.
	openRate = 200
	// pairPause is how long a consumer of the floor waits that found nothing.
	pairPause = 4 * time.Millisecond
)

// endToEndWorks publish and consume at once: as fast as it goes, and at a fixed
// rate, by producers that keep to their schedule whatever the broker does.
func (l *lab) endToEndWorks() []work {
	var works []work
	for _, c := range []struct {
		name  string
		limit int
		open  bool
	}{
		{"endtoend/max1", 1, false}, {"endtoend/max10", 10, false}, {"latency/max10", 10, true},
	} {
		floor := side{name: "pair", take: func(ctx context.Context, clk *clock) (tally, error) {
			return l.pairFloor(ctx, clk, c.limit, c.open)
		}}
		works = append(works, work{
			name: c.name,
			sides: l.sides([]side{floor}, func(via string) func(context.Context, *clock) (tally, error) {
				return func(ctx context.Context, clk *clock) (tally, error) {
					return l.endToEnd(ctx, clk, via, c.limit, c.open)
				}
			}),
		})
	}
	return works
}

func (l *lab) endToEnd(ctx context.Context, c *clock, via string, limit int, open bool) (tally, error) {
	queue, err := l.declare(ctx, l.main)
	if err != nil {
		return tally{}, err
	}
	if err := l.main.settle(ctx); err != nil {
		return tally{}, err
	}
	if err := l.warmConnections(ctx, l.main, queue); err != nil {
		return tally{}, err
	}
	d := l.main.driver(via)
	s := l.newStream(brokerEnd{driver: d, queue: queue, limit: limit}, open)
	s.send = func(ctx context.Context, worker int, payload []byte) error {
		key := l.keys[(int(s.sent[worker])*pairs+worker)%len(l.keys)]
		return d.publish(ctx, queue, []commands.Message{{RoutingKey: key, Payload: payload}})
	}
	done, err := s.run(ctx, c)
	if err != nil {
		return tally{}, err
	}
	return done, l.main.expect(ctx, queue, 0)
}

const insertPairSQL = `-- bench.insertPair
insert into floor.queue (payload) values ($1)`

func (l *lab) pairFloor(ctx context.Context, c *clock, limit int, open bool) (done tally, err error) {
	from := deleteEnd{limit: limit, pause: pairPause}
	if err := l.fillFloor(ctx, from, 0); err != nil {
		return tally{}, fmt.Errorf("empty: %w", err)
	}
	send := func(ctx context.Context, conn *pgx.Conn, payload []byte) error {
		_, err := conn.Exec(ctx, insertPairSQL, payload)
		return err
	}
	conns, err := l.floors.open(ctx, 2*pairs, func(ctx context.Context, conn *pgx.Conn) error {
		if err := send(ctx, conn, l.payload(0)); err != nil {
			return err
		}
		_, err := from.on(connections{conn}).receive(ctx, 0)
		return err
	})
	if err != nil {
		return tally{}, err
	}
	defer func() { err = errors.Join(err, l.floors.trim(ctx, kept)) }()
	s := l.newStream(from.on(conns[pairs:]), open)
	s.send = func(ctx context.Context, worker int, payload []byte) error { return send(ctx, conns[worker], payload) }
	return s.run(ctx, c)
}

// stream sends and receives at once, and takes the time from before the sending
// to the receiving.
type stream struct {
	lab   *lab
	send  func(ctx context.Context, worker int, payload []byte) error
	from  end
	open  bool          // keeps to a schedule:
	rate  int           // messages per second
	batch int           // messages of each sending
	lasts time.Duration // unless a number of messages is given
	sent  []int64       // by producer
	// follow, if not nil, is called when all was received, and belongs to the sample.
	follow func(ctx context.Context) error
	// flying holds a token for each message under way, if not open.
	flying  chan struct{}
	latency []*hdrhistogram.Histogram // by consumer
}

func (l *lab) newStream(from end, open bool) *stream {
	s := &stream{
		lab: l, from: from, open: open, rate: openRate, batch: 1, lasts: 3 * l.cfg.Duration,
		sent: make([]int64, pairs), flying: make(chan struct{}, window),
	}
	for range pairs {
		s.latency = append(s.latency, hdrhistogram.New(1, time.Minute.Microseconds(), 3))
	}
	return s
}

func (s *stream) run(ctx context.Context, c *clock) (tally, error) {
	if err := c.start(ctx); err != nil {
		return tally{}, err
	}
	group, running := errgroup.WithContext(ctx)
	working, aim := newGoal(running, math.MaxInt)
	defer aim.reached()
	group.Go(func() error { return consume(running, working, s.from, pairs, aim, s.see) })
	group.Go(func() error {
		sent, err := s.produce(running)
		if err == nil {
			aim.set(sent)
		}
		return err
	})
	if err := errors.Join(group.Wait(), ctx.Err()); err != nil {
		return tally{}, err
	}
	done, began := tally{messages: int(aim.got.Load())}, time.Now()
	if s.follow != nil {
		if err := s.follow(ctx); err != nil {
			return tally{}, err
		}
		done.lag = time.Since(began)
	}
	if err := errors.Join(c.stop(ctx), aim.check()); err != nil {
		return tally{}, err
	}
	done.latency = s.latency[0]
	for _, other := range s.latency[1:] {
		done.latency.Merge(other)
	}
	return done, nil
}

func (s *stream) produce(ctx context.Context) (int, error) {
	if s.open {
		return s.keepSchedule(ctx)
	}
	run := s.lab.quota()
	return each(ctx, pairs, func(ctx context.Context, worker int) (int, error) {
		for run.take(1) > 0 {
			select {
			case s.flying <- struct{}{}:
			case <-ctx.Done():
				return 0, ctx.Err()
			}
			if err := s.send(ctx, worker, s.lab.payload(time.Since(s.lab.epoch))); err != nil {
				return 0, fmt.Errorf("send: %w", err)
			}
			s.sent[worker]++
		}
		return int(s.sent[worker]), nil
	})
}

// keepSchedule sends at fixed times. A message counts from when it was due, so
// that what waits behind a slow one is not left out.
func (s *stream) keepSchedule(ctx context.Context) (int, error) {
	every := time.Second * time.Duration(s.batch) / time.Duration(s.rate)
	sendings := (s.lab.cfg.Messages + s.batch - 1) / s.batch
	if sendings == 0 {
		sendings = int(s.lasts / every)
	}
	start := time.Now()
	return each(ctx, pairs, func(ctx context.Context, worker int) (int, error) {
		for i := worker; i < sendings; i += pairs {
			due := start.Add(time.Duration(i) * every)
			if err := waitUntil(ctx, due); err != nil {
				return 0, err
			}
			if err := s.send(ctx, worker, s.lab.payload(due.Sub(s.lab.epoch))); err != nil {
				return 0, fmt.Errorf("send: %w", err)
			}
			s.sent[worker] += int64(s.batch)
		}
		return int(s.sent[worker]), nil
	})
}

// see notes the latency of what was received.
func (s *stream) see(worker int, got []delivery) error {
	now := time.Since(s.lab.epoch)
	for i := range got {
		at, err := stampOf(got[i].payload)
		if err != nil {
			return err
		}
		if err := s.latency[worker].RecordValue(max(1, (now - at).Microseconds())); err != nil {
			return err
		}
		if !s.open {
			<-s.flying
		}
	}
	return nil
}
