package migrations

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pressly/goose/v3"
)

// MinServerVersion is the oldest server_version_num that Leat runs on.
const MinServerVersion = 150000

// NewerError says that a newer binary has migrated the database.
type NewerError struct {
	Database int64 // schema version of the database
	Binary   int64 // highest schema version this binary knows
}

func (e *NewerError) Error() string {
	return fmt.Sprintf("the database has schema version %d, this leat knows only up to %d: run a newer leat", e.Database, e.Binary)
}

// UnsupportedError says that Leat cannot use a server or database as it is.
type UnsupportedError struct {
	What string // what was looked at, for example "server version"
	Have string // what was found
	Need string // what is needed
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("unsupported database: %s is %s, need %s", e.What, e.Have, e.Need)
}

const serverSQL = `-- migrations.server
select current_setting('server_version_num')::int,
       current_setting('server_version'),
       current_setting('server_encoding')`

// checkServer refuses servers that are too old and databases that cannot hold
// every Unicode character.
func checkServer(ctx context.Context, pool *pgxpool.Pool) error {
	var number int
	var version, encoding string
	if err := pool.QueryRow(ctx, serverSQL).Scan(&number, &version, &encoding); err != nil {
		return fmt.Errorf("read server version: %w", err)
	}
	if number < MinServerVersion {
		return &UnsupportedError{What: "server version", Have: version, Need: fmt.Sprintf("%d or newer", MinServerVersion/10000)}
	}
	if encoding != "UTF8" {
		return &UnsupportedError{What: "encoding", Have: encoding, Need: "UTF8"}
	}
	return nil
}

// state is what decides whether there is something to do.
type state struct {
	version int64  // highest applied migration
	digest  string // of the functions, empty when there are none yet
}

func (s state) refuseNewer(known int64) error {
	if s.version > known {
		return &NewerError{Database: s.version, Binary: known}
	}
	return nil
}

const (
	bootstrappedSQL = `-- migrations.bootstrapped
select to_regclass('leat.schema_versions') is not null
   and to_regclass('leat.sql_functions') is not null`

	stateSQL = `-- migrations.state
select coalesce((select max(version_id) from leat.schema_versions), 0),
       coalesce((select digest from leat.sql_functions), '')`
)

// readState reads the state of a database, which may be empty.
func readState(ctx context.Context, db querier) (s state, err error) {
	var bootstrapped bool
	if err := db.QueryRow(ctx, bootstrappedSQL).Scan(&bootstrapped); err != nil {
		return s, fmt.Errorf("look for schema leat: %w", err)
	}
	if !bootstrapped {
		return s, nil
	}
	if err := db.QueryRow(ctx, stateSQL).Scan(&s.version, &s.digest); err != nil {
		return s, fmt.Errorf("read schema version: %w", err)
	}
	return s, nil
}

// target is the state this binary wants, and how to get there.
type target struct {
	state
	migrations []string // numbered files in order
	functions  []sqlFile
}

// sqlFile is one file of functions.
type sqlFile struct {
	name string
	text string
}

// wanted reads all files. The digest covers the schema version too, so that
// the functions are made again after every migration, whatever it dropped.
func wanted(numbered fs.FS, folders []fs.FS) (t target, err error) {
	paths, err := fs.Glob(numbered, "*.sql")
	if err != nil {
		return t, err
	}
	slices.Sort(paths)
	for _, p := range paths {
		version, err := goose.NumericComponent(p)
		if err != nil {
			continue // bootstrap.sql
		}
		t.version = max(t.version, version)
		t.migrations = append(t.migrations, p)
	}
	if t.functions, err = readFunctions(folders); err != nil {
		return t, err
	}
	t.digest = digest(t.version, t.functions)
	return t, nil
}

// after lists the migrations above a version.
func (t target) after(version int64) []string {
	var out []string
	for _, p := range t.migrations {
		if v, err := goose.NumericComponent(p); err == nil && v > version {
			out = append(out, p)
		}
	}
	return out
}

// readFunctions reads the *.sql files at the root of each folder, in the order
// of the folders and of the names in them.
func readFunctions(folders []fs.FS) ([]sqlFile, error) {
	var out []sqlFile
	for _, folder := range folders {
		paths, err := fs.Glob(folder, "*.sql")
		if err != nil {
			return nil, err
		}
		slices.Sort(paths)
		for _, p := range paths {
			text, err := fs.ReadFile(folder, p)
			if err != nil {
				return nil, err
			}
			out = append(out, sqlFile{name: p, text: string(text)})
		}
	}
	return out, nil
}

func digest(version int64, functions []sqlFile) string {
	h := sha256.New()
	fmt.Fprintf(h, "%d\n", version)
	for _, f := range functions {
		fmt.Fprintf(h, "%s %d\n%s", f.name, len(f.text), f.text)
	}
	return hex.EncodeToString(h.Sum(nil))
}
