package eventstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// How often retention looks for something to drop, and how long those who append may
// have to wait for it at a time.
const (
	retentionEvery       = time.Minute
	retentionLockTimeout = `set local lock_timeout = '100ms'`
)

// Retention drops partitions from the beginning of the log when all that they hold
// is older than an age and nothing that lives points into them. Any number may run
// on a database.
type Retention struct {
	Store *Store
	// Age is how long events are kept at least; 0 keeps them for ever.
	Age time.Duration
	// Sealed keeps partitions that are not sealed to their end. It is so in any case
	// once the log has a seal.
	Sealed bool
	// Archived keeps partitions that no archive holds.
	Archived bool
}

// Run drops what may be dropped until the context ends, and outlives the database
// being away.
func (r *Retention) Run(ctx context.Context) error {
	if r.Age <= 0 {
		return nil
	}
	tick := time.NewTicker(retentionEvery)
	defer tick.Stop()
	failing := false
	for {
		dropped, err := r.Drop(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !failing && !errors.Is(err, &Error{Code: ViewsRebuilding}):
			r.Store.logger().Warn("drop old partitions of the log: will be tried again", "error", err)
		case dropped > 0:
			r.Store.logger().Info("old partitions have left the log", "before", dropped+1)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// LogPin is what needs the log, from a position on.
type LogPin struct {
	What     string // messages, stream, circuit, dedup, replay, checkpoint, projection, unplaced; of partitions also open, young, unsealed, unarchived
	Channel  string // or the projection; "" when it concerns none
	Position Position
}

// LogPartition is a partition of the log: positions from Low, below High.
type LogPartition struct {
	Name     string
	Low      Position
	High     Position
	Bytes    int64      // on disk, with indexes
	Events   int64      // about; -1 when that is not known yet
	FirstAt  *time.Time // nil of one that is empty
	LastAt   *time.Time
	Settled  bool    // nothing of it can change any more
	Sealed   bool    // all of it
	Digest   *string // of the chain at its end; nil where no seal ends there
	Archived bool    // all of it
	Pins     []LogPin
}

// LogState is how the log lies in the database.
type LogState struct {
	Begin      Position // the first position that is still there
	Partitions []LogPartition

	pinnedAt Position
	now      time.Time
	chained  bool
}

const logBeginSQL = `-- eventstore.logBegin
select coalesce((select b.first_position from leat.log_begin b), 1),
       clock_timestamp(),
       exists (select from leat.last_seal()),
       leat.settled_position()`

const logPartitionsSQL = `-- eventstore.logPartitions
select p.name,
       p.low,
       p.high,
       p.bytes,
       p.events,
       p.first_at,
       p.last_at,
       p.settled,
       p.sealed,
       p.digest,
       p.archived
from leat.log_partitions() p`

const logPinsSQL = `-- eventstore.logPins
select p.what,
       coalesce(p.channel, ''),
       p.pin
from leat.log_pins() p
order by p.pin`

// State is LogState by the settings of the retention.
func (r *Retention) State(ctx context.Context) (LogState, error) { return r.Store.LogState(ctx, r) }

// LogState looks at the partitions of the log and what pins each of them, by the
// settings of a retention.
func (s *Store) LogState(ctx context.Context, r *Retention) (state LogState, err error) {
	var pins []LogPin
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, logBeginSQL).Scan(&state.Begin, &state.now, &state.chained, &state.pinnedAt); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, logPinsSQL) // after what it is pinned at
		if err != nil {
			return err
		}
		if pins, err = pgx.CollectRows(rows, pgx.RowToStructByPos[LogPin]); err != nil {
			return err
		}
		if rows, err = tx.Query(ctx, logPartitionsSQL); err != nil {
			return err
		}
		state.Partitions, err = pgx.CollectRows(rows, scanPartition)
		return err
	})
	if err != nil {
		return state, fmt.Errorf("look at the partitions of the log: %w", FromPg(err))
	}
	for i := range state.Partitions {
		r.pin(&state, &state.Partitions[i], pins)
	}
	return state, nil
}

func scanPartition(row pgx.CollectableRow) (p LogPartition, err error) {
	err = row.Scan(&p.Name, &p.Low, &p.High, &p.Bytes, &p.Events, &p.FirstAt, &p.LastAt, &p.Settled, &p.Sealed, &p.Digest, &p.Archived)
	return p, err
}

// pin says what keeps a partition.
func (r *Retention) pin(state *LogState, p *LogPartition, pins []LogPin) {
	add := func(pinned bool, what string) {
		if pinned {
			p.Pins = append(p.Pins, LogPin{What: what, Position: p.Low})
		}
	}
	add(!p.Settled, "open")
	add(r.Age <= 0 || (p.LastAt != nil && state.now.Sub(*p.LastAt) < r.Age), "young")
	add((r.Sealed || state.chained) && !p.Sealed, "unsealed")
	add(r.Archived && !p.Archived, "unarchived")
	for _, pin := range pins {
		if pin.Position < p.High {
			p.Pins = append(p.Pins, pin)
		}
	}
}

const renewCheckpointSQL = `-- eventstore.renewCheckpoint
select leat.checkpoint(0)`

// Drop drops what may be dropped now and answers the last position of it, 0 for
// nothing. The beginning of the log is all that is dropped: what is kept keeps all
// that comes after it.
func (r *Retention) Drop(ctx context.Context) (Position, error) {
	if r.Age <= 0 {
		return 0, nil
	}
	state, err := r.Store.LogState(ctx, r)
	if err != nil {
		return 0, err
	}
	if n, _ := r.droppable(&state, "checkpoint"); n > 0 && state.Partitions[n-1].pinnedBy("checkpoint") {
		if _, err := r.Store.pool.Exec(ctx, renewCheckpointSQL); err != nil {
			return 0, fmt.Errorf("renew the checkpoint of the queue views: %w", FromPg(err))
		}
		if state, err = r.Store.LogState(ctx, r); err != nil {
			return 0, err
		}
	}
	n, digest := r.droppable(&state)
	if n == 0 {
		return 0, nil
	}
	return r.drop(ctx, &state, n, digest)
}

func (p *LogPartition) pinnedBy(what string) bool {
	return slices.ContainsFunc(p.Pins, func(pin LogPin) bool { return pin.What == what })
}

// droppable is how many partitions may go, apart from what can be changed: up to the
// last one behind which the chain can go on, and its digest there.
func (r *Retention) droppable(state *LogState, but ...string) (n int, digest *string) {
	for i, p := range state.Partitions {
		if slices.ContainsFunc(p.Pins, func(pin LogPin) bool { return !slices.Contains(but, pin.What) }) {
			break
		}
		if p.Digest != nil || (!r.Sealed && !state.chained) {
			n, digest = i+1, p.Digest
		}
	}
	return n, digest
}

// droppedData is what a log.dropped event says, beside what leat.log_base gives.
type droppedData struct {
	From   Position `json:"from"`
	To     Position `json:"to"`
	Bytes  int64    `json:"bytes"`            // on disk
	Digest *string  `json:"digest,omitempty"` // of the chain up to there
}

const logBaseSQL = `-- eventstore.logBase
select leat.log_base($1)`

const dropLogSQL = `-- eventstore.dropLog
select leat.drop_log($1, $2, $3, $4::jsonb || $5::jsonb)`

func (r *Retention) drop(ctx context.Context, state *LogState, n int, digest *string) (Position, error) {
	data := droppedData{From: state.Begin, To: state.Partitions[n-1].High - 1, Digest: digest}
	for _, p := range state.Partitions[:n] {
		data.Bytes += p.Bytes
	}
	// Before the lock: it may take a while, and what is settled does not change.
	var base string
	if err := r.Store.pool.QueryRow(ctx, logBaseSQL, data.To).Scan(&base); err != nil {
		return 0, fmt.Errorf("read what leaves the log: %w", FromPg(err))
	}
	text, err := json.Marshal(data)
	if err != nil {
		return 0, err
	}
	var event *Position
	err = pgx.BeginFunc(ctx, r.Store.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, retentionLockTimeout); err != nil {
			return err
		}
		return tx.QueryRow(ctx, dropLogSQL, data.To, state.pinnedAt, state.Begin, string(text), base).Scan(&event)
	})
	if err != nil {
		return 0, fmt.Errorf("drop partitions of the log: %w", FromPg(err))
	}
	if event == nil {
		return 0, nil
	}
	return data.To, nil
}
