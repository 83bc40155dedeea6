package pgserver

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const (
	// MinMajor is the oldest major version of PostgreSQL that Leat runs on.
	MinMajor = 15

	// BinEnv names the environment variable with the folder of the binaries.
	BinEnv = "LEAT_POSTGRES_BIN"
)

// NotFoundError says that no usable PostgreSQL server is installed.
type NotFoundError struct {
	Dir   string   // the folder that was asked for, empty when all were searched
	Older []string // servers below MinMajor that were found, as "version in folder"
}

func (e *NotFoundError) Error() string {
	where := ""
	if e.Dir != "" {
		where = " in " + e.Dir
	}
	if len(e.Older) > 0 {
		where += " (only " + strings.Join(e.Older, ", ") + ")"
	}
	return fmt.Sprintf("no PostgreSQL server %d or newer found%s: install one (apt-get install postgresql), or set %s, or use --database-url",
		MinMajor, where, BinEnv)
}

// VersionError says that a folder was written by a major version of PostgreSQL
// whose binaries were not found.
type VersionError struct {
	Dir   string
	Major int   // that wrote the folder
	Found []int // that are installed
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("%s was written by PostgreSQL %d, but only %v found: install postgresql-%d, or move the data with pg_upgrade or pg_dump",
		e.Dir, e.Major, e.Found, e.Major)
}

// binaries is a folder with initdb and postgres.
type binaries struct {
	dir     string
	version string // for example "15.14"
	major   int
}

func (b binaries) path(name string) string { return filepath.Join(b.dir, name) }

// findBinaries picks the binaries for a cluster that was written by the given
// major version, or 0 for a new one. The explicit folder, if there is one, is
// the only one that is tried.
func findBinaries(ctx context.Context, explicit, pgdata string, major int) (binaries, error) {
	if explicit == "" {
		explicit = os.Getenv(BinEnv)
	}
	folders := []string{explicit}
	if explicit == "" {
		folders = candidates(ctx)
	}
	missing := &NotFoundError{Dir: explicit}
	var found []int
	for _, dir := range folders {
		b, err := inspect(ctx, dir)
		switch {
		case err != nil:
			continue
		case b.major < MinMajor:
			missing.Older = append(missing.Older, b.version+" in "+dir)
		case major == 0 || b.major == major:
			return b, nil
		default:
			found = append(found, b.major)
		}
	}
	if major != 0 && len(found) > 0 {
		return binaries{}, &VersionError{Dir: pgdata, Major: major, Found: found}
	}
	return binaries{}, missing
}

// candidates lists the folders that may hold a server, best first.
func candidates(ctx context.Context) []string {
	var dirs []string
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin", // Debian, Ubuntu
		"/usr/pgsql-*/bin",          // PGDG packages for Red Hat
		"/usr/local/pgsql/bin",      // built from source
		"/opt/homebrew/opt/postgresql@*/bin",
		"/usr/local/opt/postgresql@*/bin",
		"/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",
		"/Applications/Postgres.app/Contents/Versions/*/bin",
		"/usr/libexec/postgresql*", // Alpine
	} {
		// The only error is a malformed pattern.
		matches, _ := filepath.Glob(pattern)
		slices.SortFunc(matches, func(a, b string) int { return firstNumber(b) - firstNumber(a) })
		dirs = append(dirs, matches...)
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		// A link on the PATH has no initdb beside it.
		if target, err := filepath.EvalSymlinks(path); err == nil {
			path = target
		}
		dirs = append(dirs, filepath.Dir(path))
	}
	return dirs
}

// inspect asks the server binary of a folder for its version.
func inspect(ctx context.Context, dir string) (binaries, error) {
	b := binaries{dir: dir}
	if _, err := exec.LookPath(b.path("initdb")); err != nil {
		return b, err
	}
	out, err := exec.CommandContext(ctx, b.path("postgres"), "--version").Output()
	if err != nil {
		return b, err
	}
	// "postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)"
	_, rest, _ := strings.Cut(string(out), "(PostgreSQL) ")
	words := strings.Fields(rest)
	if len(words) == 0 {
		return b, fmt.Errorf("unexpected version %q of %s", out, b.path("postgres"))
	}
	b.version = words[0]
	b.major = firstNumber(b.version)
	return b, nil
}

// firstNumber reads the first run of digits of a string, 0 when it has none.
func firstNumber(s string) int {
	start := strings.IndexAny(s, "0123456789")
	if start < 0 {
		return 0
	}
	s = s[start:]
	if end := strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		s = s[:end]
	}
	// Too many digits are no version.
	n, _ := strconv.Atoi(s)
	return n
}
