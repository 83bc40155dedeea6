package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"

	"leat/api"
	"leat/eventstore"
)

// A batch of --ndjson ends after so many lines or bytes.
const (
	batchLines = 1000
	batchBytes = 4 << 20
)

// batch is lines on their way to the broker.
type batch struct {
	text  []byte
	lines []int // number of each message's line in the input, from 1
}

// total is what all batches came to.
type total struct {
	published, duplicates, refused int
	position                       eventstore.Position
}

// publishLines publishes the lines of in, batch by batch.
func publishLines(c *call, in io.Reader, partial bool) error {
	reader := bufio.NewReaderSize(in, 1<<16)
	began := time.Now()
	add, done := count("publishing", progressbar.OptionShowCount(), progressbar.OptionShowIts())
	defer done()
	var sum total
	for line := 0; ; {
		b, err := readBatch(reader, &line)
		if err != nil {
			return fmt.Errorf("read lines: %w", err)
		}
		if len(b.lines) == 0 {
			break
		}
		if err := publishBatch(c, b, partial, &sum); err != nil {
			return fmt.Errorf("publish lines %d to %d, after %d messages were published: %w",
				b.lines[0], b.lines[len(b.lines)-1], sum.published, err)
		}
		add(len(b.lines))
	}
	done()
	if !c.json {
		err := c.say(nil, "published %d messages in %s, %d of them duplicates, up to position %d",
			sum.published, time.Since(began).Round(time.Millisecond), sum.duplicates, sum.position)
		if err != nil {
			return err
		}
	}
	if sum.refused > 0 {
		return errSomeRejected
	}
	return nil
}

// readBatch reads the next lines; none are left when the batch is empty. Blank
// lines are no messages.
func readBatch(r *bufio.Reader, line *int) (batch, error) {
	var b batch
	for len(b.lines) < batchLines && len(b.text) < batchBytes {
		text, err := r.ReadBytes('\n')
		if len(text) > 0 {
			*line++
		}
		if text = bytes.TrimSpace(text); len(text) > 0 {
			b.text = append(append(b.text, text...), '\n')
			b.lines = append(b.lines, *line)
		}
		if errors.Is(err, io.EOF) {
			return b, nil
		}
		if err != nil {
			return b, err
		}
	}
	return b, nil
}

func publishBatch(c *call, b batch, partial bool, sum *total) error {
	result, err := c.broker.PublishLines(c.ctx(), c.args[0], b.text, partial)
	if problem, ok := errors.AsType[*api.Problem](err); ok {
		return b.locate(problem)
	}
	if err != nil {
		return err
	}
	sum.add(result)
	if c.json {
		return c.show(result, nil)
	}
	for i, m := range result.Messages {
		if m.Error != nil {
			fmt.Fprintf(c.cmd.ErrOrStderr(), "line %d: %s: %s: %s\n", b.lines[i], orNone(m.Error.Field), m.Error.Code, m.Error.Detail)
		}
	}
	return nil
}

func (t *total) add(result api.PublishResult) {
	for _, m := range result.Messages {
		switch {
		case m.Error != nil:
			t.refused++
		case m.Duplicate:
			t.duplicates++
			t.published++
		default:
			t.published++
		}
	}
	t.position = result.Position
}

// linesError is a refusal whose items are lines of the input.
type linesError struct{ *api.Problem }

func (e *linesError) Unwrap() error { return e.Problem }

// locate turns the places of the items in the batch into those in the input,
// counted from 0 as everywhere in a problem.
func (b batch) locate(p *api.Problem) error {
	moved := *p
	moved.Errors = make([]api.ProblemItem, len(p.Errors))
	for i, item := range p.Errors {
		if item.Index != nil && *item.Index < len(b.lines) {
			at := b.lines[*item.Index] - 1
			item.Index = &at
		}
		moved.Errors[i] = item
	}
	if len(moved.Errors) > 0 && moved.Errors[0].Index != nil {
		first := moved.Errors[0]
		moved.Detail = fmt.Sprintf("Line %d: %s", *first.Index+1, strings.TrimSpace(first.Field+" "+first.Detail))
	}
	return &linesError{&moved}
}
