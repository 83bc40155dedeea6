package replication

import (
	"errors"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
)

// Mode is how a broker hears of the commits of others.
type Mode string

// The modes of a broker.
const (
	ModeWAL    Mode = "wal"    // it reads the write-ahead log
	ModeNotify Mode = "notify" // it listens, and looks by itself every second
)

// State is how a tail is.
type State struct {
	Mode    Mode
	Since   time.Time // in this mode
	Decoder string
	// Reason says why it does not read the write-ahead log now; "" when it does. It
	// may be set for a moment in mode wal: connecting again takes less than a change
	// of the mode.
	Reason     string
	Slot       string        // "" while it has none
	Received   pglogrepl.LSN // and confirmed; 0 before the first slot
	Reconnects int           // how often it lost a slot that worked
}

// live notes that the write-ahead log is being read.
func (t *Tail) live(slot string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.away != nil {
		t.away.Stop()
		t.away = nil
		if t.state.Mode == ModeWAL { // what turn does not tell
			t.cfg.Logger.Info("the tail of the write-ahead log is back", "slot", slot)
		}
	}
	t.state.Slot, t.state.Reason = slot, ""
	t.turn(ModeWAL)
}

// lost notes that a slot which worked is gone. Coming back at once is no change of
// the mode.
func (t *Tail) lost(reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.state.Slot, t.state.Reason = "", reason
	t.state.Reconnects++
	t.away = time.AfterFunc(t.cfg.Patience, t.giveUp)
	t.announce()
}

// giveUp changes to listening, unless the tail has come back.
func (t *Tail) giveUp() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state.Slot == "" {
		t.turn(ModeNotify)
	}
}

// missing notes why there is no slot, and reports whether that is news.
func (t *Tail) missing(reason string) (news bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state.Reason == reason {
		return false
	}
	t.state.Reason = reason
	t.announce()
	return true
}

// turn changes the mode. The caller holds mu.
func (t *Tail) turn(mode Mode) {
	if t.state.Mode != mode {
		t.state.Mode, t.state.Since = mode, time.Now()
		switch {
		case mode == ModeWAL:
			t.cfg.Logger.Info("wake-ups and streams come from the write-ahead log now", "slot", t.state.Slot, "decoder", t.cfg.Decoder)
		case t.state.Reason == errUnwanted.Error():
			t.cfg.Logger.Info("the tail of the write-ahead log rests", "reason", t.state.Reason)
		default:
			t.cfg.Logger.Warn("wake-ups and streams come by LISTEN and polling now", "reason", t.state.Reason)
		}
	}
	t.announce()
}

// announce tells those who watch. The caller holds mu.
func (t *Tail) announce() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// Watch is the state now, and a channel that is closed when another mode or reason
// holds.
func (t *Tail) Watch() (State, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	state := t.state
	state.Received = pglogrepl.LSN(t.received.Load())
	return state, t.changed
}

// State is how the tail is now.
func (t *Tail) State() State {
	state, _ := t.Watch()
	return state
}

// lastingCodes are the SQLSTATEs of what does not pass by itself soon.
var lastingCodes = map[string]bool{
	"0A000": true, // feature_not_supported
	"22023": true, // invalid_parameter_value: an older plugin, or another one of that name
	"28000": true, // invalid_authorization_specification: no entry in pg_hba.conf
	"28P01": true, // invalid_password
	"42501": true, // insufficient_privilege: no REPLICATION, or not allowed to make the publication
	"42704": true, // undefined_object
	"53300": true, // too_many_connections: max_wal_senders
	"53400": true, // configuration_limit_exceeded: max_replication_slots
	"55000": true, // object_not_in_prerequisite_state: wal_level
	"58P01": true, // undefined_file: no such plugin
}

func isLasting(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && lastingCodes[pg.Code]
}
