package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	"leat/api"
)

// What a script can tell from the exit code.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitDifferent   = 3
	exitNothing     = 4
	exitRefused     = 5
	exitInterrupted = 130 // as shells say it of SIGINT
)

const exitCodes = `Exit codes:
  0    done
  1    failed; the reason is on stderr, with the code of the HTTP API
  2    wrong usage; nothing was tried
  3    verify: the queue views differ from the log, or the log from its seals
  4    nothing there: poll got no message; no such channel or message; no seals to verify
  5    done in part: some receipts, ids, or messages of --partial were refused
  130  interrupted`

// exitError ends the program with a code of its own.
type exitError struct {
	code int
	text string
}

func (e *exitError) Error() string { return e.text }

var (
	errDifferent    = &exitError{exitDifferent, "the queue views differ from the log: run leat rebuild"}
	errBroken       = &exitError{exitDifferent, "the log is not what was sealed"}
	errUnsealed     = &exitError{exitNothing, "nothing of the log is sealed: leat serve --seal 1m seals it, or leat log seal does now"}
	errNothing      = &exitError{exitNothing, "no message came"}
	errSomeRefused  = &exitError{exitRefused, "some receipts were refused"}
	errSomeStay     = &exitError{exitRefused, "some messages stay as they were"}
	errSomeRejected = &exitError{exitRefused, "some messages were refused"}
)

func exitCode(err error) int {
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.code
	}
	if _, ok := errors.AsType[*usageError](err); ok {
		return exitUsage
	}
	if p, ok := errors.AsType[*api.Problem](err); ok && p.Status == http.StatusNotFound {
		return exitNothing
	}
	return exitFailed
}

// errorsOnlyOf says whether an error is but the end of the context.
func errorsOnlyOf(ctx context.Context, err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx))
}

// complain tells people, or with -o json programs, what went wrong.
func (c *cli) complain(w io.Writer, err error) {
	problem, refused := errors.AsType[*api.Problem](err)
	if refused && c.output == jsonOutput {
		if text, jsonErr := api.Marshal(problem); jsonErr == nil {
			fmt.Fprintf(w, "%s\n", text)
			return
		}
	}
	if dial, ok := unanswered(err); ok {
		fmt.Fprintf(w, "leat: no broker answers at %s (%v)\n", c.url, dial.Err)
		fmt.Fprintln(w, "  start one with: leat serve; or name another with --url or LEAT_URL")
		return
	}
	fmt.Fprintln(w, "leat:", err)
	if refused {
		_, lines := errors.AsType[*linesError](err)
		explain(w, problem, lines)
	}
	if usage, ok := errors.AsType[*usageError](err); ok {
		usage.hint(w)
	}
}

// unanswered says whether a broker could not be reached; the database, whose
// errors are not about a URL, is another matter.
func unanswered(err error) (*net.OpError, bool) {
	call, ok := errors.AsType[*url.Error](err)
	if !ok {
		return nil, false
	}
	dial, ok := errors.AsType[*net.OpError](call)
	return dial, ok && dial.Op == "dial"
}

// explain lists the bad items of a refusal, if the sentence before was not about
// the only one. Lines count from 1, as editors have it.
func explain(w io.Writer, p *api.Problem, lines bool) {
	for _, item := range p.Errors {
		if len(p.Errors) == 1 {
			break
		}
		fmt.Fprint(w, "  ")
		switch {
		case item.Index != nil && lines:
			fmt.Fprintf(w, "line %d: ", *item.Index+1)
		case item.Index != nil:
			fmt.Fprintf(w, "item %d: ", *item.Index)
		}
		if item.Field != "" {
			fmt.Fprintf(w, "%s: ", item.Field)
		}
		fmt.Fprintf(w, "%s: %s\n", item.Code, item.Detail)
	}
	if p.Resume != nil {
		fmt.Fprintf(w, "  it can go on at offset %d of epoch %d\n", p.Resume.Offset, p.Resume.Epoch)
	}
	if p.Status >= http.StatusInternalServerError && p.RequestID != "" {
		fmt.Fprintf(w, "  the broker's log has more under request %s\n", p.RequestID)
	}
}
