package client

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"runtime/debug"
	"slices"
	"sync"

	"leat/api"
	"leat/eventstore"
)

type batchHandler func(context.Context, []Message) error

// subscription is what outlives the connections: the messages that came, which
// of them are handled, and who handles them.
type subscription struct {
	client *Client
	stream string
	config SubscribeConfig
	handle batchHandler
	// changed has a token when there is something to commit or to acknowledge.
	changed chan struct{}
	idle    chan struct{} // closed when no handler will run any more
	lanes   *lanes[int]   // of entries, by number; nil: in order, one after the other

	mu         sync.Mutex
	ready      sync.Cond // on mu: there is something to take, or nothing will come
	closed     bool
	err        error               // of a handler
	epoch      eventstore.Position // 0 before the first connection
	sessions   int                 // connections so far
	group      bool
	member     string
	partitions uint64 // of the group, in all
	assigned   []int

	// entries are what came, in the order of delivery, from number first on. Those
	// from number taken on wait for a handler.
	entries      []entry
	first, taken int
	// received is behind everything that came, done behind everything that is
	// handled without a gap. In a group offsets go back when partitions come.
	received eventstore.Offset
	order    order
	done     progress
	// since is the connection from which on entries count: before, the point was
	// elsewhere. confirmed is behind what is surely committed.
	since     int
	confirmed eventstore.Offset
	moved     bool // the server said so
}

// entry is a message, or the end of a frame that others of its offsets were
// left out of.
type entry struct {
	message Message
	next    eventstore.Offset // behind it
	session int
	done    bool
	mark    bool // no message
	dropped bool // it was one
}

// progress is how far the handlers are, in the order of delivery.
type progress struct {
	next     eventstore.Offset
	session  int // of the entry that next is from
	number   int // of entries
	messages int
}

func newSubscription(c *Client, stream string, config SubscribeConfig, handle batchHandler) *subscription {
	s := &subscription{
		client: c, stream: stream, config: config, handle: handle, member: config.Member,
		changed: make(chan struct{}, 1), idle: make(chan struct{}),
	}
	s.ready.L = &s.mu
	if config.Partitions > 1 {
		s.partitions = uint64(config.Partitions)
	}
	if config.Concurrency > 1 {
		s.lanes = newLanes[int]()
	}
	return s
}

// begin takes note of a new connection.
func (s *subscription) begin(frame *api.SubscribedFrame) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.epoch == 0:
		s.epoch, s.received = frame.Epoch, frame.Next
		s.group = frame.Partitions != nil
	case frame.Epoch != s.epoch && (s.group || s.config.Point != ""):
		problem := api.NewProblem(eventstore.EpochChanged, fmt.Sprintf("The stream %s was deleted and declared again, or its database was restored.", s.stream))
		problem.Resume = &api.StreamPosition{Epoch: frame.Epoch, Offset: frame.First}
		return &finalError{problem}
	case s.group && !frame.Resumed:
		return &finalError{api.NewProblem(eventstore.PointNotFound, fmt.Sprintf("The point %s was deleted.", s.config.Point))}
	case !s.group && s.config.Point == "" && frame.Next != s.received:
		return &finalError{&GapError{Want: s.received, Got: frame.Next}}
	}
	// The database may have been restored, and lacks nothing of what was received.
	s.epoch = frame.Epoch
	s.sessions++
	// Below what was committed it can only be where somebody set it.
	moved := s.moved || (!s.group && frame.Next < s.confirmed)
	s.moved = false
	s.member = frame.Member
	s.assigned = frame.Partitions
	s.order = newOrder(s.config.Key != "", s.group, s.partitions, frame.Next)
	if s.group || moved {
		// What is here is another member's now, or comes again, or is not wanted.
		s.since = s.sessions
		s.done = progress{number: s.done.number, messages: s.done.messages}
		s.forget(func(*entry) bool { return true })
	}
	if moved {
		s.received, s.confirmed = frame.Next, 0
	} else if frame.Next > s.received {
		s.received = frame.Next // somebody moved the point
	}
	return nil
}

// forget drops what waits and matches. It takes room in the server's window until
// it is acked with what came before. The mu is held.
func (s *subscription) forget(match func(*entry) bool) {
	drop := func(e *entry) { *e = entry{next: e.next, session: e.session, mark: true, dropped: true, done: true} }
	if s.lanes != nil {
		for _, number := range s.lanes.drop(func(number int) bool { return match(&s.entries[number-s.first]) }) {
			drop(&s.entries[number-s.first])
		}
	} else {
		waiting := s.entries[s.taken-s.first:]
		for i := range waiting {
			if !waiting[i].mark && match(&waiting[i]) {
				drop(&waiting[i])
			}
		}
	}
	s.advance()
}

// accept takes messages that came, and the offset behind them.
func (s *subscription) accept(messages []api.StreamMessage, next eventstore.Offset) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	for i := range messages {
		m := &messages[i]
		if err := s.order.check(m); err != nil {
			return &finalError{err}
		}
		if !s.group && m.Offset < s.received {
			continue // it is here, or handled already
		}
		s.add(entry{message: Message{*m, s.epoch}, next: m.Offset + 1, session: s.sessions})
		s.received = m.Offset + 1
	}
	if err := s.order.end(next); err != nil {
		return &finalError{err}
	}
	if s.group || next > s.received {
		s.add(entry{next: next, session: s.sessions, mark: true, done: true})
		s.received = next
	}
	s.advance()
	if s.lanes == nil {
		s.ready.Signal()
	}
	return nil
}

func (s *subscription) add(e entry) {
	s.entries = append(s.entries, e)
	if s.lanes != nil && !e.mark {
		s.lanes.push(e.message.RoutingKey, true, s.first+len(s.entries)-1)
	}
}

// advance drops what is handled from the front. The mu is held.
func (s *subscription) advance() {
	n := 0
	for n < len(s.entries) && s.entries[n].done {
		e := &s.entries[n]
		if e.session >= s.since {
			s.done.next, s.done.session = e.next, e.session
			s.done.number++
			if !e.mark || e.dropped {
				s.done.messages++
			}
		}
		*e = entry{} // lets the message go
		n++
	}
	s.entries = s.entries[n:]
	s.first += n
	s.taken = max(s.taken, s.first)
	if n > 0 {
		signal(s.changed)
	}
}

// signal leaves a token, if there is none.
func signal(tokens chan struct{}) {
	select {
	case tokens <- struct{}{}:
	default:
	}
}

// assign takes note of other partitions. What waits of those that are lost is
// for their new member.
func (s *subscription) assign(partitions []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.assigned = partitions
	s.order.assign(partitions)
	if s.partitions > 1 {
		s.forget(func(e *entry) bool {
			return !slices.Contains(partitions, partitionOf(e.message.RoutingKey, s.partitions))
		})
	}
}

// partitionOf is the partition of a routing key: its FNV-1a hash of 64 bits,
// modulo the number of partitions.
func partitionOf(key string, partitions uint64) int {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(key))
	return int(hash.Sum64() % partitions)
}

// work starts the handlers; stop is called when one of them wants no more.
func (s *subscription) work(ctx context.Context, stop context.CancelCauseFunc) *sync.WaitGroup {
	var workers sync.WaitGroup
	for range s.config.Concurrency {
		workers.Go(func() {
			for {
				number, batch := s.take()
				if len(batch) == 0 {
					return
				}
				if err := s.call(ctx, number, batch); err != nil {
					stop(err)
				}
			}
		})
	}
	go func() {
		workers.Wait()
		close(s.idle)
	}()
	return &workers
}

// take waits for messages, and answers the number of the first; none is the end.
func (s *subscription) take() (number int, batch []Message) {
	if s.lanes != nil {
		number, ok := s.lanes.next()
		if !ok {
			return 0, nil
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		return number, []Message{s.entries[number-s.first].message}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		for s.taken-s.first < len(s.entries) && s.entries[s.taken-s.first].mark {
			s.taken++
		}
		if s.closed {
			return 0, nil
		}
		if s.taken-s.first < len(s.entries) {
			break
		}
		s.ready.Wait()
	}
	number = s.taken
	batch = make([]Message, 0, min(s.config.MaxBatch, len(s.entries)-(s.taken-s.first)))
	for s.taken-s.first < len(s.entries) && len(batch) < s.config.MaxBatch {
		e := &s.entries[s.taken-s.first]
		if e.mark {
			break
		}
		batch = append(batch, e.message)
		s.taken++
	}
	return number, batch
}

// call runs the handler on messages of successive numbers.
func (s *subscription) call(ctx context.Context, number int, batch []Message) error {
	err := safely(func() error { return s.handle(ctx, batch) })
	handled := err == nil || errors.Is(err, ErrStop)
	s.mu.Lock()
	if handled {
		for i := range batch {
			s.entries[number-s.first+i].done = true
		}
		s.advance()
	} else if s.err == nil && (ctx.Err() == nil || !errors.Is(err, context.Canceled)) {
		s.err = fmt.Errorf("handle offset %d: %w", batch[0].Offset, err)
	}
	if err != nil {
		s.shut()
	}
	s.mu.Unlock()
	if s.lanes != nil && handled {
		s.lanes.finish(batch[0].RoutingKey)
	}
	return err
}

// panicError is a handler's panic as an error.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// safely makes an error of a panic.
func safely(do func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &panicError{value, debug.Stack()}
		}
	}()
	return do()
}

// close hands out nothing more.
func (s *subscription) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shut()
}

// shut is close. The mu is held.
func (s *subscription) shut() {
	s.closed = true
	s.ready.Broadcast()
	if s.lanes != nil {
		s.lanes.close()
	}
}

func (s *subscription) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}
