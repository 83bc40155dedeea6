package api

import (
	"slices"

	"leat/eventstore"
)

// CloseCode says why the broker closed a WebSocket connection. The reason that
// comes with it is the code of the problem.
type CloseCode int

// Every close code of the broker. CloseCodes lists them.
const (
	CloseGoingAway    CloseCode = 1001 // the broker stops
	CloseNotReady     CloseCode = 4000 // the broker, or its database, cannot serve now
	CloseNoPong       CloseCode = 4001 // a ping got no answer
	CloseTooSlow      CloseCode = 4002 // the peer did not take a frame for a minute
	ClosePointMoved   CloseCode = 4003 // the point was moved by somebody else, or reset: the next connection begins where it is now
	CloseBadRequest   CloseCode = 4500 // a frame or a parameter is wrong
	ClosePointTaken   CloseCode = 4501 // another consumer reads with the point now
	CloseNotFound     CloseCode = 4502 // there is no such stream or queue, or no longer
	CloseEpochChanged CloseCode = 4503 // the stream is another one of the same name
	CloseOffsetGone   CloseCode = 4504 // retention has trimmed what would come next
	CloseOffsetAhead  CloseCode = 4505 // the offset is beyond the end of the stream
	ClosePointDeleted CloseCode = 4506 // there is no such replication point any more
	CloseInternal     CloseCode = 4507 // the broker failed
)

// Reasons that no problem has: nobody reads frames any more when they come.
const (
	NoPong  eventstore.Code = "no_pong"
	TooSlow eventstore.Code = "too_slow"
)

// Reconnect says whether the same request can succeed later, and should be made
// again, after a pause that grows. Codes that are not the broker's, as of a
// connection that broke, are of that kind; but 1000 is nobody's failure.
func (c CloseCode) Reconnect() bool { return c != 1000 && (c < 4500 || c > 4999) }

// CloseMeaning is a close code for people.
type CloseMeaning struct {
	Code    CloseCode
	Meaning string
}

// closeMeanings is the one table of close codes.
var closeMeanings = []CloseMeaning{
	{CloseGoingAway, "the broker stops"},
	{CloseNotReady, "the broker or its database cannot serve now"},
	{CloseNoPong, "a ping was not answered in time"},
	{CloseTooSlow, "a frame was not taken in time"},
	{ClosePointMoved, "the replication point was moved by somebody else: reconnect to read from where it is now"},
	{CloseBadRequest, "a frame or a parameter is wrong"},
	{ClosePointTaken, "another consumer reads with the replication point now"},
	{CloseNotFound, "there is no such stream or queue, or no longer"},
	{CloseEpochChanged, "the stream was deleted and declared again, or the database was restored"},
	{CloseOffsetGone, "retention has trimmed what would come next"},
	{CloseOffsetAhead, "the offset is beyond the end of the stream, or the database has lost messages that were delivered"},
	{ClosePointDeleted, "the replication point was deleted"},
	{CloseInternal, "the broker failed; its log tells why"},
}

// CloseCodes are all close codes of the broker, with what they mean.
func CloseCodes() []CloseMeaning { return slices.Clone(closeMeanings) }

// CloseCodeOf is the close code for a connection that ends with a problem of
// this code.
func CloseCodeOf(code eventstore.Code) CloseCode {
	switch code {
	case eventstore.ShuttingDown:
		return CloseGoingAway
	case eventstore.DatabaseUnavailable, eventstore.ViewsRebuilding, eventstore.Busy:
		return CloseNotReady
	case NoPong:
		return CloseNoPong
	case TooSlow:
		return CloseTooSlow
	case eventstore.PointMoved:
		return ClosePointMoved
	case eventstore.PointTaken:
		return ClosePointTaken
	case eventstore.ChannelNotFound, eventstore.NotFound:
		return CloseNotFound
	case eventstore.EpochChanged:
		return CloseEpochChanged
	case eventstore.OffsetGone:
		return CloseOffsetGone
	case eventstore.OffsetAhead:
		return CloseOffsetAhead
	case eventstore.PointNotFound:
		return ClosePointDeleted
	}
	if StatusOf(code).Status >= 500 {
		return CloseInternal
	}
	return CloseBadRequest
}
