package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sync/errgroup"

	"leat/commands"
)

// work is one case, with the sides that take turns at it.
type work struct {
	name  string
	sides []side
}

// side prepares a sample, takes it between a start and a stop of the clock, and
// checks it.
type side struct {
	name  string
	label string // for people; "": the name
	take  func(ctx context.Context, c *clock) (tally, error)
}

// tally is how much a sample did.
type tally struct {
	messages int
	latency  *hdrhistogram.Histogram // in microseconds; nil: not measured
	memory   int64                   // bytes of this process more than before; 0: not measured
	bytes    int64                   // that were read; 0: not measured
	program  time.Duration           // CPU time of a program beside this process
	lag      time.Duration           // between the last message and the end of the sample
}

// sample is a tally and its costs.
type sample struct {
	tally
	costs
}

// leat is the first part of the name of the sides that measure the broker.
const leat = "leat"

func viaName(via string) string {
	if via == ViaCommands {
		return leat
	}
	return leat + " " + via
}

// works lists all cases.
func (l *lab) works() []work {
	all := l.publishWorks()
	all = append(all, l.drainWorks()...)
	all = append(all, l.cycleWorks()...)
	all = append(all, l.endToEndWorks()...)
	all = append(all, l.depthWorks()...)
	all = append(all, l.rebuildWorks()...)
	all = append(all, l.fanoutWorks()...)
	all = append(all, l.failureWorks()...)
	all = append(all, l.streamWorks()...)
	all = append(all, l.auditWorks()...)
	return all
}

func (l *lab) names() string {
	var names []string
	for _, one := range l.works() {
		names = append(names, one.name)
	}
	return strings.Join(names, ", ")
}

// viaSides are a case's floors, and its sides for each way to the broker.
func (l *lab) sides(floors []side, take func(via string) func(context.Context, *clock) (tally, error)) []side {
	for _, via := range l.cfg.Via {
		floors = append(floors, side{name: viaName(via), take: take(via)})
	}
	return floors
}

// measure takes the samples of a case, by side.
func (l *lab) measure(ctx context.Context, one work, begin func(side string)) (map[string][]sample, error) {
	samples := map[string][]sample{}
	for range l.cfg.Rounds {
		for _, s := range one.sides {
			begin(s.name)
			c := &clock{m: l.meter}
			done, err := s.take(ctx, c)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.name, err)
			}
			samples[s.name] = append(samples[s.name], sample{tally: done, costs: c.sum})
		}
	}
	return samples, nil
}

// quota is how much a sample has to send: a number of messages, or as many as
// go in a time.
type quota struct {
	left  atomic.Int64
	until time.Time
}

// quota starts to run now.
func (l *lab) quota() *quota { return newQuota(l.cfg.Messages, l.cfg.Duration) }

func newQuota(messages int, duration time.Duration) *quota {
	q := &quota{}
	if messages == 0 {
		messages = math.MaxInt64 / 2
		q.until = time.Now().Add(duration)
	}
	q.left.Store(int64(messages))
	return q
}

// take answers how many of n messages may still be sent.
func (q *quota) take(n int) int {
	if !q.until.IsZero() && time.Now().After(q.until) {
		return 0
	}
	left := int(q.left.Add(int64(-n)))
	return max(0, min(n, n+left))
}

// deck deals messages under the keys in turn.
type deck struct {
	keys    []string
	payload []byte
	next    int
}

func (d *deck) deal(n int) []commands.Message {
	messages := make([]commands.Message, n)
	for i := range messages {
		messages[i] = commands.Message{RoutingKey: d.keys[d.next%len(d.keys)], Payload: d.payload}
		d.next++
	}
	return messages
}

// produce publishes batches until the quota is used up.
func (l *lab) produce(ctx context.Context, d driver, queue string, producers, batch int, run *quota) (int, error) {
	return produce(ctx, d, queue, producers, batch, run, func(worker int) *deck {
		return &deck{keys: l.keys, payload: l.payload(0), next: worker * len(l.keys) / producers}
	})
}

// produce gives each producer a deck of its own.
func produce(ctx context.Context, d driver, queue string, producers, batch int, run *quota, cut func(worker int) *deck) (int, error) {
	return each(ctx, producers, func(ctx context.Context, worker int) (int, error) {
		cards := cut(worker)
		sent := 0
		for n := run.take(batch); n > 0; n = run.take(batch) {
			if err := d.publish(ctx, queue, cards.deal(n)); err != nil {
				return sent, fmt.Errorf("publish: %w", err)
			}
			sent += n
		}
		return sent, nil
	})
}

// each runs workers at once, and adds up what they did.
func each(ctx context.Context, workers int, do func(ctx context.Context, worker int) (int, error)) (int, error) {
	var total atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for worker := range workers {
		group.Go(func() error {
			n, err := do(ctx, worker)
			total.Add(int64(n))
			return err
		})
	}
	err := group.Wait()
	return int(total.Load()), err
}

// payload is a JSON string that begins with a time since the lab's epoch.
func (l *lab) payload(at time.Duration) []byte {
	text := make([]byte, 0, l.cfg.Payload)
	text = fmt.Appendf(text, `"%020d`, int64(at))
	for len(text) < l.cfg.Payload-1 {
		text = append(text, 'x')
	}
	return append(text, '"')
}

// stampOf reads the time of a payload.
func stampOf(payload []byte) (time.Duration, error) {
	if len(payload) < MinPayload {
		return 0, errors.New("read payload: too short")
	}
	at, err := strconv.ParseInt(string(payload[1:21]), 10, 64)
	return time.Duration(at), err
}

// end is where consumers take messages from. A worker receives and settles in
// turn; receive may answer nothing.
type end interface {
	receive(ctx context.Context, worker int) ([]delivery, error)
	settle(ctx context.Context, deliveries []delivery) error
}

// brokerEnd takes from a queue of the broker.
type brokerEnd struct {
	driver
	queue string
	limit int
}

func (e brokerEnd) receive(ctx context.Context, _ int) ([]delivery, error) {
	return e.poll(ctx, e.queue, e.limit, time.Second)
}

func (e brokerEnd) settle(ctx context.Context, deliveries []delivery) error {
	return e.ack(ctx, e.queue, deliveries)
}

// settleSome receives and settles n messages, in as many goes as it takes.
func (e brokerEnd) settleSome(ctx context.Context, worker, n int) error {
	for e.limit = n; e.limit > 0; {
		got, err := e.receive(ctx, worker)
		if err != nil {
			return fmt.Errorf("poll: %w", err)
		}
		if len(got) == 0 {
			continue // others have it, for now
		}
		if err := e.settle(ctx, got); err != nil {
			return err
		}
		e.limit -= len(got)
	}
	return nil
}

// goal ends the consumers when all messages are settled.
type goal struct {
	got, want atomic.Int64
	reached   context.CancelFunc
}

// newGoal makes a goal and the context that ends when it is reached.
func newGoal(ctx context.Context, want int) (context.Context, *goal) {
	working, reached := context.WithCancel(ctx)
	g := &goal{reached: reached}
	g.want.Store(int64(want))
	return working, g
}

func (g *goal) done() bool { return g.got.Load() >= g.want.Load() }

// add counts what was settled.
func (g *goal) add(n int) {
	g.got.Add(int64(n))
	g.look()
}

// set says how many there are, when that was not known before.
func (g *goal) set(want int) {
	g.want.Store(int64(want))
	g.look()
}

func (g *goal) look() {
	if g.done() {
		g.reached()
	}
}

// check reports messages that came too often: then the goal was overshot.
func (g *goal) check() error {
	if got, want := g.got.Load(), g.want.Load(); got != want {
		return fmt.Errorf("%w: %d received instead of %d", errCount, got, want)
	}
	return nil
}

// consume receives and settles until working ends, which it does when the goal
// is reached; ctx is for what must be finished.
func consume(ctx, working context.Context, from end, consumers int, aim *goal, see func(worker int, got []delivery) error) error {
	_, err := each(working, consumers, func(working context.Context, worker int) (int, error) {
		for working.Err() == nil {
			got, err := from.receive(working, worker)
			switch {
			case err != nil && aim.done(): // it was ended, as it should be
				return 0, nil
			case err != nil:
				return 0, fmt.Errorf("receive: %w", err)
			case len(got) == 0:
				continue
			}
			if err := see(worker, got); err != nil {
				return 0, err
			}
			if err := from.settle(ctx, got); err != nil {
				return 0, err
			}
			aim.add(len(got))
		}
		return 0, nil
	})
	return err
}

// drain consumes a number of messages.
func drain(ctx context.Context, from end, consumers, messages int) error {
	working, aim := newGoal(ctx, messages)
	defer aim.reached()
	if err := consume(ctx, working, from, consumers, aim, func(int, []delivery) error { return nil }); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return aim.check()
}
