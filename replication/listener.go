package replication

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"leat/eventstore"
)

const (
	notifyChannel = "leat"
	proveEvery    = 15 * time.Second
	proveWithin   = 5 * time.Second
	connectWithin = 10 * time.Second // until it listens; a way may be dead without a word
	reconnectMin  = 100 * time.Millisecond
	reconnectMax  = 5 * time.Second
)

// Listener hears wake-ups of one database.
type Listener struct {
	// URL must lead to PostgreSQL itself: LISTEN does not work through a
	// transaction pooler.
	URL    string
	Logger *slog.Logger
	// Wake is told the channels that have new messages; none means any.
	Wake func(channels ...eventstore.ChannelID)
	// ProveEvery is the silence after which the connection proves itself or is
	// replaced. Default: 15 s.
	ProveEvery time.Duration
}

// Run listens until ctx ends, connecting again as often as needed. It returns an
// error only if the URL cannot be parsed.
func (l *Listener) Run(ctx context.Context) error {
	config, err := pgx.ParseConfig(l.URL)
	if err != nil {
		return fmt.Errorf("parse listener URL: %w", err)
	}
	config.RuntimeParams["application_name"] = "leat listener"
	delay, interrupted := reconnectMin, false
	for ctx.Err() == nil {
		began := time.Now()
		err := l.listen(ctx, config, interrupted)
		if time.Since(began) > reconnectMax {
			delay = reconnectMin
		}
		if ctx.Err() == nil {
			l.Logger.Warn("wake-ups interrupted, connecting again", "error", err, "in", delay)
			interrupted = true
		}
		select {
		case <-ctx.Done():
		case <-time.After(delay):
		}
		delay = min(2*delay, reconnectMax)
	}
	return nil
}

func (l *Listener) listen(ctx context.Context, config *pgx.ConnConfig, interrupted bool) error {
	conn, err := connect(ctx, config)
	if err != nil {
		return err
	}
	defer closeConn(ctx, conn)
	if interrupted {
		l.Logger.Info("wake-ups are back")
	}
	l.Wake() // it cannot know what it missed
	for {
		heard, err := wait(ctx, conn, cmp.Or(l.ProveEvery, proveEvery))
		if err != nil {
			return err
		}
		if heard == "" {
			if heard, err = prove(ctx, conn); err != nil {
				return err
			}
		}
		if channels := parseChannels(heard); len(channels) > 0 {
			l.Wake(channels...)
		}
	}
}

// connect opens a connection that listens.
func connect(ctx context.Context, config *pgx.ConnConfig) (*pgx.Conn, error) {
	connecting, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	conn, err := pgx.ConnectConfig(connecting, config)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(connecting, "listen "+notifyChannel); err != nil {
		closeConn(ctx, conn)
		return nil, fmt.Errorf("listen: %w", err)
	}
	return conn, nil
}

func closeConn(ctx context.Context, conn *pgx.Conn) {
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = conn.Close(closing) // it is given up either way
}

// prove sends a notification through the server to ourselves: a socket that died
// without a word shows itself only when it is used.
func prove(ctx context.Context, conn *pgx.Conn) (string, error) {
	sending, cancel := context.WithTimeout(ctx, proveWithin)
	defer cancel()
	if _, err := conn.Exec(sending, "select pg_notify($1, $2)", notifyChannel, strconv.FormatUint(uint64(conn.PgConn().PID()), 10)+"?"); err != nil {
		return "", fmt.Errorf("send proof: %w", err)
	}
	heard, err := wait(ctx, conn, proveWithin)
	if err == nil && heard == "" {
		err = errors.New("own notification did not come back")
	}
	return heard, err
}

// wait returns the payload of the next notification, "" after timeout.
func wait(ctx context.Context, conn *pgx.Conn, timeout time.Duration) (string, error) {
	waiting, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	notification, err := conn.WaitForNotification(waiting)
	if err != nil {
		if ctx.Err() == nil && errors.Is(waiting.Err(), context.DeadlineExceeded) && !conn.IsClosed() {
			return "", nil
		}
		return "", err
	}
	return notification.Payload, nil
}

// parseChannels reads "1,2,3"; what is not a channel id (a proof, somebody else's
// text) wakes nobody.
func parseChannels(payload string) []eventstore.ChannelID {
	var channels []eventstore.ChannelID
	for field := range strings.SplitSeq(payload, ",") {
		if id, err := strconv.ParseInt(field, 10, 32); err == nil {
			channels = append(channels, eventstore.ChannelID(id))
		}
	}
	return channels
}
