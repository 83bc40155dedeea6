package api

import (
	"time"

	"leat/eventstore"
)

// Seal is the end of the chain of seals: its digest covers the log up to a position.
type Seal struct {
	To       eventstore.Position `json:"to" doc:"the last position that the digest covers, and all before"`
	Digest   string              `json:"digest" doc:"SHA-256, in hexadecimal: keep it elsewhere to prove later that nothing changed"`
	At       time.Time           `json:"at" doc:"when it was made"`
	Position eventstore.Position `json:"position" doc:"of its log.sealed event"`
}

// SealResult answers a request to seal the log.
type SealResult struct {
	Seal *Seal `json:"seal,omitempty" doc:"the last seal; absent where there was never anything to seal"`
}

// ChainPage is what a verification of a part of the chain found.
type ChainPage struct {
	Seals           int                 `json:"seals" doc:"that were verified"`
	Events          int64               `json:"events" doc:"that were digested"`
	Bytes           int64               `json:"bytes" doc:"that were digested"`
	From            eventstore.Position `json:"from" doc:"of the part"`
	To              eventstore.Position `json:"to" doc:"of its last seal; less than from where there are no more seals"`
	Digest          string              `json:"digest" doc:"of that seal"`
	Previous        string              `json:"previous" doc:"of the seal before the part; zeros where the chain begins"`
	Seal            eventstore.Position `json:"seal,omitempty" doc:"its log.sealed event"`
	Faults          []ChainFault        `json:"faults" nullable:"false" doc:"what is not as it was sealed"`
	Met             bool                `json:"met" doc:"the expected digest is that of a seal of the part"`
	SettledPosition eventstore.Position `json:"settledPosition"`
	NextCursor      string              `json:"nextCursor,omitempty" doc:"absent at the end of the chain"`
}

// ChainFault is a part of the log that is not as it was sealed.
type ChainFault struct {
	Kind   string              `json:"kind" enum:"changed,removed,added,seal,link" doc:"of events: changed, removed or added; of seals: seal (no sealer wrote it so), link (it does not follow on the one before)"`
	From   eventstore.Position `json:"from" doc:"the first position that it may be about"`
	To     eventstore.Position `json:"to"`
	Seal   eventstore.Position `json:"seal,omitempty" doc:"the log.sealed event that tells"`
	Sealed int64               `json:"sealed" doc:"events that were sealed there"`
	Found  int64               `json:"found" doc:"events that are there"`
	Detail string              `json:"detail"`
}

// ChainPageOf is a page as it looks from outside.
func ChainPageOf(p eventstore.ChainPage) ChainPage {
	page := ChainPage{
		Seals: p.Seals, Events: p.Events, Bytes: p.Bytes, From: p.Begin.To + 1, To: p.End.To, Digest: p.End.Digest.String(),
		Previous: p.Begin.Digest.String(), Seal: p.End.Seal,
		Faults: make([]ChainFault, len(p.Faults)), Met: p.Met, SettledPosition: p.Settled,
	}
	for i, f := range p.Faults {
		page.Faults[i] = ChainFault{
			Kind: string(f.Kind), From: f.From, To: f.To, Seal: f.Seal, Sealed: f.Sealed, Found: f.Found, Detail: f.Detail,
		}
	}
	if p.More {
		page.NextCursor = p.End.String()
	}
	return page
}

// SealOf is a seal as it looks from outside, nil for none.
func SealOf(s *eventstore.Seal, at time.Time) *Seal {
	if s == nil {
		return nil
	}
	return &Seal{To: s.To, Digest: s.Digest.String(), At: at.UTC(), Position: s.Position}
}

// Log is how the log lies in the database.
type Log struct {
	Begin      eventstore.Position `json:"begin" doc:"the first position that is still there"`
	Seal       *Seal               `json:"seal,omitempty" doc:"the last seal"`
	Partitions []LogPartition      `json:"partitions" nullable:"false"`
}

// LogPartition is a partition of the log, which leaves it as a whole.
type LogPartition struct {
	Name     string              `json:"name" doc:"of the table, in the schema leat"`
	From     eventstore.Position `json:"from" doc:"first position"`
	To       eventstore.Position `json:"to" doc:"last position"`
	Events   int64               `json:"events" doc:"about, as last counted by the server; -1: not yet"`
	Bytes    int64               `json:"bytes" doc:"on disk, with indexes"`
	FirstAt  *time.Time          `json:"firstAt,omitempty" doc:"of its first event"`
	LastAt   *time.Time          `json:"lastAt,omitempty" doc:"of its last event"`
	Settled  bool                `json:"settled" doc:"nothing of it can change any more"`
	Sealed   bool                `json:"sealed" doc:"to its end"`
	Archived bool                `json:"archived" doc:"to its end"`
	Pins     []LogPin            `json:"pins" nullable:"false" doc:"why it may not be dropped, apart from those before it"`
}

// LogPin is what needs the log, from a position on.
type LogPin struct {
	What     string              `json:"what" doc:"messages (of a queue, dead ones too), unplaced, stream (what it keeps), circuit, dedup, replay (of the channel that is published again), checkpoint, projection (the name is in channel); of the partition itself: open, young, unsealed, unarchived"`
	Channel  string              `json:"channel,omitempty"`
	Position eventstore.Position `json:"position" doc:"the first that it needs"`
}

// ArchivedRange says that a range of the log is in a file of an archive.
type ArchivedRange struct {
	From   eventstore.Position `json:"from"`
	To     eventstore.Position `json:"to" doc:"where a seal ends"`
	Events int64               `json:"events"`
	File   string              `json:"file"`
	SHA256 string              `json:"sha256" doc:"of the file, in hexadecimal"`
	Digest string              `json:"digest" doc:"of the seal that ends there"`
}

// ArchiveResult answers it.
type ArchiveResult struct {
	Position eventstore.Position `json:"position" doc:"of the log.archived event"`
}

// LogOf is the state of the log as it looks from outside.
func LogOf(state eventstore.LogState, seal *Seal) Log {
	log := Log{Begin: state.Begin, Seal: seal, Partitions: make([]LogPartition, len(state.Partitions))}
	for i, p := range state.Partitions {
		log.Partitions[i] = LogPartition{
			Name: p.Name, From: p.Low, To: p.High - 1, Events: p.Events, Bytes: p.Bytes, FirstAt: p.FirstAt, LastAt: p.LastAt,
			Settled: p.Settled, Sealed: p.Sealed, Archived: p.Archived, Pins: make([]LogPin, len(p.Pins)),
		}
		for j, pin := range p.Pins {
			log.Partitions[i].Pins[j] = LogPin(pin)
		}
	}
	return log
}
