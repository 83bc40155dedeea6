package pgserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	sigFast      = syscall.SIGINT  // end sessions, checkpoint, exit
	sigImmediate = syscall.SIGQUIT // exit, recover at the next start
)

// process is one run of the server.
type process struct {
	cmd     *exec.Cmd
	started time.Time
	exited  chan struct{}
	err     error // how it ended; set before exited is closed
	tail    tail
}

// startProcess starts a command whose error output is the server's log.
func startProcess(cmd *exec.Cmd, log *slog.Logger) (*process, error) {
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = in
	p := &process{cmd: cmd, started: time.Now(), exited: make(chan struct{})}
	started := make(chan error)
	go p.run(started, out, in, log)
	return p, <-started
}

// run starts the command and waits for it on one thread: the kernel sends the
// parent-death signal when the thread that forked ends, not the process.
func (p *process) run(started chan<- error, out, in *os.File, log *slog.Logger) {
	runtime.LockOSThread()
	defer out.Close()
	err := p.cmd.Start()
	// The child has its own copy; ours would keep the log from ending.
	err = errors.Join(err, in.Close())
	started <- err
	if err != nil {
		return
	}
	logged := make(chan struct{})
	go func() {
		defer close(logged)
		p.tail.copy(out, log)
	}()
	p.err = p.cmd.Wait()
	// Its children may live a moment longer and hold the pipe.
	select {
	case <-logged:
	case <-time.After(time.Second):
		p.err = errors.Join(p.err, out.SetReadDeadline(time.Now()))
		<-logged
	}
	close(p.exited)
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// signal sends a signal; the process may be gone already.
func (p *process) signal(sig os.Signal) { _ = p.cmd.Process.Signal(sig) }

// killAll kills the server with its children. It is stopped before, so that it
// starts no more of them.
func (p *process) killAll() {
	p.signal(sigStop)
	for _, pid := range childrenOf(p.pid()) {
		_ = signalPID(pid, syscall.SIGKILL)
	}
	p.signal(syscall.SIGKILL)
}

// failure tells how the server ended and what it said last.
func (p *process) failure() error {
	how := "exit status 0"
	if p.err != nil {
		how = p.err.Error()
	}
	return fmt.Errorf("postgres ended (%s): %s", how, p.tail.text())
}

func signalPID(pid int, sig syscall.Signal) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	defer p.Release() //nolint:errcheck // nothing to lose
	return p.Signal(sig)
}

// tail keeps the last important lines of the server's log.
type tail struct {
	mu    sync.Mutex
	lines []string
}

const tailLines = 5

func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines, "; ")
}

func (t *tail) add(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, line)
	if len(t.lines) > tailLines {
		t.lines = t.lines[1:]
	}
}

// copy passes the server's log on to ours. It reads to the end whatever comes,
// as a server whose log nobody reads stands still.
func (t *tail) copy(from io.Reader, log *slog.Logger) {
	lines := bufio.NewReaderSize(from, 8192)
	level, keep := slog.LevelDebug, false
	for {
		// A line longer than the buffer becomes several.
		text, _, err := lines.ReadLine()
		if err != nil {
			return
		}
		line := string(text)
		if s, ok := severityOf(line); ok {
			level, keep = s.level, s.keep && !strings.HasSuffix(line, startingUp)
		}
		if keep {
			t.add(line)
		}
		log.Log(context.Background(), level, line, "from", "postgres")
	}
}

// startingUp is the answer to whoever connects too early, as we do.
const startingUp = "the database system is starting up"

// severity is what a kind of line is worth to us.
type severity struct {
	level slog.Level
	keep  bool // for the error that tells why the server ended
}

// severities of the server. What it calls an error is a failed statement, and
// mostly fatal is the end of one session: their callers hear of them.
var severities = map[string]severity{
	"LOG":     {level: slog.LevelDebug},
	"INFO":    {level: slog.LevelDebug},
	"NOTICE":  {level: slog.LevelDebug},
	"ERROR":   {level: slog.LevelDebug},
	"FATAL":   {level: slog.LevelDebug, keep: true},
	"WARNING": {level: slog.LevelWarn, keep: true},
	"PANIC":   {level: slog.LevelError, keep: true},
}

// severityOf reads the severity at the start of a line. Lines without one
// (DETAIL, HINT, continuation lines) belong to the line before.
func severityOf(line string) (severity, bool) {
	word, _, _ := strings.Cut(line, ":  ")
	s, ok := severities[word]
	return s, ok
}
