package pgserver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// LockedError says that another process owns a data folder.
type LockedError struct {
	Dir string
	PID int // of the owner, 0 when it is not known
}

func (e *LockedError) Error() string {
	owner := "another process"
	if e.PID != 0 {
		owner = fmt.Sprintf("the process with pid %d", e.PID)
	}
	return fmt.Sprintf("data folder %s is in use by %s: stop it, or choose another folder", e.Dir, owner)
}

// folderLock is held by the owner of a data folder for its whole life. The
// kernel gives it up with the process.
type folderLock struct {
	file   *os.File
	socket string // folder of an owner that was killed; "" when there is none
}

// lockFolder takes the lock.
func lockFolder(c *cluster) (*folderLock, error) {
	file, err := os.OpenFile(filepath.Join(c.dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(file.Name())
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	first, socketDir, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	if err := flock(file); err != nil {
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", file.Name(), err), file.Close())
		}
		pid, _ := strconv.Atoi(first) // 0 when it is not written yet
		return nil, errors.Join(&LockedError{Dir: c.dir, PID: pid}, file.Close())
	}
	return &folderLock{file, socketDir}, c.account.own(file.Name())
}

// clean removes the socket folder of an owner that was killed, whose server
// must have ended.
func (l *folderLock) clean() error {
	if !strings.HasPrefix(filepath.Base(l.socket), "leat-") {
		return nil
	}
	return os.RemoveAll(l.socket)
}

// record writes who we are into the lock.
func (l *folderLock) record(socketDir string) error {
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	_, err := l.file.WriteAt(fmt.Appendf(nil, "%d\n%s\n", os.Getpid(), socketDir), 0)
	return err
}

func (l *folderLock) release() error {
	return errors.Join(l.file.Truncate(0), l.file.Close())
}
