package pgserver

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// Windows has neither the signals nor the users that this package works with.
// The package compiles there so that leat does, for use with a server that
// somebody else runs.

const sigStop = syscall.SIGKILL

type account struct{ name string }

func serverAccount(string) (account, error) {
	return account{}, errors.New("a private PostgreSQL server is not supported on Windows: use --database-url")
}

func (account) own(string) error { return nil }

func (account) apply(*exec.Cmd) {}

func flock(*os.File) error { return nil }
