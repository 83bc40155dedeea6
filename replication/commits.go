package replication

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"leat/eventstore"
)

const (
	// everyPartition is the partition of a commit of all.
	everyPartition = -1
	// flushRows bounds what commits share a transaction.
	flushRows = 10_000
	// flushWithin bounds one attempt.
	flushWithin = 10 * time.Second
	flushAgain  = 20 * time.Millisecond // after a failure; doubles up to
	flushRarely = time.Second
	busyAgain   = 5 * time.Millisecond // where somebody else holds a position; doubles up to
	busyRarely  = 200 * time.Millisecond
)

// committer merges commits of points: while a flush is on its way, others gather,
// and share the next one. So a point has at most one event per flush, and the
// database at most one transaction of ours at a time. A commit whose position is held
// by a transaction of others comes again later, and keeps nobody else.
type committer struct {
	pool   *pgxpool.Pool
	logger *slog.Logger

	mu     sync.Mutex
	queue  []*commit
	flying bool
}

// commit is what one caller has processed of one point.
type commit struct {
	channel    eventstore.ChannelID
	stream     string // for errors
	point      string
	epoch      eventstore.Position // 0: any
	actor      string
	member     string // "": an operator
	joined     time.Time
	generation eventstore.Position
	lasts      map[int]eventstore.Offset // by partition, the last that was processed; what has no answer yet
	sinces     map[int]time.Time         // of the grants by which a member of a group read

	done  chan struct{}
	err   error
	pause time.Duration // before it comes again
	left  chan struct{} // closed when the caller does not wait any more
}

// submit answers after the flush that held the commit. A flush that fails because
// of the database is tried again for as long as anybody waits for it. When ctx ends
// first, the commit may have been made, or not.
func (c *committer) submit(ctx context.Context, mine *commit) error {
	mine.done, mine.left = make(chan struct{}), make(chan struct{})
	mine.lasts = maps.Clone(mine.lasts)
	c.enqueue(mine)
	select {
	case <-mine.done:
		return mine.err
	case <-ctx.Done():
		close(mine.left)
		return ctx.Err()
	}
}

// enqueue has commits flushed soon.
func (c *committer) enqueue(commits ...*commit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = append(c.queue, commits...)
	if !c.flying {
		c.flying = true
		go c.fly()
	}
}

// fly flushes until nothing waits.
func (c *committer) fly() {
	var batch []*commit
	delay := flushAgain
	for {
		if batch = c.fill(batch); len(batch) == 0 {
			return
		}
		err := c.flush(batch)
		switch {
		case err == nil:
			batch, delay = nil, flushAgain
		case passes(err):
			c.logger.Warn("commit points, trying again", "commits", len(batch), "error", err)
			pause(batch, delay)
			delay = min(2*delay, flushRarely)
		default:
			batch = c.flushEach(batch, err)
		}
	}
}

// passes reports whether an error is of the moment, and not of what was asked.
func passes(err error) bool {
	return errors.Is(err, &eventstore.Error{Code: eventstore.DatabaseUnavailable}) ||
		errors.Is(err, &eventstore.Error{Code: eventstore.Busy})
}

// pause waits, but not for a caller that is gone and was the only one.
func pause(batch []*commit, delay time.Duration) {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	if len(batch) > 1 {
		<-timer.C
		return
	}
	select {
	case <-timer.C:
	case <-batch[0].left:
	}
}

// fill drops from a batch those who went, and adds those who came. When that is
// nothing, the flight is over.
func (c *committer) fill(batch []*commit) []*commit {
	c.mu.Lock()
	defer c.mu.Unlock()
	var full []*commit
	rows, n := 0, 0
	for _, one := range batch {
		if !one.gone() {
			full, rows = append(full, one), rows+len(one.lasts)
		}
	}
	for ; n < len(c.queue) && rows < flushRows; n++ {
		if one := c.queue[n]; !one.gone() {
			full, rows = append(full, one), rows+len(one.lasts)
		}
	}
	if c.queue = c.queue[n:]; len(c.queue) == 0 {
		c.queue = nil
	}
	c.flying = len(full) > 0
	return full
}

func (c *commit) gone() bool {
	select {
	case <-c.left:
		return true
	default:
		return false
	}
}

// flushEach finds those who spoiled a batch, and returns those to be tried again.
func (c *committer) flushEach(batch []*commit, err error) (again []*commit) {
	for _, one := range batch {
		if len(batch) > 1 {
			err = c.flush([]*commit{one})
		}
		switch {
		case err == nil:
		case passes(err):
			again = append(again, one)
		default:
			one.err = err
			close(one.done)
		}
	}
	return again
}

const commitPointsSQL = `-- replication.commitPoints
select c.item, c.code, coalesce(c.epoch, 0), coalesce(c.resume, 0)
from leat.commit_points($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) c`

// verdict is what became of one row of a flush.
type verdict struct {
	Item   int
	Code   eventstore.Code // "": it counts; busy: not judged yet
	Epoch  eventstore.Position
	Resume eventstore.Offset
}

// flush commits a batch in one transaction, and answers its callers unless it fails.
func (c *committer) flush(batch []*commit) error {
	rows := commitRows{}
	for _, one := range batch {
		for partition, last := range one.lasts {
			rows.add(one, partition, last)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushWithin)
	defer cancel()
	verdicts, err := queryStructs[verdict](ctx, c.pool, commitPointsSQL, rows.channels, rows.points, rows.partitions,
		rows.lasts, rows.epochs, rows.members, rows.joins, rows.generations, rows.sinces, rows.actors)
	if err != nil {
		return err
	}
	for _, v := range verdicts {
		one := rows.of[v.Item-1]
		if v.Code == eventstore.Busy {
			continue
		}
		delete(one.lasts, int(rows.partitions[v.Item-1]))
		if v.Code != "" && one.err == nil {
			one.err = one.refusal(v, eventstore.Offset(rows.lasts[v.Item-1]))
		}
	}
	c.answer(batch)
	return nil
}

// answer answers those whose rows all have a verdict; the others come again.
func (c *committer) answer(batch []*commit) {
	var busy []*commit
	pause := busyRarely
	for _, one := range batch {
		if len(one.lasts) == 0 {
			close(one.done)
			continue
		}
		busy = append(busy, one)
		one.pause = min(max(2*one.pause, busyAgain), busyRarely)
		pause = min(pause, one.pause)
	}
	if len(busy) > 0 {
		time.AfterFunc(pause, func() { c.enqueue(busy...) })
	}
}

// commitRows are the columns of leat.commit_points, in types that need no look at
// the statement: a transaction pooler may leave no time for one.
type commitRows struct {
	of          []*commit
	channels    []int32
	points      []string
	partitions  []int16
	lasts       []int64
	epochs      []*int64
	members     []*string
	joins       []*time.Time
	generations []*int64
	sinces      []*time.Time
	actors      []*string
}

func (r *commitRows) add(c *commit, partition int, last eventstore.Offset) {
	r.of = append(r.of, c)
	r.channels = append(r.channels, int32(c.channel))
	r.points = append(r.points, c.point)
	r.partitions = append(r.partitions, int16(partition))
	r.lasts = append(r.lasts, int64(last))
	r.epochs = append(r.epochs, optional(int64(c.epoch)))
	r.members = append(r.members, optional(c.member))
	r.joins = append(r.joins, optional(c.joined))
	r.generations = append(r.generations, optional(int64(c.generation)))
	r.sinces = append(r.sinces, optional(c.sinces[partition]))
	r.actors = append(r.actors, optional(c.actor))
}

// optional makes the parameter of what may be missing: null for zero.
func optional[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// refusal says why a commit does not count.
func (c *commit) refusal(v verdict, asked eventstore.Offset) error {
	e := eventstore.NewError(v.Code, "%s", "")
	resume := &eventstore.StreamPosition{Epoch: v.Epoch, Offset: v.Resume}
	switch v.Code {
	case eventstore.ChannelNotFound:
		e.Message = "Stream " + c.stream + " was deleted."
	case eventstore.PointNotFound:
		e.Message = "Stream " + c.stream + " has no point " + c.point + "."
	case eventstore.EpochChanged:
		e.Message = "Stream " + c.stream + " was deleted and declared again, or its database was restored: its epoch is " +
			v.Epoch.String() + ", not " + c.epoch.String() + "."
		e.Resume = resume
	case eventstore.OffsetAhead:
		e.Message = "Stream " + c.stream + " ends before offset " + v.Resume.String() + "; " + asked.String() + " is ahead."
		e.Resume = resume
	case eventstore.CommitBehind:
		e.Message = "Point " + c.point + " is at offset " + v.Resume.String() + " already, and " + asked.String() +
			" lies before it: only a reset moves it back."
		e.Resume = resume
	case eventstore.PointMoved:
		e.Message = pointMovedText(c.point)
	case eventstore.PointTaken:
		e.Message = "Another consumer reads with point " + c.point + " now."
	default:
		e.Code, e.Message = eventstore.Internal, "The point cannot be committed: "+string(v.Code)
	}
	return e
}
