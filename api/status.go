package api

import (
	"encoding/json"
	"time"

	"leat/eventstore"
)

// Status is how broker and database are.
type Status struct {
	Version         string              `json:"version" doc:"of the broker"`
	StartedAt       time.Time           `json:"startedAt" doc:"the broker"`
	Tail            Tail                `json:"tail" doc:"how this broker learns at once of what was committed"`
	Brokers         []Broker            `json:"brokers" nullable:"false" doc:"those that are alive, this one included"`
	DatabaseURL     string              `json:"databaseUrl,omitempty" doc:"for psql, without the password"`
	Database        Database            `json:"database"`
	LastPosition    eventstore.Position `json:"lastPosition" doc:"drawn from the log's sequence"`
	SettledPosition eventstore.Position `json:"settledPosition" doc:"below which nothing of the log can change any more: where readers of the log stop"`
	SettledHolder   *Holder             `json:"settledHolder,omitempty" doc:"the oldest open transaction that appends: the settled position waits for it"`
	PartitionedTo   eventstore.Position `json:"partitionedTo" doc:"positions below have partitions; the broker keeps it ahead of lastPosition"`
	Checkpoint      eventstore.Position `json:"checkpoint" doc:"from which a rebuild would start; 0 when there is none"`
	CheckpointAt    *time.Time          `json:"checkpointAt,omitempty" doc:"when it was written"`
	ViewsAlive      bool                `json:"viewsAlive" doc:"false while the queue views are being rebuilt"`
	Rebuild         *Progress           `json:"rebuild,omitempty" doc:"how far the rebuild is, while the views are not alive"`
	Restored        *Restored           `json:"restored,omitempty" doc:"when the database was last found to be another one than before: a dump that was restored, a copy, or an earlier state"`
	OpenCircuits    int64               `json:"openCircuits" doc:"routing keys of FIFO queues whose circuit is not closed"`
	Unplaced        int64               `json:"unplaced" doc:"messages that were published while the views were lost, and are not in their queues yet"`
	Horizon         *Holder             `json:"horizon,omitempty" doc:"who holds back vacuum the longest: while it lasts, no row that was deleted since can be reclaimed"`
	Projections     []Projection        `json:"projections" nullable:"false" doc:"views that follow the log behind its commits, with their lag"`
	Sessions        []Sessions          `json:"sessions" nullable:"false" doc:"of the database, by application name"`
}

// Restored is when the database was found to be another one than before.
type Restored struct {
	Position eventstore.Position `json:"position" doc:"of the log.restored event; streams have another epoch since"`
	At       time.Time           `json:"at"`
}

// Tail is how a broker hears of commits.
type Tail struct {
	Mode        string    `json:"mode" enum:"wal,notify" doc:"wal: it reads the write-ahead log; notify: it listens, and looks by itself every second"`
	Since       time.Time `json:"since" doc:"in this mode"`
	Decoder     string    `json:"decoder" enum:"pgoutput,wal2json" doc:"the output plugin"`
	Reason      string    `json:"reason,omitempty" doc:"why it does not read the write-ahead log now"`
	Slot        string    `json:"slot,omitempty" doc:"its temporary replication slot, which ends with the connection"`
	ReceivedLSN string    `json:"receivedLSN,omitempty" doc:"up to where it has read the write-ahead log, and the server need not keep it for this broker"`
	LagBytes    int64     `json:"lagBytes" doc:"of the write-ahead log, from there to its end; 0 without a slot"`
	Reconnects  int       `json:"reconnects" doc:"how often a slot was lost since the broker started"`
}

// Broker is a broker that serves this database.
type Broker struct {
	ID     string    `json:"id" doc:"drawn at its start"`
	Tail   string    `json:"tail" enum:"wal,notify" doc:"the mode of its tail"`
	Reason string    `json:"reason,omitempty" doc:"why it does not read the write-ahead log"`
	Since  time.Time `json:"since" doc:"in this mode"`
}

// Database is the PostgreSQL server behind the broker.
type Database struct {
	ServerVersion string    `json:"serverVersion"`
	Name          string    `json:"name"`
	StartedAt     time.Time `json:"startedAt" doc:"the server"`
}

// Holder is a session of the server, or a prepared transaction, that holds
// something back.
type Holder struct {
	PID         int       `json:"pid" doc:"0 of a prepared transaction"`
	Application string    `json:"application" doc:"the name of a prepared transaction"`
	Database    string    `json:"database"`
	State       string    `json:"state"`
	Since       time.Time `json:"since" doc:"when its transaction started"`
}

// Sessions counts the sessions of an application.
type Sessions struct {
	Application string `json:"application"`
	Count       int    `json:"count"`
}

// Progress is how far a rebuild of the queue views is, in events of the log.
type Progress struct {
	Done  int64 `json:"done"`
	Total int64 `json:"total" doc:"about"`
}

// VerifyResult answers the comparison of the queue views with the log.
type VerifyResult struct {
	Equal       bool         `json:"equal"`
	Differences []Difference `json:"differences" nullable:"false"`
}

// Difference is a message that a view and the log see differently. A side that
// does not have the message at all is left out.
type Difference struct {
	ChannelID eventstore.ChannelID `json:"channelId"`
	MessageID eventstore.MessageID `json:"messageId"`
	View      json.RawMessage      `json:"view,omitempty" doc:"what the view says"`
	Log       json.RawMessage      `json:"log,omitempty" doc:"what the log says"`
}

// RebuildResult answers a rebuild of the queue views.
type RebuildResult struct {
	Messages int64    `json:"messages" doc:"that are in the views now"`
	Took     Duration `json:"took"`
}

// Readiness answers the health routes.
type Readiness struct {
	Status string  `json:"status" enum:"ok,unavailable"`
	Checks []Check `json:"checks,omitempty" nullable:"false" doc:"with ?verbose, or when one fails"`
}

// Check is one thing that readiness depends on.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"`
}
