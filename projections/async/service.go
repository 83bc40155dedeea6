package async

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Config says how projections follow the log.
type Config struct {
	Pool        *pgxpool.Pool
	Logger      *slog.Logger  // default slog.Default()
	Projections []Projection  // default All()
	BatchSize   int           // positions of the log in one transaction; default 5000
	Gather      time.Duration // between two looks of a projection that is up to date; default 250 ms
	Look        time.Duration // without a wake-up; default 1 s
	Off         bool          // take no batches: another broker does, and this one only passes on what people ask for

	mostWait time.Duration // after errors; default 5 s

	onStep func(ctx context.Context, tx pgx.Tx, step string) error // of tests
}

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Projections == nil {
		c.Projections = All()
	}
	if c.BatchSize == 0 {
		c.BatchSize = 5000
	}
	if c.Gather == 0 {
		c.Gather = 250 * time.Millisecond
	}
	if c.Look == 0 {
		c.Look = time.Second
	}
	if c.mostWait == 0 {
		c.mostWait = 5 * time.Second
	}
	return c
}

// Service keeps the projections of a database. Any number of brokers may run one.
type Service struct {
	cfg  Config
	poke chan struct{} // somebody here changed what is to run

	mu      sync.Mutex
	runners map[generation]*runner
}

// generation names one.
type generation struct {
	projection string
	number     int
}

// New returns a service that keeps them once it runs.
func New(cfg Config) *Service {
	return &Service{cfg: cfg.withDefaults(), poke: make(chan struct{}, 1), runners: map[generation]*runner{}}
}

// Wake tells that something was committed.
func (s *Service) Wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.runners {
		signal(r.wake)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run keeps the projections until ctx ends. It outlives the database being away.
func (s *Service) Run(ctx context.Context) error {
	if s.cfg.Off {
		<-ctx.Done()
		return nil
	}
	var group sync.WaitGroup
	defer group.Wait()
	declared := false
	for wait := time.Duration(0); ; {
		err := s.supervise(ctx, &group, &declared)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && wait == 0 {
			s.cfg.Logger.Warn("look after projections", "error", err)
		}
		rest := s.cfg.Look
		if err == nil {
			wait = 0
		} else { // soon: until then nothing runs that is to run
			wait = min(max(leastWait, 2*wait), s.cfg.mostWait)
			rest = min(wait, rest)
		}
		s.rest(ctx, rest)
	}
}

// rest waits until it is time to look again.
func (s *Service) rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-s.poke:
	}
}

// supervise starts what is to run and does not yet, and removes what was retired.
func (s *Service) supervise(ctx context.Context, group *sync.WaitGroup, declared *bool) error {
	if !*declared {
		if err := s.declare(ctx); err != nil {
			return err
		}
		*declared = true
	}
	states, err := s.states(ctx)
	if err != nil {
		return err
	}
	for _, st := range states {
		p := s.find(st.Name)
		switch {
		case p == nil:
		case st.State == "retired":
			if err := s.remove(ctx, p, st.Generation); err != nil {
				return err
			}
		case st.Version == p.Version():
			s.start(ctx, group, p, st.Generation)
		}
	}
	return nil
}

const declareSQL = `-- async.declare
select leat.declare_projection($1, $2)`

func (s *Service) declare(ctx context.Context) error {
	for _, p := range s.cfg.Projections {
		if _, err := s.cfg.Pool.Exec(ctx, declareSQL, p.Name(), p.Version()); err != nil {
			return err
		}
	}
	return nil
}

// state is a generation, as the database has it.
type state struct {
	Name       string
	Generation int
	Version    int
	State      string
}

const statesSQL = `-- async.states
select p.name,
       p.generation,
       p.version,
       p.state
from leat.projections p
order by p.name, p.generation`

func (s *Service) states(ctx context.Context) ([]state, error) {
	rows, err := s.cfg.Pool.Query(ctx, statesSQL)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[state])
}

func (s *Service) find(name string) Projection {
	for _, p := range s.cfg.Projections {
		if p.Name() == name {
			return p
		}
	}
	return nil
}

// start runs a generation, unless it runs already.
func (s *Service) start(ctx context.Context, group *sync.WaitGroup, p Projection, number int) {
	key := generation{p.Name(), number}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, runs := s.runners[key]; runs {
		return
	}
	r := &runner{
		Config: s.cfg, pool: s.cfg.Pool, logger: s.cfg.Logger, projection: p, generation: number,
		wake: make(chan struct{}, 1), size: s.cfg.BatchSize,
	}
	s.runners[key] = r
	group.Go(func() {
		if err := r.run(ctx); err != nil {
			s.cfg.Logger.Error("projection ended", "projection", p.Name(), "generation", number, "error", err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.runners, key)
	})
}

const (
	lockRetiredSQL = `-- async.lockRetired
select
from leat.projections p
where p.name = $1
  and p.generation = $2
  and p.state = 'retired'
for update skip locked`
	forgetSQL = `-- async.forget
delete from leat.projections p
where p.name = $1
  and p.generation = $2
  and p.state = 'retired'`
)

// remove removes some rows of a generation that nobody reads any more, and at last
// itself.
func (s *Service) remove(ctx context.Context, p Projection, number int) error {
	for more := true; more; {
		err := pgx.BeginFunc(ctx, s.cfg.Pool, func(tx pgx.Tx) error {
			tag, err := tx.Exec(ctx, lockRetiredSQL, p.Name(), number)
			if err != nil || tag.RowsAffected() == 0 {
				more = false // somebody else does it
				return err
			}
			removed, err := p.Drop(ctx, tx, number)
			if err != nil || removed > 0 {
				return err
			}
			more = false
			_, err = tx.Exec(ctx, forgetSQL, p.Name(), number)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
