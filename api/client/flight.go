package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"leat/api"
	"leat/eventstore"
)

// fly sends batches until nothing waits.
func (p *Publisher) fly(ctx context.Context) {
	for {
		batch := p.take()
		if len(batch) == 0 {
			return
		}
		p.deliver(ctx, batch)
	}
}

// take is the next batch; none ends the flight.
func (p *Publisher) take() []*publication {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, bytes := 0, 0
	for n < len(p.queue) && n < p.config.BatchMessages {
		size := sizeOf(&p.queue[n].message)
		if n > 0 && bytes+size > p.config.BatchBytes {
			break
		}
		n, bytes = n+1, bytes+size
	}
	if n == 0 {
		p.flying--
		return nil
	}
	batch := make([]*publication, n)
	copy(batch, p.queue)
	clear(p.queue[:n])
	p.queue = p.queue[n:]
	p.bytes -= bytes
	return batch
}

// deliver sends a batch until each of its messages has an answer.
func (p *Publisher) deliver(ctx context.Context, batch []*publication) {
	var wait backoff
	for {
		if batch = p.begin(ctx, batch); len(batch) == 0 {
			return
		}
		err := p.send(ctx, batch, false)
		if err == nil {
			return
		}
		if batch = p.failed(batch, err); len(batch) == 0 {
			return
		}
		after := wait.next()
		if problem, ok := errors.AsType[*api.Problem](err); ok {
			after = max(after, problem.RetryAfter)
		}
		pause(ctx, after)
	}
}

// begin marks a batch as sent, without those who withdrew meanwhile.
func (p *Publisher) begin(ctx context.Context, batch []*publication) []*publication {
	p.mu.Lock()
	defer p.mu.Unlock()
	ready := make([]*publication, 0, len(batch))
	for _, m := range batch {
		switch {
		case m.state == withdrawn: // its room is free already
		case ctx.Err() != nil && m.unsure:
			p.end(m, api.Published{}, &UnansweredError{ErrClosed})
		case ctx.Err() != nil:
			p.end(m, api.Published{}, ErrClosed)
		default:
			m.state = sent
			ready = append(ready, m)
		}
	}
	return ready
}

// send makes one request, and answers those that it settles. An error settled
// nobody. A batch that is refused was not stored: it is sent again so that each
// message stands for itself.
func (p *Publisher) send(ctx context.Context, batch []*publication, partial bool) error {
	request := api.PublishRequest{Messages: make([]api.Message, len(batch))}
	for i, m := range batch {
		request.Messages[i] = m.message
	}
	result, err := p.client.Publish(ctx, p.channel, request, partial)
	if err == nil && len(result.Messages) != len(batch) {
		err = fmt.Errorf("publish %d messages: %d answers", len(batch), len(result.Messages))
	}
	if err == nil {
		p.answer(batch, result.Messages)
		return nil
	}
	if !separable(err) || len(batch) == 1 {
		return err
	}
	if !partial {
		return p.send(ctx, batch, true)
	}
	return p.halve(ctx, batch)
}

// halve is for a batch that cannot even be read as a whole.
func (p *Publisher) halve(ctx context.Context, batch []*publication) error {
	for _, half := range [][]*publication{batch[:len(batch)/2], batch[len(batch)/2:]} {
		err := p.send(ctx, half, true)
		if err == nil {
			continue
		}
		// Those of this half alone: the other has an answer, or will have.
		p.deliver(ctx, p.failed(half, err))
	}
	return nil
}

// separable reports whether a request may have been refused for the sake of one
// of its messages.
func separable(err error) bool {
	problem, ok := errors.AsType[*api.Problem](err)
	if !ok {
		return false
	}
	switch problem.Status {
	case http.StatusBadRequest, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return true
	default:
		return false
	}
}

func (p *Publisher) answer(batch []*publication, results []api.Published) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, m := range batch {
		p.end(m, results[i], itemError(results[i].Error))
	}
}

// itemError is the refusal of one message of several.
func itemError(item *api.ProblemItem) error {
	if item == nil {
		return nil
	}
	problem := api.NewProblem(item.Code, item.Detail)
	problem.Errors = []api.ProblemItem{{Field: item.Field, Code: item.Code, Detail: item.Detail}}
	return problem
}

// failed answers those that are not to be sent again, and returns the others.
func (p *Publisher) failed(batch []*publication, err error) (again []*publication) {
	f := fateOf(err)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range batch {
		m.unsure = m.unsure || f.unsure
		switch {
		case m.state == withdrawn:
			p.room.Release(m.weight)
		case f.passes && (!f.unsure || m.message.DedupID != "") && time.Now().Before(m.until):
			m.state = waiting
			again = append(again, m)
		case m.unsure:
			p.end(m, api.Published{}, &UnansweredError{err})
		default:
			p.end(m, api.Published{}, err)
		}
	}
	return again
}

// fate is what an error of a publish means.
type fate struct {
	passes bool // the same may succeed later
	unsure bool // it may have succeeded already
}

func fateOf(err error) fate {
	if problem, ok := errors.AsType[*api.Problem](err); ok {
		return fateOfProblem(problem)
	}
	if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
		return fate{passes: true}
	}
	return fate{passes: true, unsure: true}
}

func fateOfProblem(problem *api.Problem) fate {
	switch {
	case problem.Status == http.StatusTooManyRequests:
		return fate{passes: true}
	case problem.Status == http.StatusServiceUnavailable && problem.Code != "":
		return fate{passes: true, unsure: problem.Uncertain}
	case problem.Code == eventstore.Internal:
		return fate{unsure: true}
	case problem.Status >= http.StatusInternalServerError: // of something between
		return fate{passes: true, unsure: true}
	default:
		return fate{}
	}
}
