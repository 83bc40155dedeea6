package pgserver_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"leat/migrations/dbtest"
	"leat/migrations/pgserver"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(helperEnv); dir != "" {
		os.Exit(helper(dir))
	}
	goleak.VerifyTestMain(m)
}

func config(dir string) pgserver.Config {
	return pgserver.Config{
		DataDir:  dir,
		Logger:   slog.New(slog.DiscardHandler),
		Settings: map[string]string{"fsync": "off", "shared_buffers": "16MB"},
	}
}

// tempDir is open to the user that the server runs as, unlike t.TempDir.
func tempDir(t *testing.T) string {
	t.Helper()
	dir := dbtest.Folder(t)
	require.NoError(t, os.Chmod(dir, 0o755))
	return dir
}

func start(t *testing.T, cfg pgserver.Config) *pgserver.Server {
	t.Helper()
	s, err := pgserver.Start(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop(context.Background())) })
	return s
}

// ask runs a query that gives one text.
func ask(ctx context.Context, address, query string) (answer string, err error) {
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	err = conn.QueryRow(ctx, query).Scan(&answer)
	return answer, err
}

// keepWord stores what requireWord finds again.
func keepWord(t *testing.T, address string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "create table kept as select 'here' as word")
	require.NoError(t, errors.Join(err, conn.Close(t.Context())))
}

func requireWord(t *testing.T, address string) {
	t.Helper()
	word, err := ask(t.Context(), address, "select word from kept")
	require.NoError(t, err)
	require.Equal(t, "here", word)
}

func alive(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

func TestAccess(t *testing.T) {
	t.Parallel()
	s := start(t, config(tempDir(t)+"/data/postgres"))

	who, err := ask(t.Context(), s.URL(), "select current_user || '@' || current_database()")
	require.NoError(t, err)
	require.Equal(t, "leat@leat", who)
	level, err := ask(t.Context(), s.URL(), "show wal_level")
	require.NoError(t, err)
	require.Equal(t, "logical", level)

	_, err = ask(t.Context(), s.TCPURL(), "select 'in'")
	require.NoError(t, err, "the loopback port takes the password")
	wrong, err := url.Parse(s.TCPURL())
	require.NoError(t, err)
	wrong.User = url.UserPassword("leat", "wrong")
	_, err = ask(t.Context(), wrong.String(), "select 'in'")
	require.ErrorContains(t, err, "password authentication failed")

	socket, err := url.Parse(s.URL())
	require.NoError(t, err)
	info, err := os.Stat(socket.Query().Get("host"))
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o700), info.Mode().Perm())
	require.NoError(t, s.Stop(t.Context()))
	require.NoDirExists(t, socket.Query().Get("host"))
	require.False(t, alive(s.PID()))
}

func TestDataAndOwnSettingsSurvive(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	s := start(t, config(dir))
	keepWord(t, s.URL())
	require.NoError(t, s.Stop(t.Context()))
	require.NoError(t, s.Stop(t.Context()), "twice is once")
	conf, err := os.OpenFile(filepath.Join(dir, "pgdata", "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = conf.WriteString("work_mem = '7MB'\n")
	require.NoError(t, errors.Join(err, conf.Close()))

	s = start(t, config(dir))
	requireWord(t, s.URL())
	mem, err := ask(t.Context(), s.URL(), "show work_mem")
	require.NoError(t, err)
	require.Equal(t, "7MB", mem)
}

func TestSecondOwnerRefused(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	start(t, config(dir))
	_, err := pgserver.Start(t.Context(), config(dir))
	var locked *pgserver.LockedError
	require.ErrorAs(t, err, &locked)
	require.Equal(t, os.Getpid(), locked.PID)
	require.ErrorContains(t, err, fmt.Sprintf("in use by the process with pid %d", os.Getpid()))
}

func TestRunRestartsKilledServer(t *testing.T) {
	t.Parallel()
	s := start(t, config(tempDir(t)))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()
	keepWord(t, s.URL())

	kills := map[string]func(){
		"postmaster":    func() { require.NoError(t, syscall.Kill(s.PID(), syscall.SIGKILL)) },
		"all processes": s.Kill,
	}
	for name, kill := range kills {
		before := s.Restarts()
		kill()
		require.Eventually(t, func() bool {
			word, err := ask(ctx, s.URL(), "select word from kept")
			return err == nil && word == "here" && s.Restarts() > before
		}, 20*time.Second, 20*time.Millisecond, name)
	}
	cancel()
	require.NoError(t, <-ended)
	require.True(t, alive(s.PID()), "Run leaves the server up")
}

func TestStopEndsRun(t *testing.T) {
	t.Parallel()
	s := start(t, config(tempDir(t)))
	ended := make(chan error)
	go func() { ended <- s.Run(t.Context()) }()
	require.NoError(t, s.Stop(t.Context()))
	require.NoError(t, <-ended)
	require.ErrorIs(t, s.Restart(t.Context()), pgserver.ErrStopped)
}

func TestKillAndRestart(t *testing.T) {
	t.Parallel()
	s := start(t, config(tempDir(t)))
	first := s.PID()
	s.Kill()
	_, err := ask(t.Context(), s.URL(), "select ''")
	require.Error(t, err)
	require.NoError(t, s.Restart(t.Context()))
	require.NoError(t, s.Restart(t.Context()), "a running server too")
	_, err = ask(t.Context(), s.URL(), "select ''")
	require.NoError(t, err)
	require.NotEqual(t, first, s.PID())
	require.Equal(t, 2, s.Restarts())
}

func TestOrphanIsStopped(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	require.NoError(t, start(t, config(dir)).Stop(t.Context()))
	pid, exited, err := pgserver.StartOrphan(t.Context(), dir)
	require.NoError(t, err)
	s := start(t, config(dir))
	require.NotEqual(t, pid, s.PID())
	<-exited
}

func TestStalePidFile(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	s := start(t, config(dir))
	s.Kill()
	require.FileExists(t, filepath.Join(dir, "pgdata", "postmaster.pid"))
	require.NoError(t, s.Stop(t.Context()))
	start(t, config(dir))
}

func TestInterruptedStart(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := pgserver.Start(ctx, config(dir))
	require.Error(t, err)
	require.NoDirExists(t, filepath.Join(dir, "pgdata"))
	start(t, config(dir))
}

func TestBadSetting(t *testing.T) {
	t.Parallel()
	cfg := config(tempDir(t))
	cfg.Settings["shared_buffers"] = "lots"
	_, err := pgserver.Start(t.Context(), cfg)
	require.ErrorContains(t, err, `invalid value for parameter "shared_buffers": "lots"`)
}
