package dbtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"leat/migrations"
	"leat/migrations/pgserver"
)

// URLEnv names the environment variable with the server to use for tests.
const URLEnv = "LEAT_TEST_DATABASE_URL"

// patience bounds what is done without a test's own deadline.
const patience = 2 * time.Minute

// shared is what the tests of this binary use together.
var shared environment

type environment struct {
	functions []fs.FS

	once     sync.Once
	err      error
	server   *pgserver.Server // nil when URLEnv is set
	dir      string
	admin    *pgxpool.Pool // on a database that is not the template
	template string
}

// Main runs the tests of a binary and returns its exit code. The functions are
// those that migrations.Run gets. It is called once, from TestMain.
func Main(m *testing.M, functions ...fs.FS) int {
	return MainIgnoring(m, nil, functions...)
}

// MainIgnoring is Main where a library leaves goroutines over.
func MainIgnoring(m *testing.M, goroutines []goleak.Option, functions ...fs.FS) int {
	shared.functions = functions
	code := m.Run()
	err := shared.close()
	if err == nil && code == 0 {
		err = goleak.Find(goroutines...)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "dbtest:", err)
		return 1
	}
	return code
}

// New gives the test a migrated database of its own, which is dropped at the
// end of the test, whoever is connected to it then.
func New(t testing.TB) *pgxpool.Pool {
	t.Helper()
	require.NoError(t, shared.open(), "start the test server")
	return shared.clone(t, shared.template)
}

// NewEmpty gives the test a database that was not migrated.
func NewEmpty(t testing.TB) *pgxpool.Pool {
	t.Helper()
	require.NoError(t, shared.open(), "start the test server")
	return shared.clone(t, "template0")
}

// NewURL is New for tests that also connect by themselves.
func NewURL(t testing.TB) (*pgxpool.Pool, string) {
	t.Helper()
	pool := New(t)
	return pool, URL(pool)
}

// URL is the libpq URL of the database of a pool that New gave.
func URL(pool *pgxpool.Pool) string { return pool.Config().ConnString() }

// open starts the server and makes the template, once.
func (e *environment) open() error {
	e.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		e.err = e.start(ctx)
	})
	return e.err
}

func (e *environment) start(ctx context.Context) (err error) {
	address := os.Getenv(URLEnv)
	if address == "" {
		if e.dir, err = makeFolder(inMemory()); err != nil {
			return err
		}
		if e.server, err = pgserver.Start(ctx, config(e.dir, sharedSettings)); err != nil {
			return err
		}
		address = e.server.URL()
	}
	if e.admin, err = pgxpool.New(ctx, address); err != nil {
		return err
	}
	e.template = newName()
	if err := e.create(ctx, e.template, "template0"); err != nil {
		return err
	}
	pool, err := e.connect(ctx, e.template)
	if err != nil {
		return err
	}
	// A template must have no sessions while it is cloned.
	defer pool.Close()
	if _, err := migrations.Run(ctx, pool, e.functions...); err != nil {
		return fmt.Errorf("migrate the template: %w", err)
	}
	return nil
}

// close stops the server, or leaves the one it was given as it was.
func (e *environment) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var errs []error
	if e.admin != nil {
		if e.server == nil {
			errs = append(errs, e.drop(ctx, e.template))
		}
		e.admin.Close()
	}
	if e.server != nil {
		errs = append(errs, e.server.Stop(ctx))
	}
	if e.dir != "" {
		errs = append(errs, os.RemoveAll(e.dir))
	}
	return errors.Join(errs...)
}

func (e *environment) clone(t testing.TB, template string) *pgxpool.Pool {
	t.Helper()
	name := newName()
	require.NoError(t, e.create(t.Context(), name, template))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(t, e.drop(ctx, name))
	})
	pool, err := e.connect(t.Context(), name)
	require.NoError(t, err)
	t.Cleanup(func() { closePool(t, pool) })
	return pool
}

// create makes a database. Both strategies take 30 ms here; file_copy makes two
// checkpoints, for which parallel tests would wait.
func (e *environment) create(ctx context.Context, name, template string) error {
	_, err := e.admin.Exec(ctx, fmt.Sprintf(
		"create database %s template %s strategy wal_log encoding 'UTF8' locale 'C'", name, template))
	return err
}

// drop drops a database. One with logical slots cannot be dropped by force alone:
// those who read from them have to go first.
func (e *environment) drop(ctx context.Context, name string) error {
	for {
		_, err := e.admin.Exec(ctx, fmt.Sprintf("drop database if exists %s with (force)", name))
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != "55006" || ctx.Err() != nil {
			return err
		}
		if _, err := e.admin.Exec(ctx, "select pg_terminate_backend(active_pid) from pg_replication_slots where database = $1", name); err != nil {
			return err
		}
	}
}

// connect opens a pool on another database of the server.
func (e *environment) connect(ctx context.Context, database string) (*pgxpool.Pool, error) {
	address, err := url.Parse(e.admin.Config().ConnString())
	if err != nil {
		return nil, err
	}
	address.Path = "/" + database
	config, err := pgxpool.ParseConfig(address.String())
	if err != nil {
		return nil, err
	}
	config.MaxConns = 10
	return pgxpool.NewWithConfig(ctx, config)
}

// closePool closes a pool, which waits for the connections that are in use, and
// fails the test instead of waiting for ever for one that it forgot to release.
func closePool(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	closed := make(chan struct{})
	go func() {
		pool.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Errorf("the test still holds %d connections of its pool", pool.Stat().AcquiredConns())
	}
}

// newName is a database name that needs no quotes.
func newName() string { return "leat_test_" + strings.ToLower(rand.Text()[:12]) }
