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
	// Commits of this long share one transaction: that of NOTIFY takes a lock which
	// is database-wide.
	debounce = 5 * time.Millisecond
	// A payload stays below NOTIFY's 8,000 bytes: ids have at most 10 digits.
	idsPerNotification = 700
)

// Announcer tells other brokers which channels have new messages, outside the
// transactions that put them there. It tells each in the way in which it hears, and
// nobody if there is nobody.
type Announcer struct {
	pool     *pgxpool.Pool
	logger   *slog.Logger
	registry *Registry
	fresh    *gathered // what the write-ahead log does not tell by itself
	logged   *gathered // what it does tell
}

// NewAnnouncer returns an announcer that sends through pool once it runs. Without a
// registry it takes it that there are brokers of both modes.
func NewAnnouncer(pool *pgxpool.Pool, registry *Registry, logger *slog.Logger) *Announcer {
	return &Announcer{pool: pool, registry: registry, logger: logger, fresh: newGathered(), logged: newGathered()}
}

// Announce notes channels for the next announcement and returns at once. logged says
// that brokers which read the write-ahead log know already.
func (a *Announcer) Announce(channels []eventstore.ChannelID, logged bool) {
	switch {
	case !logged:
		a.fresh.add(channels)
	case a.others(ModeNotify):
		a.logged.add(channels)
	}
}

// Run announces until ctx ends. What cannot be sent is logged and given up: the
// other brokers look by themselves every second.
func (a *Announcer) Run(ctx context.Context) error {
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() {
		a.logged.each(ctx, debounce, func(channels []eventstore.ChannelID) { a.send(ctx, channels, false) })
	})
	a.fresh.each(ctx, debounce, func(channels []eventstore.ChannelID) { a.send(ctx, channels, a.others(ModeWAL)) })
	return nil
}

func (a *Announcer) others(mode Mode) bool { return a.registry == nil || a.registry.Others(mode) }

const announceSQL = `-- replication.announce
select case when $2 then pg_notify('leat', $1)::text end,
       case when $3 then pg_logical_emit_message(true, 'leat', $1)::text end`

func (a *Announcer) send(ctx context.Context, channels []eventstore.ChannelID, log bool) {
	notify := a.others(ModeNotify)
	if !notify && !log {
		return
	}
	for ids := range slices.Chunk(channels, idsPerNotification) {
		sending, cancel := context.WithTimeout(ctx, time.Second)
		_, err := a.pool.Exec(sending, announceSQL, join(ids), notify, log)
		cancel()
		if err != nil && ctx.Err() == nil {
			a.logger.Debug("announce channels", "error", err)
		}
	}
}

func join(channels []eventstore.ChannelID) string {
	texts := make([]string, len(channels))
	for i, id := range channels {
		texts[i] = strconv.FormatInt(int64(id), 10)
	}
	return strings.Join(texts, ",")
}
