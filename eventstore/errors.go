package eventstore

import (
	"fmt"
	"slices"
	"time"
)

// Code names a kind of refusal, for programs. Codes are never renamed.
type Code string

// Every code there is; Codes lists them. The last three come per receipt,
// inside an answer.
const (
	InvalidRequest      Code = "invalid_request"      // cannot be read at all
	UnknownField        Code = "unknown_field"        // has a field that does not exist
	InvalidField        Code = "invalid_field"        // a value is out of its range
	BatchEmpty          Code = "batch_empty"          // nothing to do
	BatchTooLarge       Code = "batch_too_large"      // too many items, or too many bytes
	PayloadTooLarge     Code = "payload_too_large"    // of one message
	HeadersTooLarge     Code = "headers_too_large"    // of one message
	KeyTooLong          Code = "key_too_long"         // a routing key over 255 bytes
	ReceiptMalformed    Code = "receipt_malformed"    // not a receipt at all
	ChannelNotFound     Code = "channel_not_found"    //
	ChannelConflict     Code = "channel_conflict"     // exists with other settings
	ChannelNotEmpty     Code = "channel_not_empty"    // holds messages
	ChannelInUse        Code = "channel_in_use"       // takes the dead letters of a queue
	LinkNotFound        Code = "link_not_found"       //
	LinkConflict        Code = "link_conflict"        // exists with other settings
	LinkCycle           Code = "link_cycle"           // would lead back to where it comes from
	OrderLost           Code = "order_lost"           // would lead what has no order to a FIFO queue
	MessageNotFound     Code = "message_not_found"    //
	MessageNotDead      Code = "message_not_dead"     // it is no dead letter, or no longer one
	Unroutable          Code = "unroutable"           // no link leads the message anywhere
	DedupConflict       Code = "dedup_conflict"       // the dedupId was used for other content
	EpochChanged        Code = "epoch_changed"        // the stream was deleted and declared again, or the database restored: its offsets are others
	OffsetGone          Code = "offset_gone"          // trimmed by the stream's retention
	OffsetAhead         Code = "offset_ahead"         // beyond the end of the stream
	EventsGone          Code = "events_gone"          // the log begins later: its retention has dropped what was before
	PositionAhead       Code = "position_ahead"       // the log has not come so far
	PointNotFound       Code = "point_not_found"      //
	PointConflict       Code = "point_conflict"       // exists with other settings
	PointTaken          Code = "point_taken"          // another consumer reads with the point now
	PointMoved          Code = "point_moved"          // somebody reset the point: read again from where it is now
	ReplayNotFound      Code = "replay_not_found"     //
	ReplayTaken         Code = "replay_taken"         // somebody else resumed it, and it goes on there
	CommitBehind        Code = "commit_behind"        // the point is further on already: only a reset moves it back
	ProjectionNotFound  Code = "projection_not_found" //
	RelayNotFound       Code = "relay_not_found"      //
	RelayConflict       Code = "relay_conflict"       // exists with other settings
	ViewsRebuilding     Code = "views_rebuilding"     // retry soon
	DatabaseUnavailable Code = "database_unavailable" // retry soon
	Busy                Code = "busy"                 // somebody's long transaction holds what is needed
	ShuttingDown        Code = "shutting_down"        // retry at another broker
	MethodNotAllowed    Code = "method_not_allowed"   //
	NotFound            Code = "not_found"            // no such resource
	Internal            Code = "internal"             // a fault of the broker

	LeaseLost      Code = "lease_lost"      // the lease ended before the settlement
	AlreadySettled Code = "already_settled" // settled in another way
	ReceiptUnknown Code = "receipt_unknown" // never given out by this queue
)

var codes = []Code{
	InvalidRequest, UnknownField, InvalidField, BatchEmpty, BatchTooLarge,
	PayloadTooLarge, HeadersTooLarge, KeyTooLong, ReceiptMalformed,
	ChannelNotFound, ChannelConflict, ChannelNotEmpty, ChannelInUse,
	LinkNotFound, LinkConflict, LinkCycle, OrderLost, MessageNotFound, MessageNotDead, Unroutable,
	DedupConflict, EpochChanged, OffsetGone, OffsetAhead, EventsGone, PositionAhead, PointNotFound, PointConflict, PointTaken, PointMoved, CommitBehind,
	ProjectionNotFound, RelayNotFound, RelayConflict,
	ReplayNotFound, ReplayTaken,
	ViewsRebuilding, DatabaseUnavailable, Busy, ShuttingDown,
	MethodNotAllowed, NotFound, Internal,
	LeaseLost, AlreadySettled, ReceiptUnknown,
}

// Codes lists all codes.
func Codes() []Code { return slices.Clone(codes) }

// Error is what every command and query answers when it refuses. Find it with
// errors.As.
type Error struct {
	Code       Code          // for programs
	Message    string        // one sentence for people
	Field      string        // of the bad item, as in "routingKey"; "" when none
	Index      int           // of the bad item in the request, -1 when none
	Errors     []Error       // when several items are bad: all of them, the first one included
	RetryAfter time.Duration // greater than 0: the same call may succeed later
	Uncertain  bool          // whether the call was carried out is not known
	// Resume is where reading a stream, or committing, can go on: of EpochChanged,
	// OffsetGone, OffsetAhead and CommitBehind. Its offset is the next to read.
	Resume *StreamPosition
	First  Position // of EventsGone: the first position that is still there
	Cause  error    // what came from below, for logs; not for clients
}

// Error is the message, after the item it is about.
func (e *Error) Error() string {
	switch {
	case e.Index >= 0 && e.Field != "":
		return fmt.Sprintf("%s: item %d: %s: %s", e.Code, e.Index, e.Field, e.Message)
	case e.Index >= 0:
		return fmt.Sprintf("%s: item %d: %s", e.Code, e.Index, e.Message)
	case e.Field != "":
		return fmt.Sprintf("%s: %s: %s", e.Code, e.Field, e.Message)
	default:
		return fmt.Sprintf("%s: %s", e.Code, e.Message)
	}
}

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Is reports whether target is an *Error of the same code, so that
// errors.Is(err, &Error{Code: Busy}) asks for a code.
func (e *Error) Is(target error) bool {
	other, ok := target.(*Error)
	return ok && other.Code == e.Code
}

// NewError is a refusal that is about no item in particular.
func NewError(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Index: -1}
}
