package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"leat/api"
)

// chainResult is what a verification of the whole chain found.
type chainResult struct {
	Intact   bool             `json:"intact"`
	Seals    int              `json:"seals"`
	Events   int64            `json:"events"`
	Bytes    int64            `json:"bytes"`
	From     int64            `json:"from"`
	To       int64            `json:"to"`
	Digest   string           `json:"digest"`
	Expected *bool            `json:"expectedFound,omitempty"`
	Faults   []api.ChainFault `json:"faults"`
	Unsealed int64            `json:"unsealedPositions"`
	Took     api.Duration     `json:"took"`
}

// verifyChain goes through the chain, page by page.
func verifyChain(ctx context.Context, k keeper, p printer, expect string, limit int) error {
	var at, end atomic.Int64
	done := follow(ctx, "verifying", func(context.Context) (int64, int64, error) { return at.Load(), end.Load(), nil })
	began := time.Now()
	result := chainResult{Faults: []api.ChainFault{}}
	met := false
	for cursor, more := "", true; more; more = cursor != "" {
		page, err := k.VerifyLog(ctx, cursor, expect)
		if err != nil {
			done()
			return err
		}
		result.take(page)
		met = met || page.Met
		at.Store(result.To)
		end.Store(int64(page.SettledPosition))
		cursor = page.NextCursor
	}
	done()
	result.Took = api.Duration(time.Since(began))
	result.Intact = len(result.Faults) == 0
	if expect != "" {
		result.Expected = &met
	}
	result.Faults = result.Faults[:min(limit, len(result.Faults))]
	if err := p.show(result, func(t *table) { chainTable(t, result) }); err != nil {
		return err
	}
	switch {
	case !result.Intact || (expect != "" && !met):
		return errBroken
	case result.Seals == 0:
		return errUnsealed
	default:
		return nil
	}
}

func (r *chainResult) take(page api.ChainPage) {
	if r.From == 0 {
		r.From = int64(page.From)
	}
	r.Seals += page.Seals
	r.Events += page.Events
	r.Bytes += page.Bytes
	r.To, r.Digest = int64(page.To), page.Digest
	r.Faults = append(r.Faults, page.Faults...)
	r.Unsealed = int64(page.SettledPosition - page.To)
}

func chainTable(t *table, r chainResult) {
	if r.Intact && r.Seals > 0 {
		t.row("the log is what was sealed")
	}
	if r.Seals > 0 {
		t.row("sealed", fmt.Sprintf("positions %d to %d, by %d seals", r.From, r.To, r.Seals))
		t.row("verified", fmt.Sprintf("%d events, %d bytes, in %s", r.Events, r.Bytes, time.Duration(r.Took).Round(time.Millisecond)))
		t.row("last digest", r.Digest)
	}
	t.row("not sealed yet", fmt.Sprintf("%d positions", r.Unsealed))
	if r.Expected != nil {
		t.row("expected digest", map[bool]string{true: "found", false: "NOT in the chain"}[*r.Expected])
	}
	if len(r.Faults) > 0 {
		t.row("")
		t.row("FAULT", "POSITIONS", "SEAL", "WHAT")
	}
	for _, f := range r.Faults {
		t.row(f.Kind, fmt.Sprintf("%d-%d", f.From, f.To), f.Seal, plain(f.Detail))
	}
}
