package api

import (
	"time"

	"leat/eventstore"
)

// RepublishRequest publishes again what a channel held in a range of the past. What
// is absent does not narrow it.
type RepublishRequest struct {
	Source     string              `json:"source" doc:"the channel that held it, also one that was deleted"`
	Target     string              `json:"target" doc:"where it goes: any channel, also the same"`
	From       eventstore.Position `json:"from,omitempty" doc:"first position of the log"`
	To         eventstore.Position `json:"to,omitempty" doc:"last position; never beyond what is settled now"`
	FromOffset *eventstore.Offset  `json:"fromOffset,omitempty" doc:"of a stream: first offset, also one that it keeps no longer"`
	ToOffset   *eventstore.Offset  `json:"toOffset,omitempty" doc:"of a stream: last offset"`
	Since      *time.Time          `json:"since,omitempty" doc:"not older"`
	Until      *time.Time          `json:"until,omitempty" doc:"older"`
	Key        *string             `json:"key,omitempty" maxLength:"255" doc:"pattern of routing keys: words split by dots, * is one word, # zero or more"`
	Rate       int                 `json:"rate,omitempty" minimum:"0" maximum:"1000000" doc:"messages per second; default 0, as fast as it goes"`
	DryRun     bool                `json:"dryRun,omitempty" doc:"count, and write nothing"`
}

// Replay is a range of the past that is published again, and how far that is.
type Replay struct {
	ID         eventstore.Position `json:"id,omitempty" doc:"names it; absent of a dry run"`
	Source     string              `json:"source"`
	Target     string              `json:"target"`
	From       eventstore.Position `json:"from" doc:"first position of the log that is looked at"`
	To         eventstore.Position `json:"to" doc:"last one"`
	Rate       int                 `json:"rate" doc:"messages per second; 0 is no bound"`
	Messages   int64               `json:"messages" doc:"that were published again; of a dry run: that would be"`
	Bytes      int64               `json:"bytes" doc:"of their payloads"`
	Copies     int64               `json:"copies" doc:"that were made of them: more where links lead on"`
	Dead       int64               `json:"dead" doc:"copies that went to the dead letters, because the circuit of their key is not closed"`
	Unroutable int64               `json:"unroutable" doc:"messages that no link leads anywhere, left out"`
	Gone       int64               `json:"gone" doc:"messages whose payload has left the log, left out"`
	Done       float64             `json:"done" doc:"how much of the range, from 0 to 1"`
	Finished   bool                `json:"finished" doc:"what is not can be resumed"`
	StartedAt  time.Time           `json:"startedAt"`
	ChangedAt  time.Time           `json:"changedAt" doc:"when it went on last"`
}

// ReplayPage is a page of replays.
type ReplayPage struct {
	Replays    []Replay `json:"replays" nullable:"false"`
	NextCursor string   `json:"nextCursor,omitempty" doc:"absent on the last page"`
}
