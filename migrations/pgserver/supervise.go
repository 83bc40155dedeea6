package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	minBackoff = 100 * time.Millisecond
	maxBackoff = 10 * time.Second

	// A server that lived this long earns a quick restart again.
	steadyAfter = time.Minute

	// How long a fast shutdown may take before it becomes an immediate one. It
	// writes a checkpoint, so that a slow disk needs its time.
	fastStop      = time.Minute
	immediateStop = 5 * time.Second
)

// ErrStopped is returned by operations on a server that was stopped.
var ErrStopped = errors.New("the PostgreSQL server was stopped")

// Run restarts the server whenever it ends by itself, until the context ends or
// Stop is called, and then returns nil. It leaves the server running: call Stop
// when nothing needs the database any more.
func (s *Server) Run(ctx context.Context) error {
	backoff := minBackoff
	for {
		child := s.current()
		select {
		case <-ctx.Done():
			return nil
		case <-s.closing:
			return nil
		case <-child.exited:
		}
		if time.Since(child.started) > steadyAfter {
			backoff = minBackoff
		}
		s.log.Error("PostgreSQL ended, starting it again", "error", child.failure(), "in", backoff, "restarts", s.Restarts())
		if !s.pause(ctx, backoff) {
			return nil
		}
		backoff = min(2*backoff, maxBackoff)
		if err := s.revive(ctx, child); err != nil && ctx.Err() == nil && !errors.Is(err, ErrStopped) {
			s.log.Error("restart of PostgreSQL failed", "error", err)
		}
	}
}

// Restart stops the server cleanly, if it runs, and starts it again.
func (s *Server) Restart(ctx context.Context) error {
	child := s.current()
	s.stopChild(ctx, child)
	return s.revive(ctx, child)
}

// revive starts a server in the place of a dead one, unless someone else has.
func (s *Server) revive(ctx context.Context, dead *process) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.closing:
		return ErrStopped
	default:
	}
	if s.child != dead {
		return nil
	}
	s.restarts++
	if err := s.startChild(ctx); err != nil {
		return fmt.Errorf("restart PostgreSQL on %s: %w", s.cfg.DataDir, err)
	}
	s.log.Info("restarted PostgreSQL", "pid", s.child.pid(), "restarts", s.restarts)
	return nil
}

// Stop shuts the server down and gives the folder back. Sessions are ended. It
// is immediate, without a checkpoint, when the context ends first or after a
// minute; what was committed is safe either way.
func (s *Server) Stop(ctx context.Context) error {
	s.stopOnce.Do(func() {
		close(s.closing)
		// Closing ends the wait for a child that is just being started, which
		// holds mu.
		s.stopChild(ctx, s.current())
		s.stopErr = s.release()
		s.log.Info("stopped PostgreSQL", "data", s.cfg.DataDir)
	})
	return s.stopErr
}

// Kill ends all processes of the server at once, as a crash would. It is for
// tests. Run, or Restart, brings the server back.
func (s *Server) Kill() {
	child := s.current()
	child.killAll()
	<-child.exited
}

func (s *Server) current() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.child
}

// stopChild makes a child end, ever less politely.
func (s *Server) stopChild(ctx context.Context, child *process) {
	if child == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, fastStop)
	defer cancel()
	child.signal(sigFast)
	select {
	case <-child.exited:
		return
	case <-ctx.Done():
	}
	s.log.Warn("PostgreSQL does not stop, ending it at once", "pid", child.pid())
	child.signal(sigImmediate)
	select {
	case <-child.exited:
	case <-time.After(immediateStop):
		child.killAll()
		<-child.exited
	}
}

// pause waits, and reports whether it was not interrupted.
func (s *Server) pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-s.closing:
		return false
	case <-time.After(d):
		return true
	}
}

// stopOrphan stops a server of this folder whose owner died without it. We hold
// the lock of the folder, so nobody else wants that server.
func (s *Server) stopOrphan(ctx context.Context) error {
	pid := s.cluster.orphan()
	if pid == 0 {
		return nil
	}
	s.log.Warn("a PostgreSQL server of a dead owner still runs on the folder, stopping it", "pid", pid)
	deadline := time.Now().Add(fastStop)
	for signal := sigFast; s.cluster.orphan() == pid; {
		if err := signalPID(pid, signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("stop the server with pid %d, left by a dead owner: %w", pid, err)
		}
		if time.Now().After(deadline) {
			signal = sigImmediate
		}
		if !s.pause(ctx, 100*time.Millisecond) {
			return ctx.Err()
		}
	}
	return nil
}

// orphan returns the pid of a server that runs on the folder, 0 if none does.
func (c *cluster) orphan() int {
	text, err := os.ReadFile(filepath.Join(c.pgdata, "postmaster.pid"))
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(first))
	// The file outlives a crash, and the number may be another program's by now.
	if err != nil || pid <= 1 || !runsIn(pid, c.pgdata) {
		return 0
	}
	return pid
}
