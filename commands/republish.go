package commands

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"leat/eventstore"
)

// RepublishRequest publishes again what a channel held once: a range of it, by
// positions, times, and for streams offsets. What is not set does not narrow it.
type RepublishRequest struct {
	Source string // also one that was deleted
	Target string // may be the source
	Actor  string // for the log; "" when not known

	From, To             eventstore.Position // of the events of the messages, both inclusive; 0 is no bound
	FromOffset, ToOffset *eventstore.Offset  // of a stream, both inclusive
	Since, Until         time.Time           // not older, and older
	Pattern              eventstore.Pattern  // of routing keys
	Rate                 int                 // messages per second; 0 is as fast as it goes

	DryRun bool // counts, and writes nothing
	// Progress is told at the start and after each transaction. Default: nobody is.
	Progress func(eventstore.Replay)
}

// ResumeRequest lets a replay go on that has not come to its end.
type ResumeRequest struct {
	ID       eventstore.Position
	Actor    string
	Progress func(eventstore.Replay) // as in RepublishRequest
}

// replay is a replay as its commands have it.
type replay struct {
	eventstore.Replay
	run   int    // that goes on; an older one is refused
	state string // the row of leat.replays
}

const replayColumns = eventstore.ReplayColumns + `,
       r.run,
       r::text`

func (r *replay) columns() []any { return append(r.Columns(), &r.run, &r.state) }

const planReplaySQL = `-- commands.planReplay
select ` + replayColumns + `
from leat.plan_replay($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, nullif($11, '')) r`

const startReplaySQL = `-- commands.startReplay
select ` + replayColumns + `
from leat.start_replay($1::text::leat.replays) r`

const resumeReplaySQL = `-- commands.resumeReplay
select ` + replayColumns + `
from leat.resume_replay($1, nullif($2, '')) r`

const republishSQL = `-- commands.republish
select ` + replayColumns + `
from leat.republish($1, $2, nullif($3, ''), $4, $5) r`

const countReplaySQL = `-- commands.countReplay
select ` + replayColumns + `
from leat.count_replay($1::text::leat.replays, $2) r`

// What a replay does in one transaction, at full speed and at a rate.
const (
	replayPage     = 5000
	replayPause    = 100 * time.Millisecond // between two pages at a rate, or longer for less than one message
	replayPatience = time.Minute            // how long it tries while somebody else has what it needs
)

// Republish publishes again what a channel held in a range of the past: as new
// messages, with the payloads, origins, headers, keys and priorities of the old ones,
// but without their times, in the old order, through whatever links the target has. It
// knows no duplicates: who publishes a range twice has it twice.
//
// It goes page by page. Each is a transaction that also says where the next one begins,
// so a replay that broke off can be resumed and misses and repeats nothing. While
// somebody holds up the next message, nothing overtakes it; after a minute of that the
// error is Busy.
func (b *Broker) Republish(ctx context.Context, req RepublishRequest) (eventstore.Replay, error) {
	leave, err := b.enter()
	if err != nil {
		return eventstore.Replay{}, err
	}
	defer leave()
	if err := req.check(); err != nil {
		return eventstore.Replay{}, err
	}
	r := replaying{b: b, actor: req.Actor, tell: req.Progress}
	err = queryRow(ctx, b.cfg.Pool, planReplaySQL, req.args(), r.replay.columns()...)
	switch {
	case err != nil:
	case req.DryRun:
		err = r.count(ctx)
	default:
		err = queryRow(ctx, b.cfg.Pool, startReplaySQL, []any{r.replay.state}, r.replay.columns()...)
		if err == nil {
			err = r.run(ctx)
		}
	}
	return r.replay.Replay, err
}

// ResumeReplay lets a replay go on where it is. Whoever runs it elsewhere is told
// ReplayTaken. One that has come to its end stays as it is.
func (b *Broker) ResumeReplay(ctx context.Context, req ResumeRequest) (eventstore.Replay, error) {
	leave, err := b.enter()
	if err != nil {
		return eventstore.Replay{}, err
	}
	defer leave()
	var f faults
	f.text(-1, "actor", req.Actor, maxLabel)
	if err := f.err(); err != nil {
		return eventstore.Replay{}, err
	}
	r := replaying{b: b, actor: req.Actor, tell: req.Progress}
	if err := queryRow(ctx, b.cfg.Pool, resumeReplaySQL, []any{req.ID, req.Actor}, r.replay.columns()...); err != nil {
		return eventstore.Replay{}, err
	}
	err = r.run(ctx)
	return r.replay.Replay, err
}

func (req *RepublishRequest) check() error {
	var f faults
	f.name("source", req.Source)
	f.name("target", req.Target)
	f.text(-1, "actor", req.Actor, maxLabel)
	for field, n := range map[string]int64{"from": int64(req.From), "to": int64(req.To), "rate": int64(req.Rate)} {
		if n < 0 {
			f.invalid(-1, field, "must not be negative")
		}
	}
	for field, n := range map[string]*eventstore.Offset{"fromOffset": req.FromOffset, "toOffset": req.ToOffset} {
		if n != nil && *n < 0 {
			f.invalid(-1, field, "must not be negative")
		}
	}
	if req.Rate > maxRate {
		f.invalid(-1, "rate", "must be at most %d messages per second; 0 is no bound", maxRate)
	}
	return f.err()
}

// args are the parameters of planReplaySQL.
func (req *RepublishRequest) args() []any {
	pattern := pgtype.Text{String: req.Pattern.String(), Valid: !req.Pattern.IsZero()}
	return []any{
		req.Source, req.Target,
		pgtype.Int8{Int64: int64(req.From), Valid: req.From != 0},
		pgtype.Int8{Int64: int64(req.To), Valid: req.To != 0},
		req.FromOffset, req.ToOffset, given(req.Since), given(req.Until), pattern, req.Rate, req.Actor,
	}
}

// replaying is a replay on its way.
type replaying struct {
	b      *Broker
	actor  string
	tell   func(eventstore.Replay)
	replay replay
}

func (r *replaying) told() {
	if r.tell != nil {
		r.tell(r.replay.Replay)
	}
}

// count goes through a replay that was planned.
func (r *replaying) count(ctx context.Context) error {
	for r.told(); !r.replay.Finished; r.told() {
		if err := r.pause(ctx, 0); err != nil {
			return err
		}
		if err := queryRow(ctx, r.b.cfg.Pool, countReplaySQL, []any{r.replay.state, replayPage}, r.replay.columns()...); err != nil {
			return err
		}
	}
	return nil
}

// run goes on to the end.
func (r *replaying) run(ctx context.Context) error {
	size, began, before := r.pageSize(), time.Now(), r.replay.passed()
	done := r.b.redriven(ctx, r.b.cfg.Pool, r.replay.Target)
	for r.told(); !r.replay.Finished; r.told() {
		if err := r.pause(ctx, 0); err != nil {
			return err
		}
		if err := r.page(ctx, size); err != nil {
			return err
		}
		done()
		if r.replay.Rate > 0 && !r.replay.Finished {
			due := time.Duration(r.replay.passed()-before) * time.Second / time.Duration(r.replay.Rate)
			if err := r.pause(ctx, due-time.Since(began)); err != nil {
				return err
			}
		}
	}
	return nil
}

// passed is how many messages are behind it, as its rate counts them.
func (r *replay) passed() int64 { return r.Messages + r.Unroutable + r.Gone }

// pageSize is what comes in one transaction: at a rate, so much that it comes evenly.
func (r *replaying) pageSize() int {
	if r.replay.Rate == 0 {
		return replayPage
	}
	return min(max(1, r.replay.Rate*int(replayPause)/int(time.Second)), replayPage)
}

// page does the next page, and tries again while it is busy.
func (r *replaying) page(ctx context.Context, size int) error {
	args := []any{r.replay.ID, r.replay.run, r.actor, size, streamPatience.Milliseconds()}
	for begin, wait := time.Now(), firstBusyPause; ; wait = min(2*wait, maxBusyPause) {
		next := r.replay
		err := queryRow(ctx, r.b.cfg.Pool, republishSQL, args, next.columns()...)
		if err == nil {
			r.replay = next
			return nil
		}
		busy := errors.Is(err, &eventstore.Error{Code: eventstore.Busy})
		if !busy || time.Since(begin) > replayPatience {
			return err
		}
		if err := r.pause(ctx, wait); err != nil {
			return err
		}
	}
}

// pause waits, and says whether there may be another transaction.
func (r *replaying) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(max(0, d))
	defer timer.Stop()
	select {
	case <-r.b.stopping:
		return shuttingDown()
	case <-ctx.Done():
		return ctx.Err()
	default:
	}
	select {
	case <-timer.C:
		return nil
	case <-r.b.stopping:
		return shuttingDown()
	case <-ctx.Done():
		return ctx.Err()
	}
}
