package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"leat/api"
)

// DeadLettersFilter chooses dead letters of a queue; the zero value is the first
// page of all.
type DeadLettersFilter struct {
	MessagesFilter // without State
	DiedAfter      time.Time
	DiedBefore     time.Time
}

func (f DeadLettersFilter) values() url.Values {
	v := f.MessagesFilter.values()
	setTime(v, "diedAfter", f.DiedAfter)
	setTime(v, "diedBefore", f.DiedBefore)
	return v
}

// DeadLetters lists the dead letters of a queue.
func (c *Client) DeadLetters(ctx context.Context, queue string, f DeadLettersFilter) (api.DeadLetterPage, error) {
	return call[api.DeadLetterPage](ctx, c, request{
		method: http.MethodGet, path: []string{"v1", "queues", queue, "dead-letters"}, query: f.values(),
	})
}

// Recover brings dead letters back to life. progress, unless it is nil, is told
// after each step what was done so far.
func (c *Client) Recover(
	ctx context.Context, queue string, r api.RecoverRequest, progress func(api.RecoverResult),
) (api.RecoverResult, error) {
	return inSteps(ctx, c, deadLetters(queue, "recover", r), progress)
}

// PurgeDeadLetters removes dead letters for good. progress, unless it is nil, is
// told after each step what was done so far.
func (c *Client) PurgeDeadLetters(
	ctx context.Context, queue string, r api.PurgeDeadLettersRequest, progress func(api.PurgeDeadLettersResult),
) (api.PurgeDeadLettersResult, error) {
	return inSteps(ctx, c, deadLetters(queue, "purge", r), progress)
}

func deadLetters(queue, verb string, body any) request {
	return request{method: http.MethodPost, path: []string{"v1", "queues", queue, "dead-letters", verb}, body: body}
}

// inSteps reads an answer that comes line by line; the last one is the result.
func inSteps[T any](ctx context.Context, c *Client, r request, progress func(T)) (result T, err error) {
	if progress == nil {
		return call[T](ctx, c, r)
	}
	r.accept = "application/x-ndjson"
	response, err := c.send(ctx, r)
	if err != nil {
		return result, err
	}
	defer drain(response)
	decoder := json.NewDecoder(response.Body)
	for {
		var step T
		err := decoder.Decode(&step)
		if errors.Is(err, io.EOF) {
			return result, nil
		}
		if err != nil {
			return result, fmt.Errorf("read answer of %s: %w", r.name(), err)
		}
		result = step
		progress(step)
	}
}
