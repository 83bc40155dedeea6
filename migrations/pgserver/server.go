package pgserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// role names the superuser and the database of the server.
const role = "leat"

// Config says where and how a server runs. Only DataDir is required.
type Config struct {
	// DataDir is created when missing. As root, except on Linux, every parent
	// must let the server's user pass (mode o+x).
	DataDir string
	// BinDir holds initdb and postgres. Default: LEAT_POSTGRES_BIN, then
	// pg_config, the usual folders (newest first) and the PATH.
	BinDir string
	// Logger gets the server's log. Default: slog.Default().
	Logger *slog.Logger
	// Settings are more server settings; they win over all others.
	Settings map[string]string
}

// Server is a running PostgreSQL server.
type Server struct {
	cfg      Config
	log      *slog.Logger
	bin      binaries
	cluster  cluster
	lock     *folderLock
	port     int
	closing  chan struct{} // closed by Stop, ends Run
	stopOnce sync.Once
	stopErr  error

	mu       sync.Mutex // guards what follows; held while the child is replaced
	child    *process
	restarts int
}

// Start runs a server on the data folder, which it makes when it is missing,
// and returns when the database accepts connections. The context bounds the
// start only, which takes long after a crash. Errors to tell apart are
// *NotFoundError, *VersionError and *LockedError.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	dir, err := filepath.Abs(cfg.DataDir)
	if err != nil {
		return nil, err
	}
	cfg.DataDir = dir
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	s := &Server{cfg: cfg, log: cfg.Logger, closing: make(chan struct{})}
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(err, s.release())
	}
	if err := s.startFirst(ctx); err != nil {
		s.stopChild(context.WithoutCancel(ctx), s.child)
		return nil, errors.Join(fmt.Errorf("start PostgreSQL %s on %s: %w", s.bin.version, dir, err), s.release())
	}
	s.log.Info("started PostgreSQL", "version", s.bin.version, "data", dir, "port", s.port, "pid", s.PID())
	return s, nil
}

// open takes the folder and makes it ready for the server.
func (s *Server) open(ctx context.Context) (err error) {
	s.cluster, err = locate(s.cfg.DataDir)
	if err != nil {
		return err
	}
	// Before anything is written: a machine without a server keeps no traces.
	s.bin, err = findBinaries(ctx, s.cfg.BinDir, s.cluster.pgdata, s.cluster.major)
	if err != nil {
		return err
	}
	if err := s.cluster.makeDir(ctx, s.bin); err != nil {
		return err
	}
	if s.lock, err = lockFolder(&s.cluster); err != nil {
		return err
	}
	if err := s.lookAgain(ctx); err != nil {
		return err
	}
	if err := s.stopOrphan(ctx); err != nil {
		return err
	}
	if err := s.lock.clean(); err != nil { // it may be root's
		s.log.Warn("socket folder of a killed owner stays", "error", err)
	}
	s.cluster.noSync = s.cfg.Settings["fsync"] == "off"
	if err := s.cluster.create(ctx, s.bin, s.log); err != nil {
		return err
	}
	if err := s.cluster.makeSocketDir(); err != nil {
		return err
	}
	return s.lock.record(s.cluster.socketDir)
}

// lookAgain sees to a folder that somebody else made while we waited to lock it.
func (s *Server) lookAgain(ctx context.Context) (err error) {
	now, err := locate(s.cfg.DataDir)
	if err != nil {
		return err
	}
	s.cluster.major = now.major
	if s.cluster.major != 0 && s.cluster.major != s.bin.major {
		s.bin, err = findBinaries(ctx, s.cfg.BinDir, s.cluster.pgdata, s.cluster.major)
	}
	return err
}

// leftovers is how long a start waits for what is left of a killed server, and
// how it finds that in the server's words: a process whose end nobody has taken
// note of yet, and backends that still hold the memory.
const leftovers = 30 * time.Second

var leftoverWords = []string{`lock file "postmaster.pid" already exists`, "pre-existing shared memory block"}

// startFirst tries a few ports, as another program may take a port between the
// moment it is found free and the moment the server binds it.
func (s *Server) startFirst(ctx context.Context) (err error) {
	deadline := time.Now().Add(leftovers)
	waited := false
	for ports := 3; ; {
		if s.port, err = freePort(ctx); err != nil {
			return err
		}
		if err = s.startChild(ctx); err == nil {
			return s.createDatabase(ctx)
		}
		said := err.Error()
		left := slices.ContainsFunc(leftoverWords, func(words string) bool { return strings.Contains(said, words) })
		switch {
		case strings.Contains(said, "Address already in use") && ports > 1:
			ports--
		case left && time.Now().Before(deadline):
			if !waited {
				s.log.Warn("waiting for the end of a PostgreSQL that was killed", "error", err)
				waited = true
			}
			if !s.pause(ctx, 250*time.Millisecond) {
				return err
			}
		default:
			return err
		}
	}
}

// URL is the libpq URL of database leat over the private socket. It stays the
// same when the server is restarted.
func (s *Server) URL() string { return s.url(role) }

func (s *Server) url(database string) string {
	query := url.Values{"host": {s.cluster.socketDir}, "port": {strconv.Itoa(s.port)}}
	return (&url.URL{Scheme: "postgres", User: url.User(role), Path: "/" + database, RawQuery: query.Encode()}).String()
}

// TCPURL is the libpq URL of database leat over the loopback port, with its
// password, for tools that run as another user.
func (s *Server) TCPURL() string {
	host := net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port))
	return (&url.URL{Scheme: "postgres", User: url.UserPassword(role, s.cluster.password), Host: host, Path: "/" + role}).String()
}

// Version is the version of the server, for example "15.14".
func (s *Server) Version() string { return s.bin.version }

// PID is the process id of the server, or of the last one if it is down.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.child.pid()
}

// Restarts counts how often the server was started again.
func (s *Server) Restarts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.restarts
}

// startChild starts the server process and waits until it accepts connections.
// The caller holds mu, or is the only one to know s.
func (s *Server) startChild(ctx context.Context) error {
	child, err := s.cluster.serve(s.bin, s.settings(ctx), s.log)
	if err != nil {
		return err
	}
	s.child = child
	return s.waitReady(ctx, child)
}

// settings are those that no file may change, then those of the caller.
func (s *Server) settings(ctx context.Context) map[string]string {
	all := map[string]string{
		"port":                    strconv.Itoa(s.port),
		"listen_addresses":        "127.0.0.1",
		"unix_socket_directories": s.cluster.socketDir,
		"unix_socket_permissions": "0700",
		"wal_level":               "logical",
		"logging_collector":       "off",
		"log_destination":         "stderr",
		"log_line_prefix":         "",
	}
	// The port is part of the socket's name, so that a restart has to keep it.
	// The server does without TCP when another program took it meanwhile.
	if !portFree(ctx, s.port) {
		s.log.Warn("loopback port of PostgreSQL is taken, serving the socket only", "port", s.port)
		all["listen_addresses"] = ""
	}
	maps.Copy(all, s.cfg.Settings)
	return all
}

// waitReady waits until the server accepts connections, which after a crash is
// when it has replayed its log.
func (s *Server) waitReady(ctx context.Context, child *process) error {
	started := time.Now()
	notice := started.Add(5 * time.Second)
	for {
		conn, err := pgx.Connect(ctx, s.url("postgres"))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for connections: %w", ctx.Err())
		case <-s.closing:
			return ErrStopped
		case <-child.exited:
			return child.failure()
		case <-time.After(20 * time.Millisecond):
		}
		if now := time.Now(); now.After(notice) {
			s.log.Info("waiting for PostgreSQL to accept connections", "since", now.Sub(started).Round(time.Second))
			notice = now.Add(10 * time.Second)
		}
	}
}

func (s *Server) createDatabase(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.url("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var exists bool
	err = conn.QueryRow(ctx, `select exists (select from pg_database where datname = $1)`, role).Scan(&exists)
	if err != nil || exists {
		return err
	}
	_, err = conn.Exec(ctx, "create database "+role)
	return err
}

// release gives the folder back.
func (s *Server) release() error {
	var errs []error
	if s.cluster.socketDir != "" {
		errs = append(errs, os.RemoveAll(s.cluster.socketDir))
	}
	if s.cluster.handle != nil {
		errs = append(errs, s.cluster.handle.Close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.release())
	}
	return errors.Join(errs...)
}

func freePort(ctx context.Context) (int, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

func portFree(ctx context.Context, port int) bool {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return l.Close() == nil
}
