package replication

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"leat/eventstore"
)

const (
	// readBuffer is what one system call may bring.
	readBuffer = 64 << 10
	// flushAfter is how many messages go out together when the socket has ever more.
	flushAfter = 500
	// writeWithin bounds a status update, which fits into any socket buffer.
	writeWithin = 10 * time.Second
	// closeWithin bounds the goodbye to the server.
	closeWithin = time.Second
)

// session is a connection with a temporary slot. One goroutine owns it.
type session struct {
	tail    *Tail
	conn    *pgconn.PgConn
	decoder decoder
	slot    string
	// published is the version of the publication; "" where the decoder needs none.
	published string

	wire      io.Reader    // the connection below the buffer
	ended     func() error // says why to stop; nil until it streams
	due       time.Time    // of the next status update
	wanted    time.Time    // when it last was
	heard     time.Time    // when the server last sent something
	received  pglogrepl.LSN
	unflushed int // messages
}

// openSession connects and starts the replication.
func openSession(ctx context.Context, t *Tail, config *pgconn.Config) (_ *session, err error) {
	s := &session{tail: t, slot: "leat_" + strings.ToLower(rand.Text()[:16])}
	if s.decoder, err = newDecoder(t.cfg.Decoder); err != nil {
		return nil, err
	}
	if err := s.connect(ctx, config); err != nil {
		return nil, err
	}
	if err := s.prepare(ctx); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *session) connect(ctx context.Context, config *pgconn.Config) (err error) {
	config = config.Copy()
	maps.Copy(config.RuntimeParams, map[string]string{
		"replication":      "database",
		"application_name": "leat tail",
		// What wal2json prints depends on them.
		"timezone":  "UTC",
		"datestyle": "ISO",
	})
	dialer := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: s.tail.cfg.StatusEvery, Interval: 5 * time.Second, Count: 3,
	}}
	config.DialFunc = dialer.DialContext
	config.BuildFrontend = func(r io.Reader, w io.Writer) *pgproto3.Frontend {
		s.wire = r
		return pgproto3.NewFrontend(bufio.NewReaderSize(s, readBuffer), w)
	}
	connecting, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	if s.conn, err = pgconn.ConnectConfig(connecting, config); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	return nil
}

// prepare makes what replication needs and starts it.
func (s *session) prepare(ctx context.Context) error {
	if s.tail.cfg.Decoder == PgOutput {
		publishing, cancel := context.WithTimeout(ctx, connectWithin)
		defer cancel()
		var err error
		if s.published, err = s.publish(publishing); err != nil {
			return fmt.Errorf("make publication %s: %w", Publication, err)
		}
	}
	if err := s.createSlot(ctx); err != nil {
		return fmt.Errorf("make slot: %w", err)
	}
	starting, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	err := pglogrepl.StartReplication(starting, s.conn, s.slot, 0, pglogrepl.StartReplicationOptions{
		Mode: pglogrepl.LogicalReplication, PluginArgs: s.decoder.options(),
	})
	if err != nil {
		return fmt.Errorf("start replication: %w", err)
	}
	return nil
}

// stream passes on what comes until the connection or ctx ends, or somebody alters
// the publication.
func (s *session) stream(ctx context.Context) error {
	ctx, end := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer end(nil)
	if s.published != "" {
		watching.Go(func() { s.watchPublication(ctx, end) })
	}
	s.ended = func() error { return context.Cause(ctx) }
	s.heard, s.wanted = time.Now(), time.Now()
	// A read that waits has to end too.
	defer context.AfterFunc(ctx, func() { _ = s.conn.Conn().SetReadDeadline(time.Unix(1, 0)) })()
	if err := s.report(false); err != nil {
		return err
	}
	frontend := s.conn.Frontend()
	for {
		message, err := frontend.Receive()
		if cause := s.ended(); err != nil && cause != nil {
			return cause
		}
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		switch m := message.(type) {
		case *pgproto3.CopyData:
			err = s.take(m.Data)
		case *pgproto3.ErrorResponse:
			err = pgconn.ErrorResponseToPgError(m)
		case *pgproto3.CopyDone, *pgproto3.CommandComplete:
			err = errors.New("the server ended the replication")
		}
		if err != nil {
			return err
		}
	}
}

// take handles one message of the replication protocol.
func (s *session) take(data []byte) error {
	const (
		walHeader       = 1 + 8 + 8 + 8 // start, end, time
		keepaliveLength = 1 + 8 + 8 + 1 // end, time, reply requested
	)
	switch {
	case len(data) >= walHeader && data[0] == pglogrepl.XLogDataByteID:
		if err := s.decoder.decode(data[walHeader:], s); err != nil {
			return err
		}
		s.confirm(binary.BigEndian.Uint64(data[1:]))
		return nil
	case len(data) == keepaliveLength && data[0] == pglogrepl.PrimaryKeepaliveMessageByteID:
		s.confirm(binary.BigEndian.Uint64(data[1:]))
		if data[keepaliveLength-1] == 1 {
			return s.report(false)
		}
		return nil
	default:
		return fmt.Errorf("unknown message of the replication protocol, %d bytes: %.20q", len(data), data)
	}
}

// confirm notes how far the log was received. Nobody waits for subscribers: what
// they miss is in the table.
func (s *session) confirm(lsn uint64) {
	if s.received < pglogrepl.LSN(lsn) {
		s.received = pglogrepl.LSN(lsn)
		s.tail.received.Store(lsn)
	}
}

// report tells the server what was received.
func (s *session) report(ask bool) error {
	s.due = time.Now().Add(s.tail.cfg.StatusEvery)
	_ = s.conn.Conn().SetWriteDeadline(time.Now().Add(writeWithin)) // a write on a closed connection says so too
	received := s.received
	err := pglogrepl.SendStandbyStatusUpdate(context.Background(), s.conn, pglogrepl.StandbyStatusUpdate{
		WALWritePosition: received, WALFlushPosition: received, WALApplyPosition: received, ReplyRequested: ask,
	})
	if err != nil {
		return fmt.Errorf("send status: %w", err)
	}
	return nil
}

// Read fills the buffer of the connection. It is called when the server's messages
// so far have been handled: the moment to flush, and to keep the server informed.
func (s *session) Read(buffer []byte) (int, error) {
	if s.ended == nil {
		return s.wire.Read(buffer)
	}
	s.flush()
	for {
		if now := time.Now(); !now.Before(s.due) {
			if err := s.look(now); err != nil {
				return 0, err
			}
		}
		if err := s.conn.Conn().SetReadDeadline(s.due); err != nil {
			return 0, err
		}
		if err := s.ended(); err != nil {
			return 0, err
		}
		n, err := s.wire.Read(buffer)
		if n > 0 {
			s.heard = time.Now()
		}
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
	}
}

// look gives up a connection that is dead, or of no use, and informs the server.
func (s *session) look(now time.Time) error {
	silence := now.Sub(s.heard)
	if silence >= s.tail.cfg.Silence {
		return fmt.Errorf("the server has been silent for %v", silence.Round(time.Millisecond))
	}
	if s.tail.cfg.Wanted() {
		s.wanted = now
	} else if now.Sub(s.wanted) >= s.tail.cfg.Linger {
		return errUnwanted
	}
	return s.report(silence >= s.tail.cfg.StatusEvery)
}

// Wants asks the sink.
func (s *session) Wants(channel eventstore.ChannelID, end eventstore.Offset) bool {
	return s.tail.cfg.Sink.Wants(channel, end)
}

// Message passes a message on.
func (s *session) Message(channel eventstore.ChannelID, message *eventstore.StreamMessage) {
	s.tail.cfg.Sink.Message(channel, message)
	s.passed()
}

// Batch passes a row of copies on.
func (s *session) Batch(channel eventstore.ChannelID, first eventstore.Offset, n int) {
	s.tail.cfg.Sink.Batch(channel, first, n)
	s.passed()
}

// Wake passes a wake-up on.
func (s *session) Wake(channels ...eventstore.ChannelID) { s.tail.waker.tell(channels...) }

func (s *session) passed() {
	s.unflushed++
	if s.unflushed >= flushAfter {
		s.flush()
	}
}

func (s *session) flush() {
	if s.unflushed > 0 {
		s.unflushed = 0
		s.tail.cfg.Sink.Flush()
	}
}

// close lets the server drop the slot, and waits for it a moment. A slot that is
// being made is given up by a cancel request, which the connection sends by itself.
func (s *session) close() {
	if !s.conn.IsClosed() {
		s.leave()
	}
	closing, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	_ = s.conn.Close(closing) // it is given up either way
	select {
	case <-s.conn.CleanupDone():
	case <-closing.Done():
	}
}

// leave says goodbye and reads to the end: the server closes its side when the slot
// is gone.
func (s *session) leave() {
	wire := s.conn.Conn()
	if err := wire.SetDeadline(time.Now().Add(closeWithin)); err != nil {
		return
	}
	s.conn.Frontend().Send(&pgproto3.Terminate{})
	if s.conn.Frontend().Flush() == nil {
		_, _ = io.Copy(io.Discard, wire) // whatever is still under way
	}
}
