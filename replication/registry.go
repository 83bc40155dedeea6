package replication

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// brokerLife is how long a broker counts as alive without a sign of life.
	brokerLife = 15 * time.Second
	// aliveEvery is how often it gives one.
	aliveEvery = 5 * time.Second
	// aliveWithin bounds one.
	aliveWithin = 4 * time.Second
)

// Registry enters the broker into leat.brokers, and knows which others there are.
type Registry struct {
	id     string
	pool   *pgxpool.Pool
	tail   *Tail
	logger *slog.Logger

	mu     sync.Mutex
	known  time.Time // when the others were last looked at
	wal    bool      // another broker reads the write-ahead log
	notify bool      // another broker listens
}

// NewRegistry returns a registry for a broker with this id and tail.
func NewRegistry(pool *pgxpool.Pool, id string, tail *Tail, logger *slog.Logger) *Registry {
	return &Registry{id: id, pool: pool, tail: tail, logger: logger}
}

// Others reports whether another broker of this mode is alive. It is true while
// nobody knows.
func (r *Registry) Others(mode Mode) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.known) > brokerLife {
		return true
	}
	if mode == ModeWAL {
		return r.wal
	}
	return r.notify
}

// Run gives signs of life until ctx ends, and then takes the broker out. A change of
// the mode is told at once.
func (r *Registry) Run(ctx context.Context) error {
	failing := false
	for ctx.Err() == nil {
		state, changed := r.tail.Watch()
		err := r.renew(ctx, state)
		if ctx.Err() == nil && (err != nil) != failing {
			failing = err != nil
			if failing {
				r.logger.Warn("give a sign of life to other brokers", "error", err)
			}
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-time.After(aliveEvery):
		}
	}
	return r.leave(context.WithoutCancel(ctx))
}

// The table is unlogged: the entry may be gone at any time. Those of brokers that
// died are removed by whoever comes next.
const renewSQL = `-- replication.renew
with gone as (
    delete from leat.brokers b
    using (
        select d.id
        from leat.brokers d
        where d.until < clock_timestamp() - interval '1 minute'
          and d.id <> $1
        for update skip locked
    ) d
    where b.id = d.id
), own as (
    insert into leat.brokers as b (id, tail, reason, since, until)
    values ($1, $2, nullif($3, ''), $4, clock_timestamp() + $5::interval)
    on conflict (id) do update
    set tail = excluded.tail,
        reason = excluded.reason,
        since = excluded.since,
        until = excluded.until
)
select coalesce(bool_or(b.tail = 'wal'), false),
       coalesce(bool_or(b.tail = 'notify'), false)
from leat.brokers b
where b.id <> $1
  and b.until > clock_timestamp()`

func (r *Registry) renew(ctx context.Context, state State) error {
	renewing, cancel := context.WithTimeout(ctx, aliveWithin)
	defer cancel()
	var wal, notify bool
	err := r.pool.QueryRow(renewing, renewSQL, r.id, string(state.Mode), state.Reason, state.Since, brokerLife).Scan(&wal, &notify)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known, r.wal, r.notify = time.Now(), wal, notify
	return nil
}

const leaveSQL = `-- replication.leave
delete from leat.brokers
where id = $1`

// leave takes the broker out. If that cannot be done its entry runs out.
func (r *Registry) leave(ctx context.Context) error {
	leaving, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if _, err := r.pool.Exec(leaving, leaveSQL, r.id); err != nil {
		r.logger.Debug("take the broker out of leat.brokers", "error", err)
	}
	return nil
}
