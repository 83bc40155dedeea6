package commands

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

// coalescer merges concurrent requests into batches (group commit). While a
// batch is on its way, requests gather; the next batch takes all that came, up
// to the bounds. So a lone request leaves at once, and the batches grow with the
// load. A second batch leaves beside the first only if it is worth a commit of
// its own, since small ones are better off together, or if the first is held up.
type coalescer[J job] struct {
	// flights is how many batches may be on their way at once, the further ones
	// with at least so many items.
	flights, worth int
	// maxItems and maxWeight bound a batch of several requests.
	maxItems, maxWeight int
	// run does a batch in one transaction. Its jobs hold their answers after it.
	run func([]J) error
	// separable reports whether a batch that failed with an error did nothing and
	// may have failed for one request's sake. Then each request runs alone.
	separable func(error) bool

	mu       sync.Mutex
	queue    []*call[J]
	items    int // in queue
	flying   int
	left     time.Time // when the last batch left
	gatherer gatherer
}

// overdue is a batch that waits for somebody's lock, most likely.
const overdue = 20 * time.Millisecond

// job is a request that can share a transaction.
type job interface {
	// size says how many items and bytes it has.
	size() (items, weight int)
}

// call is one job on its way.
type call[J job] struct {
	job   J
	err   error
	done  chan struct{}
	taken bool // by a batch; guarded by the coalescer's mu
}

// submit answers the request after the commit of the batch that held it. When
// the context ends first, a request that still waits is withdrawn; one that is
// on its way is done all the same, only its answer is lost.
func (c *coalescer[J]) submit(ctx context.Context, j J) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	mine := &call[J]{job: j, done: make(chan struct{})}
	c.mu.Lock()
	c.queue = append(c.queue, mine)
	c.items += items(j)
	if c.flying == 0 || (c.flying < c.flights && (c.items >= c.worth || time.Since(c.left) > overdue)) {
		c.flying++
		go c.fly()
	}
	c.gatherer.came(len(c.queue), c.items >= c.worth)
	c.mu.Unlock()

	select {
	case <-mine.done:
		return mine.err
	case <-ctx.Done():
		c.withdraw(mine)
		return ctx.Err()
	}
}

func (c *coalescer[J]) withdraw(mine *call[J]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if mine.taken {
		return
	}
	if i := slices.Index(c.queue, mine); i >= 0 {
		c.queue = slices.Delete(c.queue, i, i+1)
		c.items -= items(mine.job)
	}
}

func items(j job) int {
	n, _ := j.size()
	return n
}

// fly does batch after batch until nothing waits.
func (c *coalescer[J]) fly() {
	for {
		c.gather()
		batch := c.take()
		if batch == nil {
			return
		}
		start := time.Now()
		c.do(batch)
		c.landed(len(batch), time.Since(start))
	}
}

func (c *coalescer[J]) landed(calls int, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gatherer.done(calls, took)
}

// gather waits a moment for those who were in the last batch to ask again.
func (c *coalescer[J]) gather() {
	runtime.Gosched()
	c.mu.Lock()
	wait := c.gatherer.wait(len(c.queue), c.items >= c.worth)
	c.mu.Unlock()
	wait()
}

// take removes the next batch from the queue; without one, the flight is over.
func (c *coalescer[J]) take() []*call[J] {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gatherer.begin()
	n, items, weight := 0, 0, 0
	for n < len(c.queue) {
		i, w := c.queue[n].job.size()
		if n > 0 && (items+i > c.maxItems || weight+w > c.maxWeight) {
			break
		}
		items, weight = items+i, weight+w
		c.queue[n].taken = true
		n++
	}
	if n == 0 {
		c.flying--
		return nil
	}
	c.items -= items
	c.left = time.Now()
	batch := c.queue[:n:n]
	if c.queue = c.queue[n:]; len(c.queue) == 0 {
		c.queue = nil
	}
	return batch
}

// do runs a batch, and its requests one by one if one of them spoiled it.
func (c *coalescer[J]) do(batch []*call[J]) {
	err := c.runOnce(batch)
	switch {
	case err == nil:
	case len(batch) > 1 && c.separable(err):
		for _, one := range batch {
			if err := c.runOnce([]*call[J]{one}); err != nil {
				one.fail(err)
			}
		}
	default:
		for _, one := range batch {
			one.fail(err)
		}
	}
}

// runOnce runs calls together and answers them, unless it fails.
func (c *coalescer[J]) runOnce(calls []*call[J]) error {
	jobs := make([]J, len(calls))
	for i, one := range calls {
		jobs[i] = one.job
	}
	if err := c.run(jobs); err != nil {
		return err
	}
	for _, one := range calls {
		close(one.done)
	}
	return nil
}

func (c *call[J]) fail(err error) {
	c.err = err
	close(c.done)
}
