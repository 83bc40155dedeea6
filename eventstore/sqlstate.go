package eventstore

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"
)

// Clients are told to come back after these times.
const (
	retryRebuilding  = 1 * time.Second
	retryUnavailable = 1 * time.Second
	retryBusy        = 250 * time.Millisecond
)

// raised are the SQLSTATEs that our own functions raise.
var raised = map[string]Code{
	"LE001": ViewsRebuilding,
	"LE002": ChannelNotFound,
	"LE003": InvalidField,
	"LE004": ChannelConflict,
	"LE005": ChannelNotEmpty,
	"LE006": DedupConflict,
	"LE007": ReceiptMalformed,
	"LE020": LinkNotFound,
	"LE021": LinkConflict,
	"LE022": LinkCycle,
	"LE023": OrderLost,
	"LE024": ChannelInUse,
	"LE030": EpochChanged,
	"LE031": OffsetGone,
	"LE032": OffsetAhead,
	"LE033": PointNotFound,
	"LE034": PointConflict,
	"LE035": PointTaken,
	"LE036": CommitBehind,
	"LE037": PointMoved,
	"LE040": ProjectionNotFound,
	"LE060": RelayNotFound,
	"LE061": RelayConflict,
	"LE050": ReplayNotFound,
	"LE051": ReplayTaken,
	"LE052": PositionAhead,
	"LE053": EventsGone,
}

// FromPg makes an *Error of what the database or the way to it refused. Other
// errors, a cancelled context among them, come back as they are.
func FromPg(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*Error](err); ok {
		return err
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return fromState(pg, err)
	}
	if Unreachable(err) {
		return unavailable(err)
	}
	return err
}

// defaultPartition of the log takes what no other does.
const defaultPartition = "events_default"

func fromState(pg *pgconn.PgError, err error) error {
	if code, ok := raised[pg.Code]; ok {
		e := &Error{Code: code, Message: pg.Message, Field: pg.ColumnName, Index: -1, Cause: err}
		if i, bad := strconv.Atoi(pg.Hint); bad == nil {
			e.Index = i
		}
		e.Resume = resumeOf(pg.Detail)
		if first, bad := ParsePosition(pg.Detail); bad == nil && code == EventsGone {
			e.First = first
		}
		if code == ViewsRebuilding {
			e.Message = "The queue views are being rebuilt from the log; try again soon."
			e.RetryAfter = retryRebuilding
		}
		return e
	}
	switch {
	case Unreachable(err):
		return unavailable(err)
	case pg.Code == "55P03", pg.Code == "40P01", pg.Code == "40001", // lock not available, deadlock, serialization
		pg.Code == "23514" && pg.TableName == defaultPartition: // the row's own partition came while it waited for this one
		return &Error{
			Code:       Busy,
			Message:    "Another transaction holds what this call needs; try again.",
			Index:      -1,
			RetryAfter: retryBusy,
			Cause:      err,
		}
	default:
		return err
	}
}

// resumeOf reads the detail of an error about a place in a stream: "epoch:offset"
// of where it can go on.
func resumeOf(detail string) *StreamPosition {
	before, after, ok := strings.Cut(detail, ":")
	if !ok {
		return nil
	}
	epoch, err := ParsePosition(before)
	if err != nil {
		return nil
	}
	offset, err := ParseOffset(after)
	if err != nil {
		return nil
	}
	return &StreamPosition{Epoch: epoch, Offset: offset}
}

func unavailable(err error) *Error {
	return &Error{
		Code:       DatabaseUnavailable,
		Message:    "The database cannot be reached or cannot serve now; try again.",
		Index:      -1,
		RetryAfter: retryUnavailable,
		Cause:      err,
	}
}

// Unreachable reports whether an error says that the database, as a whole, is
// away or unable: no connection, a lost one, shutdown, recovery, a standby, no
// memory or disk, a time-out. A cancelled context does not.
func Unreachable(err error) bool {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch pg.Code {
		case "25006", "57014", "57P01", "57P02", "57P03", "57P04", "57P05": // read-only, cancelled, shutdown, crash, starting up, ...
			return true
		default:
			return strings.HasPrefix(pg.Code, "08") || strings.HasPrefix(pg.Code, "53") || pg.Code == "58030" || recovering(pg)
		}
	}
	if errors.Is(err, context.Canceled) {
		return false
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	for _, gone := range []error{
		context.DeadlineExceeded, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed,
		pgconn.ErrConnClosed, puddle.ErrClosedPool, syscall.EPIPE, syscall.ECONNRESET, syscall.ECONNREFUSED,
	} {
		if errors.Is(err, gone) {
			return true
		}
	}
	return false
}
