package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"leat/api/client"
	"leat/migrations/dbtest"
)

// patience is how long a test waits for what a loaded machine does late.
const patience = 30 * time.Second

// sight says, when a wait has failed, what there is then.
type sight func() string

func (s sight) String() string { return s() }

// process is a running `leat serve`.
type process struct {
	t   *testing.T
	cmd *exec.Cmd
	url string

	mu   sync.Mutex
	log  bytes.Buffer
	done chan struct{} // closed when the log has ended
}

// serveProcess runs the real main on a free port and waits until it serves.
func serveProcess(t *testing.T, args ...string) *process {
	t.Helper()
	p := startProcess(t, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
	require.Eventually(t, func() bool { return p.line("leat is serving") != nil || p.ended() }, patience, 10*time.Millisecond)
	serving := p.line("leat is serving")
	require.NotNil(t, serving, "the broker ended: %s", p.text())
	p.url = serving["url"].(string)
	broker, err := client.New(p.url, client.Options{})
	require.NoError(t, err)
	t.Cleanup(broker.Close)
	require.Eventually(t, func() bool {
		ready, err := broker.Ready(t.Context())
		return err == nil && ready.Status == "ok"
	}, patience, 20*time.Millisecond, "views that are rebuilt take a moment")
	return p
}

// startProcess starts the real main.
func startProcess(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.CommandContext(t.Context(), os.Args[0], args...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), mainEnv+"=1")
	p.cmd.Dir = "/"
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = patience
	errs, err := p.cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	go p.read(errs)
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			p.stop(syscall.SIGTERM)
		}
		if t.Failed() {
			t.Logf("log of leat %s:\n%s", strings.Join(args, " "), p.text())
		}
	})
	return p
}

func (p *process) read(from io.Reader) {
	defer close(p.done)
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		p.mu.Lock()
		p.log.WriteString(lines.Text() + "\n")
		p.mu.Unlock()
	}
}

func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// line is the first line of the log with a message, nil if there is none.
func (p *process) line(message string) map[string]any {
	for line := range strings.Lines(p.text()) {
		var fields map[string]any
		if json.Unmarshal([]byte(line), &fields) == nil && fields["msg"] == message {
			return fields
		}
	}
	return nil
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// stop sends a signal and returns the exit code.
func (p *process) stop(signal os.Signal) int {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(signal))
	return p.wait()
}

// wait waits for the end and returns the exit code, -1 after a signal.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		require.NoError(p.t, p.cmd.Process.Kill())
		<-p.done
		p.t.Errorf("the broker did not end: %s", p.text())
	}
	_ = p.cmd.Wait() // the state says it
	return p.cmd.ProcessState.ExitCode()
}

// answer is what a command left.
type answer struct {
	code      int
	out, errs string
}

// command runs a command in this process.
func command(ctx context.Context, stdin string, args ...string) answer {
	var out, errs bytes.Buffer
	code := run(ctx, args, strings.NewReader(stdin), &out, &errs)
	return answer{code, out.String(), errs.String()}
}

// exits runs a command on the broker; it must end with the code.
func (p *process) exits(code int, stdin string, args ...string) answer {
	p.t.Helper()
	got := command(p.t.Context(), stdin, append(args, "--url", p.url, "--client", "tester")...)
	require.Equal(p.t, code, got.code, "leat %s: %s%s", strings.Join(args, " "), got.out, got.errs)
	return got
}

// leat runs a command on the broker that must succeed, and returns its output.
func (p *process) leat(args ...string) string {
	p.t.Helper()
	got := p.exits(exitOK, "", args...)
	require.Empty(p.t, got.errs)
	return got.out
}

// value runs a command with -o json and reads its answer.
func value[T any](p *process, args ...string) T {
	p.t.Helper()
	var v T
	require.NoError(p.t, json.Unmarshal([]byte(p.leat(append(args, "-o", "json")...)), &v))
	return v
}

// dataFolder is a folder that the server's user may pass.
func dataFolder(t *testing.T) string {
	t.Helper()
	dir := dbtest.Folder(t)
	require.NoError(t, os.Chmod(dir, 0o755))
	return filepath.Join(dir, "data")
}

// left lists the processes whose folder is in dir, where the system tells.
func left(dir string) []string {
	links, _ := filepath.Glob("/proc/[0-9]*/cwd")
	var found []string
	for _, link := range links {
		if cwd, err := os.Readlink(link); err == nil && strings.HasPrefix(cwd, dir) {
			found = append(found, filepath.Base(filepath.Dir(link)))
		}
	}
	return found
}
