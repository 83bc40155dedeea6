package pgserver_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"leat/migrations/pgserver"
)

// helperEnv makes the test binary the owner of a server on the folder it names.
const helperEnv = "LEAT_PGSERVER_HELPER"

// helper prints the server's pid and URL and waits for its end.
func helper(dir string) int {
	s, err := pgserver.Start(context.Background(), config(dir))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(s.PID(), s.URL())
	_, _ = os.Stdin.Read(make([]byte, 1)) // until the test closes it
	if err := s.Stop(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// startHelper runs the helper and returns the pid and URL of its server.
func startHelper(t *testing.T, program, dir string, cred *syscall.Credential) (cmd *exec.Cmd, end func() error, pid int, address string) {
	t.Helper()
	cmd = exec.CommandContext(t.Context(), program)
	cmd.Env = append(os.Environ(), helperEnv+"="+dir)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	first, address, _ := strings.Cut(strings.TrimSpace(line), " ")
	pid, err = strconv.Atoi(first)
	require.NoError(t, err)
	end = func() error {
		if err := in.Close(); err != nil {
			return err
		}
		return cmd.Wait()
	}
	return cmd, end, pid, address
}

func TestParentKilled(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells children of their parent's death")
	}
	dir := tempDir(t)
	cmd, _, pid, address := startHelper(t, os.Args[0], dir, nil)
	keepWord(t, address)
	_, err := pgserver.Start(t.Context(), config(dir))
	require.ErrorContains(t, err, "in use by the process with pid "+strconv.Itoa(cmd.Process.Pid))

	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	require.Eventually(t, func() bool { return !alive(pid) }, 20*time.Second, 10*time.Millisecond)
	s := start(t, config(dir))
	requireWord(t, s.URL())
}

// A server that was killed may be there as long as its parent, or who inherits
// it, has not taken note of its end. The next start waits for that.
func TestKilledServerIsStillListed(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	s := start(t, config(dir))
	keepWord(t, s.URL())
	require.NoError(t, s.Stop(t.Context()))
	info, err := os.Stat(dir)
	require.NoError(t, err)
	owner := info.Sys().(*syscall.Stat_t)
	dead := exec.CommandContext(t.Context(), "sleep", "1000")
	dead.SysProcAttr = &syscall.SysProcAttr{}
	if os.Geteuid() == 0 {
		dead.SysProcAttr.Credential = &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}
	}
	require.NoError(t, dead.Start())
	require.NoError(t, dead.Process.Kill())
	pidFile := filepath.Join(dir, "pgdata", "postmaster.pid")
	require.NoError(t, os.WriteFile(pidFile, fmt.Appendf(nil, "%d\n%s\n", dead.Process.Pid, filepath.Dir(pidFile)), 0o600))
	require.NoError(t, os.Chown(pidFile, int(owner.Uid), int(owner.Gid)))

	waiting := &waitingLog{Handler: slog.DiscardHandler, seen: make(chan struct{})}
	cfg := config(dir)
	cfg.Logger = slog.New(waiting)
	go func() {
		select {
		case <-waiting.seen:
		case <-t.Context().Done():
		}
		_ = dead.Wait() // it was killed
	}()
	s = start(t, cfg)
	requireWord(t, s.URL())
	<-waiting.seen
}

// waitingLog tells when the log says that something waits.
type waitingLog struct {
	slog.Handler
	once sync.Once
	seen chan struct{}
}

func (w *waitingLog) Enabled(context.Context, slog.Level) bool { return true }

func (w *waitingLog) Handle(_ context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "waiting for the end") {
		w.once.Do(func() { close(w.seen) })
	}
	return nil
}

// TestNormalUser runs as a normal user what the other tests, where they are run
// by root, do not.
func TestNormalUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("all tests do")
	}
	nobody, err := user.Lookup("nobody")
	require.NoError(t, err)
	uid, err := strconv.Atoi(nobody.Uid)
	require.NoError(t, err)
	gid, err := strconv.Atoi(nobody.Gid)
	require.NoError(t, err)
	dir := tempDir(t)
	require.NoError(t, os.Chown(dir, uid, gid))
	// The test binary lies in a folder that is closed to others.
	program := filepath.Join(dir, "program")
	text, err := os.ReadFile(os.Args[0])
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(program, text, 0o755))
	cred := &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}

	data := filepath.Join(dir, "data")
	_, end, _, address := startHelper(t, program, data, cred)
	_, err = ask(t.Context(), address, "select ''")
	require.NoError(t, err)
	require.NoError(t, end())

	t.Run("then root", func(t *testing.T) {
		start(t, config(data))
		info, err := os.Stat(data)
		require.NoError(t, err)
		require.Equal(t, uint32(uid), info.Sys().(*syscall.Stat_t).Uid, "the folder stays the user's")
	})
	_, end, _, _ = startHelper(t, program, data, cred)
	require.NoError(t, end())
}

// TestClosedParent works in a folder like root's home.
func TestClosedParent(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	parent := tempDir(t)
	require.NoError(t, os.Chmod(parent, 0o700))
	dir := filepath.Join(parent, "data")
	if runtime.GOOS != "linux" {
		_, err := pgserver.Start(t.Context(), config(dir))
		require.ErrorContains(t, err, "must be able to enter "+dir)
		return
	}
	s := start(t, config(dir))
	keepWord(t, s.URL())
	s.Kill()
	require.NoError(t, s.Restart(t.Context()))
	require.NoError(t, s.Stop(t.Context()))
	s = start(t, config(dir))
	requireWord(t, s.URL())
}
