package queries

import (
	"context"

	"leat/eventstore"
)

// Death is death.
func (q *Queries) Death(ctx context.Context, id eventstore.MessageID) (eventstore.Position, error) {
	return q.death(ctx, id)
}

// Statements are all the statements of the package.
func Statements() []string {
	return []string{
		batchEventsSQL, batchWindowSQL, channelIDSQL, channelIDsSQL, channelSQL, channelsSQL, deathSQL, eventsSQL,
		historySQL, horizonSQL, keyMessagesSQL, lockTimeoutSQL, lockViewsSQL, messagesSQL, nowSQL, plansSQL, probeSQL, sessionsSQL,
		settledHolderSQL, statusSQL, viewsAliveSQL, windowSQL,
	}
}

// For looking at their plans.
const (
	BatchEventsSQL = batchEventsSQL
	BatchWindowSQL = batchWindowSQL
	ChannelSQL     = channelSQL
	DeathSQL       = deathSQL
	EventsSQL      = eventsSQL
	HistorySQL     = historySQL
	KeyMessagesSQL = keyMessagesSQL
	MessagesSQL    = messagesSQL
	PlansSQL       = plansSQL
	ProbeSQL       = probeSQL
	WindowSQL      = windowSQL
)

// Cursor reads a cursor and writes it again.
func Cursor(text string) (string, error) {
	c, err := parseCursor(text)
	if err != nil || text == "" {
		return text, err
	}
	return c.String(), nil
}
