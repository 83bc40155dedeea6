//go:build unix

package pgserver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// sigStop halts a process where it is.
const sigStop = syscall.SIGSTOP

// account is the user that the server runs as: us, unless we are root.
type account struct {
	name string
	cred *syscall.Credential // nil when it is us
}

// serverAccount finds the user for the server of a data folder.
func serverAccount(dir string) (account, error) {
	if os.Geteuid() != 0 {
		return account{name: strconv.Itoa(os.Geteuid())}, nil
	}
	// A folder that a user's own broker made stays that user's.
	if info, err := os.Stat(dir); err == nil {
		if owner, ok := info.Sys().(*syscall.Stat_t); ok && owner.Uid != 0 {
			u, err := user.LookupId(strconv.Itoa(int(owner.Uid)))
			if err != nil {
				return account{}, fmt.Errorf("find the owner of %s: %w", dir, err)
			}
			return accountOf(u)
		}
	}
	for _, name := range []string{"postgres", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			return accountOf(u)
		}
	}
	return account{}, errors.New("PostgreSQL does not run as root, and there is no user postgres or nobody: add one, or start leat as another user")
}

func accountOf(u *user.User) (account, error) {
	uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
	gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
	cred := &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return account{name: u.Username, cred: cred}, errors.Join(uidErr, gidErr)
}

// own gives a file of ours to the account.
func (a account) own(path string) error {
	if a.cred == nil {
		return nil
	}
	return os.Chown(path, int(a.cred.Uid), int(a.cred.Gid))
}

// apply makes a command run as the account, out of reach of the terminal.
func (a account) apply(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: a.cred}
}

// flock takes an exclusive lock, or fails with EWOULDBLOCK.
func flock(file *os.File) error {
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}
