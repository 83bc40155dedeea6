package migrations_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"leat/migrations/dbtest"
)

// setup gives a database with one file of functions.
func setup(t *testing.T, functions string) *pgxpool.Pool {
	t.Helper()
	pool := dbtest.NewEmpty(t)
	replace(t, pool, functions)
	return pool
}

func replace(t *testing.T, pool *pgxpool.Pool, functions string) {
	t.Helper()
	res, err := run(t, pool, numbered, sqlFiles("f.sql", functions))
	require.NoError(t, err)
	require.True(t, res.Functions)
}

func TestFunctionsAreReplaced(t *testing.T) {
	t.Parallel()
	pool := setup(t, `create function leat.twice(n int) returns int language sql as 'select 2 * n';
		create function leat.gone() returns int language sql as 'select 1';
		create procedure leat.act() language sql as 'select 1';`)
	require.Equal(t, "4", text(t, pool, "select leat.twice(2)::text"))

	// Another body, another result, one function less, a procedure as it was.
	replace(t, pool, `create function leat.twice(n int) returns text language sql as 'select n::text || n::text';
		create procedure leat.act() language sql as 'select 1';`)
	require.Equal(t, "22", text(t, pool, "select leat.twice(2)"))
	require.Equal(t, "true", text(t, pool, "select (to_regproc('leat.gone') is null)::text"))

	// Another argument: the old signature must not stay beside the new one.
	replace(t, pool, `create function leat.twice(n int, sep text default '-') returns text language sql as 'select n::text || sep || n::text';`)
	require.Equal(t, "2-2", text(t, pool, "select leat.twice(2)"))
}

func TestFunctionsMayUseEachOther(t *testing.T) {
	t.Parallel()
	const functions = `create function leat.b() returns int language plpgsql as 'begin return leat.c(); end';
		create function leat.c() returns int language sql as 'select 1';
		create function leat.a() returns int begin atomic select leat.c(); end;`
	pool := setup(t, functions)
	replace(t, pool, functions+"-- changed")
	require.Equal(t, "2", text(t, pool, "select (leat.a() + leat.b())::text"))
}

func TestFunctionsInUseAreKept(t *testing.T) {
	t.Parallel()
	pool := setup(t, "")
	do(t, pool, `
		create function leat.refuse() returns trigger language plpgsql as 'begin raise exception ''no''; end';
		create trigger refuse before delete on leat.words for each row execute function leat.refuse();
		create function leat.inner() returns text language sql immutable as 'select ''fr''';
		create function leat.outer() returns text immutable begin atomic select leat.inner(); end;
		alter table leat.words alter column lang set default leat.outer();
		create function leat.foreign_use() returns int language sql as 'select 1';
		create function public.elsewhere() returns int begin atomic select leat.foreign_use(); end;
		create function leat.unused() returns int language sql as 'select 1'`)
	replace(t, pool, "-- changed")
	require.Equal(t, "foreign_use,inner,outer,refuse", text(t, pool,
		"select string_agg(proname, ',' order by proname) from pg_proc where pronamespace = 'leat'::regnamespace"))
}

func TestFunctionsOfExtensionsAreKept(t *testing.T) {
	t.Parallel()
	pool := setup(t, "")
	if text(t, pool, "select count(*)::text from pg_available_extensions where name = 'fuzzystrmatch'") == "0" {
		t.Skip("no contrib extensions installed")
	}
	_, err := pool.Exec(t.Context(), "create extension fuzzystrmatch schema leat")
	require.NoError(t, err)
	replace(t, pool, "-- changed")
	require.Equal(t, "1", text(t, pool, "select leat.levenshtein('eau', 'peau')::text"))
}

func TestGrantsSurvive(t *testing.T) {
	t.Parallel()
	const functions = `create function leat.granted() returns int language sql as 'select 1';
		create function leat.open() returns int language sql as 'select 1';`
	pool := setup(t, functions)
	// Roles belong to the server, not to the database: any that exists will do.
	do(t, pool, `revoke all on function leat.granted() from public;
		grant execute on function leat.granted() to pg_monitor with grant option;`)
	const acl = `select coalesce((select proacl::text from pg_proc where oid = to_regproc('leat.granted')), 'none')
		|| coalesce((select proacl::text from pg_proc where oid = to_regproc('leat.open')), ' open')`
	before := text(t, pool, acl)
	replace(t, pool, functions+"-- changed")
	require.Equal(t, before, text(t, pool, acl))
}

func TestBrokenFunctionsChangeNothing(t *testing.T) {
	t.Parallel()
	pool := setup(t, "create function leat.one() returns int language sql as 'select 1';")
	broken := map[string]struct{ file, wrong string }{
		"syntax":     {"create function leat.two() returns int\nlanguage sql\nas select 2;", "f.sql:3: "},
		"no schema":  {"create function two() returns int language sql as 'select 2';", "no schema has been selected"},
		"used twice": {"create function leat.two() returns int language sql as '';\ncreate function leat.two() returns int language sql as '';", "already exists"},
	}
	for name, c := range broken {
		_, err := run(t, pool, numbered, sqlFiles("f.sql", c.file))
		require.ErrorContains(t, err, c.wrong, name)
		require.Equal(t, "1", text(t, pool, "select leat.one()::text"), name)
	}
}
