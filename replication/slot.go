package replication

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
)

const (
	// A slot that is not there by then waits for somebody, or for nothing.
	lookEvery = time.Second
	// slotWithin bounds a wait that is for nobody we could name.
	slotWithin = 30 * time.Second
)

// createSlot makes the slot. That waits for every transaction that writes now, in
// any database of the server, however long; meanwhile the state says for whom.
func (s *session) createSlot(ctx context.Context) error {
	creating, cancel := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		s.watchSlot(creating, cancel)
	}()
	made, err := pglogrepl.CreateReplicationSlot(creating, s.conn, s.slot, s.tail.cfg.Decoder, pglogrepl.CreateReplicationSlotOptions{
		Temporary: true, Mode: pglogrepl.LogicalReplication, SnapshotAction: "NOEXPORT_SNAPSHOT",
	})
	if cause := context.Cause(creating); err != nil && cause != nil && ctx.Err() == nil {
		err = cause
	}
	cancel(nil)
	<-watched
	if err == nil {
		s.received, err = pglogrepl.ParseLSN(made.ConsistentPoint)
	}
	return err
}

var errSlotStuck = errors.New("no answer, though it waits for nobody")

// watchSlot tells whom the slot waits for, and gives up one that waits for nobody:
// its connection has died without a word.
func (s *session) watchSlot(ctx context.Context, giveUp context.CancelCauseFunc) {
	waits := time.Now() // for somebody, when it was last seen
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(lookEvery):
		}
		reason, err := s.holdsUp(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			s.tail.cfg.Logger.Debug("look whom the slot waits for", "error", err)
		case reason != "":
			waits = time.Now()
			if s.tail.missing(reason) {
				s.tail.cfg.Logger.Info("the tail of the write-ahead log is not there yet", "reason", reason)
			}
		}
		if time.Since(waits) > slotWithin {
			giveUp(errSlotStuck)
			return
		}
	}
}

// A role may not see when a session of another one began its transaction.
const holdsUpSQL = `-- replication.holdsUp
select b.pid,
       coalesce(a.application_name, ''),
       a.xact_start
from unnest(pg_catalog.pg_blocking_pids($1)) b (pid)
left join pg_catalog.pg_stat_activity a on a.pid = b.pid
order by a.xact_start
limit 1`

// holdsUp says whom the session's command waits for, "" for nobody.
func (s *session) holdsUp(ctx context.Context) (string, error) {
	looking, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	rows, err := s.tail.cfg.Pool.Query(looking, holdsUpSQL, int64(s.conn.PID()))
	if err != nil {
		return "", err
	}
	defer rows.Close()
	reason := ""
	for rows.Next() {
		var pid int
		var application string
		var since *time.Time
		if err := rows.Scan(&pid, &application, &since); err != nil {
			return "", err
		}
		reason = waitingFor(pid, application, since)
	}
	return reason, rows.Err()
}

func waitingFor(pid int, application string, since *time.Time) string {
	reason := fmt.Sprintf("the slot waits for the end of a transaction of process %d", pid)
	if pid == 0 {
		reason = "the slot waits for the end of a prepared transaction"
	}
	if application != "" {
		reason += fmt.Sprintf(" (%s)", application)
	}
	if since != nil {
		reason += " since " + since.UTC().Format(time.RFC3339)
	}
	return reason
}
