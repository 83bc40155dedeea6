package migrations_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"leat/migrations"
	"leat/migrations/dbtest"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Main(m)) }

// sqlFiles makes a folder of a name and text for each file.
func sqlFiles(nameText ...string) fs.FS {
	files := fstest.MapFS{}
	for i := 0; i < len(nameText); i += 2 {
		files[nameText[i]] = &fstest.MapFile{Data: []byte(nameText[i+1])}
	}
	return files
}

var (
	numbered = sqlFiles(
		"00001_words.sql", "-- +goose Up\ncreate table leat.words (word text not null);",
		"00002_more.sql", "-- +goose Up\nalter table leat.words add column lang text;\ninsert into leat.words values ('eau', 'fr');",
	)
	functions = sqlFiles("first.sql", "create function leat.first_word() returns text language sql as 'select word from leat.words limit 1';")
)

// here limits pg_locks to this database.
const here = "database = (select oid from pg_database where datname = current_database())"

func run(t *testing.T, pool *pgxpool.Pool, numbered fs.FS, functions ...fs.FS) (migrations.Result, error) {
	t.Helper()
	return migrations.RunFiles(t.Context(), pool, numbered, functions)
}

func text(t *testing.T, pool *pgxpool.Pool, query string) string {
	t.Helper()
	var answer string
	require.NoError(t, pool.QueryRow(t.Context(), query).Scan(&answer))
	return answer
}

func do(t *testing.T, pool *pgxpool.Pool, statements string) {
	t.Helper()
	_, err := pool.Exec(t.Context(), statements)
	require.NoError(t, err)
}

func TestRun(t *testing.T) {
	t.Parallel()
	pool := dbtest.NewEmpty(t)
	res, err := run(t, pool, numbered, functions)
	require.NoError(t, err)
	require.Equal(t, migrations.Result{
		To: 2, Applied: []string{"00001_words.sql", "00002_more.sql"}, Functions: true,
	}, res)
	require.Equal(t, "eau", text(t, pool, "select leat.first_word()"))

	res, err = run(t, pool, numbered, functions)
	require.NoError(t, err)
	require.Equal(t, migrations.Result{From: 2, To: 2}, res, "nothing is done twice")
}

// TestRunEmbedded runs the migrations of this binary.
func TestRunEmbedded(t *testing.T) {
	t.Parallel()
	pool := dbtest.NewEmpty(t)
	before, err := migrations.ReadStatus(t.Context(), pool)
	require.NoError(t, err)
	require.False(t, before.Current())
	require.Zero(t, before.Version)

	res, err := migrations.Run(t.Context(), pool)
	require.NoError(t, err)
	require.Equal(t, before.Pending, res.Applied)

	after, err := migrations.ReadStatus(t.Context(), pool)
	require.NoError(t, err)
	require.True(t, after.Current())
	require.Equal(t, after.Latest, res.To)
	require.Empty(t, after.Pending)
}

func TestRunConcurrently(t *testing.T) {
	t.Parallel()
	first := dbtest.NewEmpty(t)
	var brokers errgroup.Group
	for range 5 {
		pool, err := pgxpool.New(t.Context(), dbtest.URL(first))
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		brokers.Go(func() error {
			_, err := run(t, pool, numbered, functions)
			return err
		})
	}
	require.NoError(t, brokers.Wait())
	require.Equal(t, "1", text(t, first, "select count(*)::text from leat.words"))
	require.Equal(t, "0,1,2", text(t, first, "select string_agg(version_id::text, ',' order by id) from leat.schema_versions"))
	require.Equal(t, "0", text(t, first, "select count(*)::text from pg_locks where locktype = 'advisory' and "+here), "a lock is left over")
}

// TestRunKilled ends the session of a run in the middle of each kind of step.
func TestRunKilled(t *testing.T) {
	t.Parallel()
	const hang = "select pg_advisory_xact_lock(42);"
	steps := map[string]struct{ numbered, functions fs.FS }{
		"migration": {sqlFiles("00001_words.sql", "-- +goose Up\ncreate table leat.words (word text);\n"+hang), functions},
		"functions": {
			sqlFiles("00001_words.sql", "-- +goose Up\ncreate table leat.words (word text);"),
			sqlFiles("a.sql", "create function leat.half() returns int language sql as 'select 1'", "b.sql", hang),
		},
	}
	for name, step := range steps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := dbtest.NewEmpty(t)
			blocker, err := pool.Begin(t.Context())
			require.NoError(t, err)
			_, err = blocker.Exec(t.Context(), hang)
			require.NoError(t, err)

			killed := make(chan error)
			go func() {
				_, err := run(t, pool, step.numbered, step.functions)
				killed <- err
			}()
			terminate(t, pool)
			require.Error(t, <-killed)
			require.Equal(t, "true", text(t, pool, `select (to_regproc('leat.half') is null
				and (to_regclass('leat.words') is not null) = exists (select from leat.schema_versions where version_id = 1))::text`))

			require.NoError(t, blocker.Rollback(t.Context()))
			res, err := run(t, pool, step.numbered, step.functions)
			require.NoError(t, err)
			require.True(t, res.Functions)
		})
	}
}

// terminate waits for a session that waits for lock 42, and ends it.
func terminate(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	require.Eventually(t, func() bool {
		return text(t, pool, `select count(pg_terminate_backend(pid))::text from pg_locks
			where locktype = 'advisory' and objid = 42 and not granted and `+here) == "1"
	}, 20*time.Second, 10*time.Millisecond)
}

func TestRunCancelledWhileLocked(t *testing.T) {
	t.Parallel()
	pool := dbtest.NewEmpty(t)
	holder, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer holder.Release()
	_, err = holder.Exec(t.Context(), "select pg_advisory_lock(x'6c6561742e6d6967'::bigint)")
	require.NoError(t, err)

	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = migrations.RunFiles(ctx, pool, numbered, nil)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, "false", text(t, pool, "select exists (select from pg_namespace where nspname = 'leat')::text"))
	_, err = holder.Exec(t.Context(), "select pg_advisory_unlock_all()")
	require.NoError(t, err)
}

// TestRunAsPlainRole runs as a role that only owns schema leat.
func TestRunAsPlainRole(t *testing.T) {
	t.Parallel()
	admin := dbtest.NewEmpty(t)
	role := admin.Config().ConnConfig.Database + "_role"
	do(t, admin, fmt.Sprintf("create role %s; create schema leat authorization %[1]s", role))
	config := admin.Config()
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "set role "+role)
		return err
	}
	plain, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	defer plain.Close()
	_, err = run(t, plain, numbered, functions)
	require.NoError(t, err)
	_, err = run(t, plain, numbered, sqlFiles("other.sql", "create function leat.other() returns int language sql as 'select 1'"))
	require.NoError(t, err)
	do(t, admin, fmt.Sprintf("drop owned by %s; drop role %[1]s", role))
}

func TestRunRefusesNewerDatabase(t *testing.T) {
	t.Parallel()
	pool := dbtest.NewEmpty(t)
	newer := sqlFiles("00001_words.sql", "-- +goose Up\ncreate table leat.words (word text);", "00099_new.sql", "-- +goose Up\nselect 1;")
	_, err := run(t, pool, newer, functions)
	require.NoError(t, err)

	_, err = run(t, pool, numbered, sqlFiles("other.sql", "create function leat.other() returns int language sql as 'select 1'"))
	var refused *migrations.NewerError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, migrations.NewerError{Database: 99, Binary: 2}, *refused)
	require.Equal(t, "true", text(t, pool, "select (to_regproc('leat.other') is null and to_regproc('leat.first_word') is not null)::text"))
}

func TestRunRefusesOtherEncodings(t *testing.T) {
	t.Parallel()
	pool := dbtest.NewEmpty(t)
	name := pool.Config().ConnConfig.Database + "_ascii"
	do(t, pool, fmt.Sprintf("create database %s template template0 encoding 'SQL_ASCII' locale 'C'", name))
	config := pool.Config()
	config.ConnConfig.Database = name
	ascii, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	_, err = run(t, ascii, numbered)
	ascii.Close()
	do(t, pool, "drop database "+name)
	var unsupported *migrations.UnsupportedError
	require.ErrorAs(t, err, &unsupported)
	require.EqualError(t, unsupported, "unsupported database: encoding is SQL_ASCII, need UTF8")
}

func TestRunNamesTheBrokenMigration(t *testing.T) {
	t.Parallel()
	pool := dbtest.NewEmpty(t)
	broken := sqlFiles("00001_good.sql", "-- +goose Up\ncreate table leat.good (id int);", "00002_bad.sql", "-- +goose Up\ncreate table leat.bad (id nothing);")
	res, err := run(t, pool, broken)
	require.ErrorContains(t, err, "apply migration 00002_bad.sql: ")
	require.Equal(t, []string{"00001_good.sql"}, res.Applied)
}
