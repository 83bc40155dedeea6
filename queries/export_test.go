package queries

import (
	"context"

	"leat/eventstore"
)

// Death is death.
func (q *Queries) Death(ctx context.Context, id eventstore.MessageID) (eventstore.Position, error) {
	b, err := q.beginning(ctx, id)
	if err != nil {
		return 0, err
	}
	deaths, err := q.deaths(ctx, []beginning{*b})
	return deaths[0], err
}

// Statements are all the statements of the package.
func Statements() []string {
	return []string{
		anyPlanSQL, batchEventsSQL, batchEventsBackSQL, batchWindowSQL, batchWindowBackSQL, endsSQL, gapSQL, logBeginSQL, eventsBackSQL, windowBackSQL, beginningsSQL, channelIDSQL, channelIDsSQL, channelSQL, channelsSQL, circuitsSQL, contentSQL, copiesSQL, deathsSQL, eventsSQL, familyEventsSQL,
		channelAtSQL, channelsAsOfSQL, circuitsAsOfSQL, deletedAtSQL, lastUntilSQL, messagesAsOfSQL, nowSQL, reachesSQL, settingsSQL, timeoutSQL, trimmedAtSQL,
		brokersSQL, consumersSQL, failuresSQL, statisticsSQL, projectionsSQL, livePositionSQL, historySQL, horizonSQL, keyMessagesSQL, linkSQL, linksSQL, lockTimeoutSQL, lockViewsSQL, messagesSQL, plansSQL, pointsSQL, probeSQL, relaySQL, relaysSQL, sessionsSQL,
		replaySQL, replaysSQL, settledHolderSQL, statusSQL, streamIDSQL, streamMessagesSQL, streamSQL, viewsAliveSQL, windowSQL,
	}
}

// For looking at their plans.
const (
	BatchEventsSQL     = batchEventsSQL
	BatchWindowSQL     = batchWindowSQL
	BatchEventsBackSQL = batchEventsBackSQL
	BatchWindowBackSQL = batchWindowBackSQL
	EventsBackSQL      = eventsBackSQL
	WindowBackSQL      = windowBackSQL
	ChannelSQL         = channelSQL
	BeginningsSQL      = beginningsSQL
	ContentSQL         = contentSQL
	CopiesSQL          = copiesSQL
	DeathsSQL          = deathsSQL
	FamilyEventsSQL    = familyEventsSQL
	EventsSQL          = eventsSQL
	HistorySQL         = historySQL
	KeyMessagesSQL     = keyMessagesSQL
	MessagesSQL        = messagesSQL
	PlansSQL           = plansSQL
	PointsSQL          = pointsSQL
	ProbeSQL           = probeSQL
	WindowSQL          = windowSQL
)

// Cursor reads a cursor and writes it again.
func Cursor(text string) (string, error) {
	c, err := parseCursor(text)
	if err != nil || text == "" {
		return text, err
	}
	return c.String(), nil
}

// CursorAt is the cursor of events behind a position.
func CursorAt(p eventstore.Position, backwards bool) string {
	return (&EventsFilter{Backwards: backwards}).cursorAt(p)
}
