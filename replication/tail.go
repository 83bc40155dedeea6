package replication

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"leat/eventstore"
)

// TailConfig says what a Tail works with. URL, Pool and Wake are required.
type TailConfig struct {
	// URL must lead to PostgreSQL itself: there is no replication through a pooler.
	URL string
	// Pool is asked whom the slot waits for.
	Pool *pgxpool.Pool
	// Decoder is PgOutput or Wal2JSON. Default: PgOutput.
	Decoder string
	// Off leaves the write-ahead log alone.
	Off bool
	// Wanted reports whether there is use for the write-ahead log. PostgreSQL decodes
	// all of it for each tail, which queues alone are not worth. Default: always.
	Wanted func() bool
	// Sink gets the messages of streams. Default: Silent.
	Sink Sink
	// Wake is told the channels that have new messages; none means any.
	Wake func(channels ...eventstore.ChannelID)
	// Fallback runs while the mode is ModeNotify: Listener.Run. Default: nothing.
	Fallback func(ctx context.Context) error
	// Logger gets changes of the mode and interruptions. Default: slog.Default().
	Logger *slog.Logger

	// StatusEvery is how often the server is told what was received, 10 s by
	// default. After a silence of this long it is asked for an answer.
	StatusEvery time.Duration
	// Silence is after how long without an answer a connection is given up, 30 s by
	// default.
	Silence time.Duration
	// PublicationEvery is how often it looks whether somebody altered the publication,
	// 2 s by default.
	PublicationEvery time.Duration
	// Patience is how long it may be without a slot before the mode changes. Default: 2 s.
	Patience time.Duration
	// Linger is how long it reads on when that is not wanted any more. Default: 1 min.
	Linger time.Duration
	// RetryEvery is how often it tries again for what does not pass by itself. Default: 30 s.
	RetryEvery time.Duration
}

func (c TailConfig) withDefaults() TailConfig {
	c.Decoder = orDefault(c.Decoder, PgOutput)
	c.StatusEvery = orDefault(c.StatusEvery, 10*time.Second)
	c.Silence = orDefault(c.Silence, 30*time.Second)
	c.PublicationEvery = orDefault(c.PublicationEvery, 2*time.Second)
	c.Patience = orDefault(c.Patience, 2*time.Second)
	c.Linger = orDefault(c.Linger, time.Minute)
	c.RetryEvery = orDefault(c.RetryEvery, 30*time.Second)
	c.Logger = orDefault(c.Logger, slog.Default())
	if c.Wanted == nil {
		c.Wanted = func() bool { return true }
	}
	if c.Sink == nil {
		c.Sink = Silent{}
	}
	if c.Fallback == nil {
		c.Fallback = func(ctx context.Context) error {
			<-ctx.Done()
			return nil
		}
	}
	return c
}

func orDefault[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}

// Tail reads the end of the write-ahead log, by a temporary logical slot of its
// own, for as long as there is one to be had. Otherwise its Fallback runs.
type Tail struct {
	cfg   TailConfig
	waker *waker

	received atomic.Uint64 // of State.Received

	mu      sync.Mutex
	state   State
	changed chan struct{} // closed when state changes
	away    *time.Timer   // since the slot was lost
}

// NewTail returns a tail that begins with Run.
func NewTail(cfg TailConfig) *Tail {
	cfg = cfg.withDefaults()
	t := &Tail{
		cfg:     cfg,
		waker:   newWaker(cfg.Wake),
		state:   State{Mode: ModeNotify, Since: time.Now(), Decoder: cfg.Decoder, Reason: "the broker is starting"},
		changed: make(chan struct{}),
	}
	if cfg.Off {
		t.state.Reason = "switched off by the setting tail"
	}
	return t
}

// Run reads until ctx ends, beginning anew as often as needed. It returns an error
// only if the configuration cannot be used, or if that of the fallback cannot.
func (t *Tail) Run(ctx context.Context) error {
	config, err := pgconn.ParseConfig(t.cfg.URL)
	if err != nil {
		return fmt.Errorf("parse URL of the tail: %w", err)
	}
	if _, err := newDecoder(t.cfg.Decoder); err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer stop()
	group.Go(func() { t.waker.run(running) })
	if !t.cfg.Off {
		group.Go(func() { t.read(running, config) })
	}
	return t.fallBack(running)
}

// read holds a session, and opens another one when it has ended.
func (t *Tail) read(ctx context.Context, config *pgconn.Config) {
	delay := reconnectMin
	for t.awaitWanted(ctx) {
		began := time.Now()
		lasting := t.session(ctx, config)
		if time.Since(began) > reconnectMax {
			delay = reconnectMin
		}
		pause := delay/2 + rand.N(delay) // so that brokers do not come all at once
		if lasting {
			pause = t.cfg.RetryEvery/2 + rand.N(t.cfg.RetryEvery)
		}
		delay = min(2*delay, reconnectMax)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.away != nil {
		t.away.Stop()
	}
}

// session reads with one slot, to its end. lasting says that there will be none soon.
func (t *Tail) session(ctx context.Context, config *pgconn.Config) (lasting bool) {
	s, err := openSession(ctx, t, config)
	if err != nil {
		if ctx.Err() == nil {
			t.unable(err)
		}
		return isLasting(err)
	}
	defer s.close()
	t.live(s.slot)
	t.cfg.Sink.Live()
	t.waker.tell() // it cannot know what it missed
	err = s.stream(ctx)
	t.cfg.Sink.Interrupted()
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, errUnwanted):
		s.close() // first: who is told that it rests finds no slot
		t.rest()
	default:
		t.cfg.Logger.Warn("tail of the write-ahead log interrupted, connecting again", "error", err)
		t.lost(reasonOf(err))
	}
	return false
}

// unable tells, once, what will not pass soon.
func (t *Tail) unable(err error) {
	if t.missing(reasonOf(err)) && isLasting(err) {
		t.cfg.Logger.Warn("no tail of the write-ahead log: wake-ups and streams come by LISTEN and polling",
			"reason", err, "again_in", t.cfg.RetryEvery)
		return
	}
	t.cfg.Logger.Debug("open the tail of the write-ahead log", "error", err)
}

// reasonOf says what is wrong in the words of the server, if it is the server's.
func reasonOf(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Message
	}
	return err.Error()
}
