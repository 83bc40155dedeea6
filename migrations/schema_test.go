package migrations_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"leat/commands"
	"leat/eventstore"
	"leat/migrations"
	"leat/migrations/dbtest"
	"leat/projections"
	"leat/projections/async"
	"leat/replication"
)

var update = flag.Bool("update", false, "write testdata/schema.golden anew")

// schemaSQL describes what is in the schema, a line each, from the catalog: the
// same on every version of PostgreSQL.
const schemaSQL = `
with described as (
    select 1 as part, t.typname::text as name, 0 as place,
           format('enum %s (%s)', t.typname, string_agg(e.enumlabel, ', ' order by e.enumsortorder)) as line
    from pg_type t
    join pg_enum e on e.enumtypid = t.oid
    where t.typnamespace = 'leat'::regnamespace
    group by t.typname
    union all
    select 2, c.relname, 0,
           concat_ws(' ',
               case c.relpersistence when 'u' then 'unlogged' end,
               case c.relkind when 'r' then 'table' when 'p' then 'table' when 'v' then 'view' when 'S' then 'sequence' when 'c' then 'type' end,
               c.relname,
               'partition by ' || pg_get_partkeydef(c.oid),
               'partition ' || pg_get_expr(c.relpartbound, c.oid),
               'with (' || array_to_string(c.reloptions, ', ') || ')')
    from pg_class c
    where c.relnamespace = 'leat'::regnamespace
      and c.relkind in ('r', 'p', 'v', 'S', 'c')
    union all
    select 2, c.relname, a.attnum,
           concat_ws(' ', '   ', a.attname, format_type(a.atttypid, a.atttypmod),
               case when a.attnotnull then 'not null' end,
               case when a.attidentity <> '' then 'generated as identity' end,
               'default ' || pg_get_expr(d.adbin, d.adrelid))
    from pg_class c
    join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
    left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
    where c.relnamespace = 'leat'::regnamespace
      and c.relkind in ('r', 'p', 'v', 'c')
    union all
    select 2, c.relname, 10000,
           concat_ws(' ', '    constraint', k.conname, pg_get_constraintdef(k.oid))
    from pg_constraint k
    join pg_class c on c.oid = k.conrelid
    where k.connamespace = 'leat'::regnamespace
      and k.contype <> 'n' -- PostgreSQL 18 has a name for each not null
    union all
    select 2, t.relname, 20000, '    ' || pg_get_indexdef(i.indexrelid)
    from pg_index i
    join pg_class t on t.oid = i.indrelid
    where t.relnamespace = 'leat'::regnamespace
    union all
    select 2, c.relname, 30000, '    ' || pg_get_triggerdef(g.oid)
    from pg_trigger g
    join pg_class c on c.oid = g.tgrelid
    where c.relnamespace = 'leat'::regnamespace
      and not g.tgisinternal
    union all
    select 3, p.proname, 0,
           concat_ws(' ', case p.prokind when 'p' then 'procedure' else 'function' end,
               format('%s(%s)', p.proname, pg_get_function_arguments(p.oid)),
               'returns ' || pg_get_function_result(p.oid),
               case p.provolatile when 'i' then 'immutable' when 's' then 'stable' end,
               case when p.prosecdef then 'security definer' end,
               case when p.proisstrict then 'strict' end)
    from pg_proc p
    where p.pronamespace = 'leat'::regnamespace
)
select line
from described
order by part, name collate "C", place, line collate "C"`

// The schema after all migrations, so that a reviewer sees what a migration, or
// another signature of a function, changes in the end. The bodies of functions
// and views are in their files.
func TestSchemaIsTheGoldenOne(t *testing.T) {
	t.Parallel()
	const golden = "testdata/schema.golden"
	pool := dbtest.NewEmpty(t)
	_, err := migrations.Run(t.Context(), pool, eventstore.SQL, projections.SQL, async.SQL, commands.SQL, replication.SQL)
	require.NoError(t, err)
	var lines []string
	require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		// Names without their schema would depend on who looks.
		if _, err := tx.Exec(t.Context(), "set local search_path = ''"); err != nil {
			return err
		}
		rows, err := tx.Query(t.Context(), schemaSQL)
		if err != nil {
			return err
		}
		lines, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	}))
	schema := strings.Join(lines, "\n") + "\n"
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(golden, []byte(schema), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), schema,
		"the schema changed; if that was meant, run: go test ./migrations -run TestSchema -update")
}
