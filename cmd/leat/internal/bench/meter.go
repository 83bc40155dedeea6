package bench

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/procfs"
)

// meter reads what has been spent.
type meter struct {
	pool       *pgxpool.Pool
	fs         procfs.FS
	self       procfs.Proc
	postmaster int  // 0: the server's processes cannot be seen
	readable   bool // our own can
}

const backendSQL = `-- bench.backend
select pg_backend_pid(), coalesce(host(inet_server_addr()), '127.0.0.1') in ('127.0.0.1', '::1')`

// newMeter finds the server's processes: the parent of a backend is the
// postmaster, if it is on this machine.
func newMeter(ctx context.Context, pool *pgxpool.Pool) (*meter, error) {
	m := &meter{pool: pool}
	var (
		backend int
		local   bool
	)
	if err := pool.QueryRow(ctx, backendSQL).Scan(&backend, &local); err != nil {
		return nil, err
	}
	var err error
	if m.fs, err = procfs.NewDefaultFS(); err != nil {
		return m, nil //nolint:nilerr // no /proc: CPU times are not known
	}
	m.self, err = m.fs.Self()
	m.readable = err == nil
	if local {
		m.postmaster = m.parentOf(backend)
	}
	return m, nil
}

// parentOf is the server that a backend belongs to; 0 if the number is that of
// something else, as it is when the server runs in a container.
func (m *meter) parentOf(backend int) int {
	stat, err := m.stat(backend)
	if err != nil || !isPostgres(stat.Comm) {
		return 0
	}
	parent, err := m.stat(stat.PPID)
	if err != nil || !isPostgres(parent.Comm) {
		return 0
	}
	return parent.PID
}

func (m *meter) stat(pid int) (procfs.ProcStat, error) {
	proc, err := m.fs.Proc(pid)
	if err != nil {
		return procfs.ProcStat{}, err
	}
	return proc.Stat()
}

func isPostgres(name string) bool { return name == "postgres" || name == "postmaster" }

// costs are what has been spent up to a moment, or between two.
type costs struct {
	took           time.Duration
	server, client time.Duration
	tail           time.Duration // the part of server that reads the log for tails
	wal            int64
}

func (c *costs) add(d costs) {
	c.took += d.took
	c.server += d.server
	c.client += d.client
	c.tail += d.tail
	c.wal += d.wal
}

// clock adds up what is spent between its starts and stops.
type clock struct {
	m       *meter
	running bool
	senders []int // processes of the server that read the log for tails
	at      time.Time
	began   costs
	sum     costs
}

// start is last to look at the time, and stop first, so that neither is measured.
func (c *clock) start(ctx context.Context) (err error) {
	if c.began.wal, err = c.m.wal(ctx); err != nil {
		return err
	}
	if c.senders, err = c.m.senders(ctx); err != nil {
		return err
	}
	c.began.server, c.began.client, c.began.tail = c.m.serverCPU(), c.m.clientCPU(), c.m.cpuOf(c.senders)
	c.running, c.at = true, time.Now()
	return nil
}

func (c *clock) stop(ctx context.Context) error {
	if !c.running {
		return nil
	}
	c.running = false
	spent := costs{took: time.Since(c.at)}
	spent.client = c.m.clientCPU() - c.began.client
	spent.server = c.m.serverCPU() - c.began.server
	spent.tail = max(0, c.m.cpuOf(c.senders)-c.began.tail)
	wal, err := c.m.wal(ctx)
	if err != nil {
		return err
	}
	spent.wal = wal - c.began.wal
	c.sum.add(spent)
	return nil
}

const walSQL = `-- bench.wal
select (pg_current_wal_insert_lsn() - '0/0')::bigint`

func (m *meter) wal(ctx context.Context) (bytes int64, err error) {
	err = m.pool.QueryRow(ctx, walSQL).Scan(&bytes)
	return bytes, err
}

const sendersSQL = `-- bench.senders
select pid from pg_stat_replication`

// senders are the processes that read the log for tails, if they can be seen.
func (m *meter) senders(ctx context.Context) ([]int, error) {
	if m.postmaster == 0 {
		return nil, nil
	}
	rows, err := m.pool.Query(ctx, sendersSQL)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int])
}

// cpuOf adds up the time of processes; one that has ended counts nothing.
func (m *meter) cpuOf(pids []int) (total time.Duration) {
	for _, pid := range pids {
		proc, err := m.fs.Proc(pid)
		if err != nil {
			continue
		}
		if stat, err := proc.Stat(); err == nil {
			total += running(proc, stat)
		}
	}
	return total
}

// memory is what this process has in memory, 0 if it cannot be read.
func (m *meter) memory() int64 {
	if !m.readable {
		return 0
	}
	stat, err := m.self.Stat()
	if err != nil {
		return 0
	}
	return int64(stat.ResidentMemory())
}

// serverCPU adds up the time of the server and its children, 0 if it is not
// known. Those that ended count through their parent.
func (m *meter) serverCPU() time.Duration {
	if m.postmaster == 0 {
		return 0
	}
	procs, err := m.fs.AllProcs()
	if err != nil {
		return 0
	}
	var total time.Duration
	for _, proc := range procs {
		stat, err := proc.Stat()
		switch {
		case err != nil: // it has ended
		case stat.PID == m.postmaster:
			total += running(proc, stat) + ticks(uint(stat.CUTime+stat.CSTime))
		case stat.PPID == m.postmaster:
			total += running(proc, stat)
		}
	}
	return total
}

// running is a process's time on a CPU: to the nanosecond where the kernel
// counts so, otherwise in ticks.
func running(proc procfs.Proc, stat procfs.ProcStat) time.Duration {
	if precise, err := proc.Schedstat(); err == nil {
		return time.Duration(precise.RunningNanoseconds)
	}
	return ticks(stat.UTime + stat.STime)
}

// ticks are hundredths of a second on every Linux, whatever the kernel's own.
func ticks(n uint) time.Duration { return time.Duration(n) * 10 * time.Millisecond }

func (m *meter) clientCPU() time.Duration {
	if !m.readable {
		return 0
	}
	stat, err := m.self.Stat()
	if err != nil {
		return 0
	}
	return ticks(stat.UTime + stat.STime)
}

var errNotURL = errors.New("the database must be given as a URL, of the form postgres://host/database")

// isURL tells URLs from key-value strings, in which a database cannot be named.
func isURL(dsn string) bool {
	return strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://")
}
