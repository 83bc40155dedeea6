package api

import (
	"encoding/json"
	"time"

	"leat/eventstore"
)

// Status is how broker and database are.
type Status struct {
	Version         string              `json:"version" doc:"of the broker"`
	DatabaseURL     string              `json:"databaseUrl,omitempty" doc:"for psql, without the password"`
	Database        Database            `json:"database"`
	LastPosition    eventstore.Position `json:"lastPosition" doc:"drawn from the log's sequence"`
	SettledPosition eventstore.Position `json:"settledPosition" doc:"below which nothing of the log can change any more"`
	Checkpoint      eventstore.Position `json:"checkpoint" doc:"from which a rebuild would start; 0 when there is none"`
	ViewsAlive      bool                `json:"viewsAlive" doc:"false while the queue views are being rebuilt"`
	Horizon         *Horizon            `json:"horizon,omitempty" doc:"the session that holds back vacuum the longest"`
	Sessions        []Sessions          `json:"sessions" nullable:"false" doc:"of the database, by application name"`
}

// Database is the PostgreSQL server behind the broker.
type Database struct {
	ServerVersion string `json:"serverVersion"`
	Name          string `json:"name"`
}

// Horizon is the session whose snapshot is the oldest. While it lasts, no row
// that was deleted since can be reclaimed.
type Horizon struct {
	PID         int       `json:"pid"`
	Application string    `json:"application"`
	Database    string    `json:"database"`
	State       string    `json:"state"`
	Since       time.Time `json:"since"`
}

// Sessions counts the sessions of an application.
type Sessions struct {
	Application string `json:"application"`
	Count       int    `json:"count"`
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
