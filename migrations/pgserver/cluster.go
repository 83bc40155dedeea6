package pgserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// maxSocketPath is the size of sun_path less the name of the socket file and
// the closing null byte, on the system with the smallest one (104 on macOS).
const maxSocketPath = 104 - len("/.s.PGSQL.65535.lock") - 1

// The path of an open folder that needs no way through its parents, on Linux.
const (
	handlePath = "/proc/self/fd"
	handleFD   = "3" // the first of exec.Cmd's ExtraFiles
)

// cluster is the data folder and what belongs to it.
type cluster struct {
	dir       string
	pgdata    string
	socketDir string
	password  string
	major     int     // that wrote pgdata, 0 when there is none yet
	account   account // the user the server runs as
	noSync    bool    // for tests, which lose nothing in a power cut

	// handle is dir, opened, when the account cannot pass a parent of it.
	handle *os.File
}

// locate looks at a data folder without changing it.
func locate(dir string) (cluster, error) {
	c := cluster{dir: dir, pgdata: filepath.Join(dir, "pgdata")}
	text, err := os.ReadFile(filepath.Join(c.pgdata, "PG_VERSION"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return c, fmt.Errorf("read data folder: %w", err)
	default:
		if c.major = firstNumber(string(text)); c.major == 0 {
			return c, fmt.Errorf("%s has no readable PG_VERSION", c.pgdata)
		}
	}
	c.account, err = serverAccount(dir)
	return c, err
}

// makeDir makes the folder and gives it to the server's user.
func (c *cluster) makeDir(ctx context.Context, bin binaries) error {
	if err := os.MkdirAll(filepath.Dir(c.dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(c.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := c.account.own(c.dir); err != nil {
		return err
	}
	if err := os.Chmod(c.dir, 0o700); err != nil {
		return err
	}
	return c.checkAccess(ctx, bin)
}

// checkAccess finds out whether the account can run the server and reach the
// folder. Root's home is closed to others, and a folder in it is reached
// through an open handle instead, where there is such a thing.
func (c *cluster) checkAccess(ctx context.Context, bin binaries) error {
	probe := func(dir string) error {
		cmd := exec.CommandContext(ctx, bin.path("postgres"), "--version")
		cmd.Dir = dir
		c.account.apply(cmd)
		return cmd.Run()
	}
	if err := probe("/"); err != nil {
		return fmt.Errorf("user %s must be able to run %s: %w", c.account.name, bin.path("postgres"), err)
	}
	err := probe(c.dir)
	if err == nil {
		return nil
	}
	if _, procErr := os.Stat(handlePath); procErr != nil {
		return fmt.Errorf("user %s must be able to enter %s and its parent folders (chmod o+x): %w", c.account.name, c.dir, err)
	}
	c.handle, err = os.Open(c.dir)
	return err
}

// command prepares a program of PostgreSQL to run as the account. The paths
// in args must be those that seen gives.
func (c *cluster) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = serverEnv()
	cmd.Dir = "/"
	c.account.apply(cmd)
	dieWithParent(cmd)
	if c.handle != nil {
		cmd.ExtraFiles = []*os.File{c.handle}
	}
	return cmd
}

// seen is a path below dir as programs of command see it.
func (c *cluster) seen(path string) string {
	if c.handle == nil {
		return path
	}
	return handlePath + "/" + handleFD + strings.TrimPrefix(path, c.dir)
}

// create runs initdb if there is no cluster yet, and writes our settings.
func (c *cluster) create(ctx context.Context, bin binaries, log *slog.Logger) error {
	if c.major == 0 {
		log.Info("creating a PostgreSQL data folder", "version", bin.version, "data", c.dir)
		if err := c.initdb(ctx, bin); err != nil {
			return fmt.Errorf("create data folder %s: %w", c.dir, err)
		}
		c.major = bin.major
	}
	password, err := os.ReadFile(c.passwordFile())
	if err != nil {
		return err
	}
	c.password = strings.TrimSpace(string(password))
	return c.writeFile(filepath.Join(c.pgdata, "leat.conf"), defaults)
}

func (c *cluster) passwordFile() string { return filepath.Join(c.dir, "password") }

// initdb makes the cluster beside its final place, so that there is either a
// whole one or none.
func (c *cluster) initdb(ctx context.Context, bin binaries) error {
	if err := c.writeFile(c.passwordFile(), rand.Text()+"\n"); err != nil {
		return err
	}
	half := c.pgdata + ".new"
	if err := os.RemoveAll(half); err != nil {
		return err
	}
	args := []string{
		"--pgdata", c.seen(half), "--username", role, "--pwfile", c.seen(c.passwordFile()),
		"--auth-local", "trust", "--auth-host", "scram-sha-256",
		"--encoding", "UTF8", "--locale", "C", "--data-checksums",
	}
	if c.noSync {
		args = append(args, "--no-sync")
	}
	// See process.run. Asked to end, initdb removes what it made.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := c.command(ctx, bin.path("initdb"), args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, strings.TrimSpace(string(out)))
	}
	conf := filepath.Join(half, "postgresql.conf")
	made, err := os.ReadFile(conf)
	if err != nil {
		return err
	}
	if err := c.writeFile(conf, mainConf+probed(string(made))); err != nil {
		return err
	}
	if err := os.Rename(half, c.pgdata); err != nil {
		return err
	}
	return syncDir(c.dir)
}

// writeFile writes a file that only the server's user can read, whole or not.
func (c *cluster) writeFile(path, text string) error {
	temp := path + ".new"
	if err := os.WriteFile(temp, []byte(text), 0o600); err != nil {
		return err
	}
	if err := c.account.own(temp); err != nil {
		return err
	}
	return os.Rename(temp, path)
}

// makeSocketDir makes a folder with a short path, as sockets need one.
func (c *cluster) makeSocketDir() error {
	parents := []string{os.TempDir(), "/tmp"}
	if os.Geteuid() == 0 {
		parents = slices.Insert(parents, 0, "/run")
	}
	var errs []error
	for _, parent := range parents {
		dir, err := os.MkdirTemp(parent, "leat-")
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if len(dir) > maxSocketPath {
			errs = append(errs, fmt.Errorf("path too long: %s", dir), os.Remove(dir))
			continue
		}
		c.socketDir = dir
		return c.account.own(dir)
	}
	return fmt.Errorf("make socket folder: %w", errors.Join(errs...))
}

// serve starts the server process.
func (c *cluster) serve(bin binaries, settings map[string]string, log *slog.Logger) (*process, error) {
	args := []string{"-D", c.seen(c.pgdata)}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	// It outlives the context of its start.
	cmd := c.command(context.Background(), bin.path("postgres"), args...)
	return startProcess(cmd, log)
}

// serverEnv is our environment without what would steer the server or initdb.
// glibc is told to keep up to 16 MiB that a session freed: by default it gives
// back anything above 128 KiB, and a batch of payloads would have all its pages
// mapped anew each time (a third of the CPU of a claim of 100 messages).
func serverEnv() []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "PG") || strings.HasPrefix(v, "LC_") || strings.HasPrefix(v, "LANG")
	})
	return append(env, "LC_ALL=C", "MALLOC_TRIM_THRESHOLD_=16777216", "MALLOC_TOP_PAD_=1048576")
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
