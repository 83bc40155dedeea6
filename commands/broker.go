package commands

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"leat/eventstore"
)

// Config says what a Broker works with. Only Pool is required.
type Config struct {
	// Pool reaches a migrated database, directly or through a transaction pooler.
	Pool *pgxpool.Pool
	// Logger gets what the broker does by itself. Default: slog.Default().
	Logger *slog.Logger
	// Limits bound requests; what is 0 has the value of DefaultLimits.
	Limits Limits
	// Announce is called after each commit that may have made messages
	// deliverable, with their channels, so that other brokers can be told. logged
	// says that those who read the write-ahead log see it there (leat.wake), as
	// after a publish. It must not block. Default: nobody is told.
	Announce func(channels []eventstore.ChannelID, logged bool)
	// Done is called after each command, whatever came of it, for those who follow the
	// log. It must not block. Default: nobody is told.
	Done func()
	// Tails reports whether this broker reads the write-ahead log itself, and so needs
	// no other word of its own publishes than Wake. Default: it does.
	Tails func() bool
}

// Broker runs commands. It is safe for concurrent use. Commands work from New
// on; what only time does (leases, delays, expiry) needs Run.
type Broker struct {
	cfg      Config
	channels channelCache
	standard *coalescer[*publishJob]   // publishes to standard queues
	fifo     *coalescer[*publishJob]   // publishes to FIFO queues, and to exchanges
	streams  []*coalescer[*publishJob] // publishes to streams, each of which belongs to one
	held     *coalescer[*publishJob]   // publishes that had to wait for a lock
	rounds   *coalescer[job]           // acks and short claims
	heldAcks *coalescer[*ackJob]       // acks that had to wait for a lock
	claims   chan struct{}             // one slot per claim by itself, so that polls leave connections to the rest

	mu          sync.Mutex
	running     int // commands under way
	closed      bool
	idle        chan struct{} // closed when closed and running is 0
	dispatchers map[eventstore.ChannelID]*dispatcher

	stopping chan struct{} // closed when closed: waiting polls end
}

// How many batches of a sort may be on their way at once. FIFO publishes have
// one, so that a broker never competes with itself for the append lock of a key, and
// so have streams in each of their lanes.
const (
	standardFlights = 2
	fifoFlights     = 1
	streamLanes     = 2
	roundFlights    = 2
	heldFlights     = 2
)

// How long a batch waits for who publishes into a stream at the moment: others that
// are in the batch wait with it, and so do all FIFO publishes.
const (
	streamPatience = 100 * time.Millisecond
	fifoPatience   = 20 * time.Millisecond
)

// Bounds of a batch, and the time after which it counts as lost.
const (
	batchWorth   = 100 // messages or receipts that pay for a commit of their own
	batchItems   = 5000
	batchBytes   = 8 << 20
	batchTimeout = 30 * time.Second
)

// New makes a broker. It does not touch the database.
func New(cfg Config) *Broker {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Announce == nil {
		cfg.Announce = func([]eventstore.ChannelID, bool) {}
	}
	if cfg.Done == nil {
		cfg.Done = func() {}
	}
	if cfg.Tails == nil {
		cfg.Tails = func() bool { return true }
	}
	cfg.Limits = cfg.Limits.withDefaults()
	b := &Broker{
		cfg:         cfg,
		channels:    channelCache{byName: map[string]channel{}},
		claims:      make(chan struct{}, max(1, cfg.Pool.Config().MaxConns/2)),
		idle:        make(chan struct{}),
		dispatchers: map[eventstore.ChannelID]*dispatcher{},
		stopping:    make(chan struct{}),
	}
	b.standard = b.newPublisher(standardFlights, batchItems, 0)
	b.fifo = b.newPublisher(fifoFlights, batchItems, fifoPatience)
	for range streamLanes {
		b.streams = append(b.streams, b.newPublisher(fifoFlights, batchItems, streamPatience))
	}
	b.held = b.newPublisher(heldFlights, 1, 0)
	b.rounds = b.newRounds()
	b.heldAcks = b.newHeldAcker()
	return b
}

// Run does what only time does, until the context ends. Then commands are
// refused with shutting_down, waiting polls are answered so too, and Run returns
// nil when every command that was under way has been answered. It is called
// once.
func (b *Broker) Run(ctx context.Context) error {
	sweeper := Sweeper{Pool: b.cfg.Pool, Logger: b.cfg.Logger, Wake: b.ready}
	relayer := Relayer{Pool: b.cfg.Pool, Logger: b.cfg.Logger, Wake: b.ready}
	var parts errgroup.Group
	parts.Go(func() error { return sweeper.Run(ctx) })
	parts.Go(func() error { return relayer.Run(ctx) })
	if err := parts.Wait(); err != nil {
		return err
	}
	b.mu.Lock()
	b.closed = true
	close(b.stopping)
	for _, d := range b.dispatchers {
		d.wake() // one that rests has nobody to serve, or to answer
	}
	if b.running == 0 {
		close(b.idle)
	}
	b.mu.Unlock()
	<-b.idle
	return nil
}

// enter counts a command in; leave counts it out.
func (b *Broker) enter() (leave func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, shuttingDown()
	}
	b.running++
	return b.leave, nil
}

func (b *Broker) leave() {
	b.cfg.Done()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running--
	if b.closed && b.running == 0 {
		close(b.idle)
	}
}

func shuttingDown() *eventstore.Error {
	e := eventstore.NewError(eventstore.ShuttingDown, "The broker is shutting down.")
	e.RetryAfter = time.Second
	return e
}

// tailing is what leat.wake need not tell.
func (b *Broker) tailing() *int {
	if b.cfg.Tails() {
		return new(1)
	}
	return nil
}

// batchContext bounds a batch. It outlives the callers, whose contexts must not
// end what others wait for.
func batchContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), batchTimeout)
}
