package migrations

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
)

// versionTable is where goose records which migrations were applied.
const versionTable = "leat.schema_versions"

//go:embed *.sql
var files embed.FS

// Result says what Run changed.
type Result struct {
	From      int64    // schema version before
	To        int64    // schema version after
	Applied   []string // file names of the migrations, in order
	Functions bool     // whether the functions were replaced
}

// Run brings the database to the schema of this binary: the numbered
// migrations, then the SQL functions of the given folders, each of which holds
// *.sql files at its root. It is safe to call from several processes at once.
//
// The pool must reach the server directly, not through a transaction pooler,
// and its role must own schema leat or be allowed to create it. The error is a
// *NewerError for a database of a newer binary and an *UnsupportedError for a
// server that Leat cannot use.
func Run(ctx context.Context, pool *pgxpool.Pool, functions ...fs.FS) (Result, error) {
	return run(ctx, pool, files, functions)
}

func run(ctx context.Context, pool *pgxpool.Pool, numbered fs.FS, functions []fs.FS) (Result, error) {
	want, err := wanted(numbered, functions)
	if err != nil {
		return Result{}, err
	}
	if err := checkServer(ctx, pool); err != nil {
		return Result{}, err
	}
	have, err := readState(ctx, pool)
	if err != nil {
		return Result{}, err
	}
	if err := have.refuseNewer(want.version); err != nil {
		return Result{}, err
	}
	res := Result{From: have.version, To: want.version}
	if have == want.state {
		return res, nil
	}
	if err := bootstrap(ctx, pool); err != nil {
		return res, fmt.Errorf("create schema leat: %w", err)
	}
	if res.Applied, err = migrate(ctx, pool, numbered); err != nil {
		return res, err
	}
	if res.Functions, err = replaceFunctions(ctx, pool, want); err != nil {
		return res, fmt.Errorf("replace functions: %w", err)
	}
	return res, nil
}

// Status compares a database with this binary.
type Status struct {
	Version          int64    // schema version of the database, 0 when it is empty
	Latest           int64    // schema version of this binary
	Pending          []string // file names of the migrations that Run would apply
	FunctionsCurrent bool     // whether Run would leave the functions alone
}

// Current reports whether Run has nothing to do.
func (s Status) Current() bool { return s.Version == s.Latest && s.FunctionsCurrent }

// ReadStatus reads what Run would do. It changes nothing.
func ReadStatus(ctx context.Context, pool *pgxpool.Pool, functions ...fs.FS) (Status, error) {
	want, err := wanted(files, functions)
	if err != nil {
		return Status{}, err
	}
	have, err := readState(ctx, pool)
	if err != nil {
		return Status{}, err
	}
	return Status{
		Version:          have.version,
		Latest:           want.version,
		Pending:          want.after(have.version),
		FunctionsCurrent: have.digest == want.digest,
	}, nil
}

// bootstrap creates the schema and the runner's own tables.
func bootstrap(ctx context.Context, pool *pgxpool.Pool) error {
	text, err := files.ReadFile("bootstrap.sql")
	if err != nil {
		return err
	}
	tx, err := lockTx(ctx, pool)
	if err != nil {
		return err
	}
	defer rollback(ctx, tx)
	if _, err := tx.Exec(ctx, string(text)); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// migrate applies the numbered migrations and returns their file names.
func migrate(ctx context.Context, pool *pgxpool.Pool, numbered fs.FS) (applied []string, err error) {
	db := stdlib.OpenDBFromPool(pool)
	defer func() { err = errors.Join(err, db.Close()) }()
	provider, err := goose.NewProvider(goose.DialectPostgres, db, numbered,
		goose.WithTableName(versionTable),
		goose.WithSessionLocker(sessionLocker{}),
		goose.WithDisableGlobalRegistry(true),
	)
	if errors.Is(err, goose.ErrNoMigrations) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read migrations: %w", err)
	}
	results, err := provider.Up(ctx)
	if partial, ok := errors.AsType[*goose.PartialError](err); ok {
		name := path.Base(partial.Failed.Source.Path)
		return names(partial.Applied), fmt.Errorf("apply migration %s: %w", name, partial.Err)
	}
	if err != nil {
		return nil, fmt.Errorf("apply migrations: %w", err)
	}
	return names(results), nil
}

func names(results []*goose.MigrationResult) []string {
	out := make([]string, 0, len(results))
	for _, r := range results {
		out = append(out, path.Base(r.Source.Path))
	}
	return out
}
