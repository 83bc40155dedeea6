package replication

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"leat/eventstore"
)

const (
	// Commits of this long share one NOTIFY, whose commit lock is database-wide.
	debounce = 5 * time.Millisecond
	// A payload stays below NOTIFY's 8,000 bytes: ids have at most 10 digits.
	idsPerNotification = 700
)

// Announcer tells other brokers which channels have new messages, outside the
// transactions that put them there.
type Announcer struct {
	pool   *pgxpool.Pool
	logger *slog.Logger

	mu      sync.Mutex
	pending map[eventstore.ChannelID]struct{}
	wake    chan struct{}
}

// NewAnnouncer returns an announcer that sends through pool once it runs.
func NewAnnouncer(pool *pgxpool.Pool, logger *slog.Logger) *Announcer {
	return &Announcer{
		pool:    pool,
		logger:  logger,
		pending: map[eventstore.ChannelID]struct{}{},
		wake:    make(chan struct{}, 1),
	}
}

// Announce notes channels for the next notification and returns at once.
func (a *Announcer) Announce(channels []eventstore.ChannelID) {
	a.mu.Lock()
	for _, id := range channels {
		a.pending[id] = struct{}{}
	}
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default: // a notification is due already
	}
}

// Run sends notifications until ctx ends. One that cannot be sent is logged and
// given up: the other brokers look by themselves every second.
func (a *Announcer) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.wake:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(debounce):
		}
		for ids := range slices.Chunk(a.take(), idsPerNotification) {
			if err := a.send(ctx, ids); err != nil && ctx.Err() == nil {
				a.logger.Debug("announce channels", "error", err)
			}
		}
	}
}

func (a *Announcer) take() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	ids := make([]string, 0, len(a.pending))
	for id := range a.pending {
		ids = append(ids, strconv.FormatInt(int64(id), 10))
	}
	clear(a.pending)
	return ids
}

const announceSQL = `-- replication.announce
select pg_notify('leat', $1)`

func (a *Announcer) send(ctx context.Context, ids []string) error {
	sending, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := a.pool.Exec(sending, announceSQL, strings.Join(ids, ","))
	return err
}
