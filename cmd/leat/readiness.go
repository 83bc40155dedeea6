package main

import (
	"context"
	"net/url"
	"time"

	"leat/api"
	"leat/projections"
	"leat/replication"
)

// probeWithin bounds how long a readiness probe waits for the database.
const probeWithin = 2 * time.Second

// readiness checks everything that the broker needs to serve.
type readiness struct {
	views    viewsAPI
	tail     *replication.Tail
	required bool // the tail
}

// Ready checks the database and the queue views, and the tail if somebody insists on it.
func (r readiness) Ready(ctx context.Context) []api.Check {
	checks := r.views.Ready(ctx)
	if r.required {
		state := r.tail.State()
		checks = append(checks, api.Check{Name: "tail", OK: state.Mode == replication.ModeWAL, Detail: state.Reason})
	}
	return checks
}

// viewsAPI gives the API what it needs of the queue views.
type viewsAPI struct{ *projections.Views }

// Ready checks the database and the queue views.
func (v viewsAPI) Ready(ctx context.Context) []api.Check {
	ctx, cancel := context.WithTimeout(ctx, probeWithin)
	defer cancel()
	alive, err := v.Alive(ctx)
	database := api.Check{Name: "database", OK: err == nil}
	views := api.Check{Name: "views", OK: alive}
	switch {
	case err != nil:
		database.Detail = err.Error()
		views.Detail = "unknown while the database is away"
	case !alive:
		views.Detail = "being rebuilt from the log"
	}
	return []api.Check{database, views}
}

// Verify compares the log with the live views.
func (v viewsAPI) Verify(ctx context.Context, fromCheckpoint bool, limit int) ([]api.Difference, error) {
	found, err := v.Views.Verify(ctx, fromCheckpoint, limit)
	if err != nil {
		return nil, err
	}
	differences := make([]api.Difference, len(found))
	for i, difference := range found {
		differences[i] = api.Difference{
			ChannelID: difference.ChannelID,
			MessageID: difference.MessageID,
			View:      difference.View,
			Log:       difference.Log,
		}
	}
	return differences, nil
}

// withoutPassword is the database's address for people: psql can join in with
// it, given the password. A key-value string is not shown at all.
func withoutPassword(database string) string {
	address, err := url.Parse(database)
	if err != nil || address.Scheme == "" {
		return ""
	}
	if address.User != nil {
		address.User = url.User(address.User.Username())
	}
	return address.String()
}
