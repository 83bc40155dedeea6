package eventstore

import "time"

// Replay is a range of the past that is published again, and how far that is.
type Replay struct {
	ID         Position // names it, to resume it: that of its replay.started event; 0 of a dry run
	Source     string   // what the channel was that held the messages
	Target     string
	From, To   Position // of the log: what is looked at. To is never beyond what was settled at the start
	Rate       int      // messages per second; 0 is no bound
	Messages   int64    // that were published again; of a dry run: that would be
	Bytes      int64    // of their payloads
	Copies     int64    // that were made of them: more, where links lead on
	Dead       int64    // copies that went to the dead letters, because the circuit of their key is not closed
	Unroutable int64    // messages that no link leads anywhere, left out
	Gone       int64    // messages whose payload has left the log, left out
	Done       float64  // of the range, from 0 to 1
	Finished   bool
	StartedAt  time.Time
	ChangedAt  time.Time // when it went on last
}

// ReplayColumns are, of a leat.replays r, what goes into Columns.
const ReplayColumns = `r.id,
       (select c.name from leat.channels c where c.id = r.source_id),
       (select c.name from leat.channels c where c.id = r.target_id),
       r.from_position,
       r.to_position,
       r.rate,
       r.messages,
       r.bytes,
       r.copies,
       r.dead,
       r.unroutable,
       r.gone,
       leat.replay_done(r),
       r.finished,
       r.started_at,
       r.changed_at`

// Columns are where ReplayColumns go.
func (r *Replay) Columns() []any {
	return []any{
		&r.ID, &r.Source, &r.Target, &r.From, &r.To, &r.Rate, &r.Messages, &r.Bytes, &r.Copies, &r.Dead, &r.Unroutable, &r.Gone,
		&r.Done, &r.Finished, &r.StartedAt, &r.ChangedAt,
	}
}
