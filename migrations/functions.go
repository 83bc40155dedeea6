package migrations

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ownFunctionsSQL finds the functions that may be dropped. Whatever depends on
// a function and is not itself such a function keeps it, and keeps what the
// kept one depends on.
const ownFunctionsSQL = `-- migrations.ownFunctions
with recursive own as (
    select p.oid
    from pg_catalog.pg_proc p
    where p.pronamespace = 'leat'::pg_catalog.regnamespace
      and not exists (
          select from pg_catalog.pg_depend e
          where e.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass
            and e.objid = p.oid
            and e.deptype = 'e')
), uses as (
    select d.refobjid as used,
           case when d.classid = d.refclassid then d.objid end as by_function
    from pg_catalog.pg_depend d
    where d.refclassid = 'pg_catalog.pg_proc'::pg_catalog.regclass
), kept as (
    select u.used as oid
    from uses u
    where u.by_function is null
       or u.by_function not in (select oid from own)
    union
    select u.used
    from kept k
    join uses u on u.by_function = k.oid
)
select p.oid::pg_catalog.regprocedure::text as signature,
       coalesce((
           select pg_catalog.array_agg(
                      pg_catalog.format(
                          'grant execute on routine %s to %s%s',
                          p.oid::pg_catalog.regprocedure,
                          case when a.grantee = 0 then 'public' else pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(a.grantee)) end,
                          case when a.is_grantable then ' with grant option' else '' end))
           from pg_catalog.aclexplode(p.proacl) a
           where a.grantee <> p.proowner), '{}') as grants,
       p.proacl is not null as restricted
from own
join pg_catalog.pg_proc p using (oid)
where own.oid not in (select oid from kept)
order by 1`

// function is an existing function that is about to be dropped.
type function struct {
	Signature  string
	Grants     []string // statements that grant again what was granted
	Restricted bool     // its privileges are not the default ones
}

const recordSQL = `-- migrations.record
insert into leat.sql_functions (digest)
values ($1)
on conflict (singleton) do update
set digest = excluded.digest,
    at = clock_timestamp()`

// replaceFunctions makes the functions anew in one transaction, unless another
// broker has done it in the meantime.
func replaceFunctions(ctx context.Context, pool *pgxpool.Pool, want target) (bool, error) {
	tx, err := lockTx(ctx, pool)
	if err != nil {
		return false, err
	}
	defer rollback(ctx, tx)
	have, err := readState(ctx, tx)
	if err != nil {
		return false, err
	}
	if err := have.refuseNewer(want.version); err != nil {
		return false, err
	}
	if have.digest == want.digest {
		return false, nil
	}
	if err := remakeFunctions(ctx, tx, want.functions); err != nil {
		return false, err
	}
	if _, err := tx.Exec(ctx, recordSQL, want.digest); err != nil {
		return false, err
	}
	return true, tx.Commit(ctx)
}

func remakeFunctions(ctx context.Context, tx pgx.Tx, files []sqlFile) error {
	// Bodies may name functions of a later file. The empty search path makes a
	// file fail that forgets to name its schema.
	if _, err := tx.Exec(ctx, `set local check_function_bodies = off; set local search_path = ''`); err != nil {
		return err
	}
	dropped, err := dropFunctions(ctx, tx)
	if err != nil {
		return err
	}
	for _, f := range files {
		if _, err := tx.Exec(ctx, f.text); err != nil {
			return fmt.Errorf("%s: %w", place(f, err), err)
		}
	}
	return restoreGrants(ctx, tx, dropped)
}

// dropFunctions drops them in one statement, so that their order is no matter.
func dropFunctions(ctx context.Context, tx pgx.Tx) ([]function, error) {
	rows, err := tx.Query(ctx, ownFunctionsSQL)
	if err != nil {
		return nil, err
	}
	own, err := pgx.CollectRows(rows, pgx.RowToStructByName[function])
	if err != nil || len(own) == 0 {
		return nil, err
	}
	signatures := make([]string, len(own))
	for i, f := range own {
		signatures[i] = f.Signature
	}
	_, err = tx.Exec(ctx, "drop routine "+strings.Join(signatures, ", "))
	return own, err
}

// restoreGrants gives a function that came back the privileges it had.
func restoreGrants(ctx context.Context, tx pgx.Tx, dropped []function) error {
	for _, f := range dropped {
		if !f.Restricted {
			continue
		}
		var exists bool
		if err := tx.QueryRow(ctx, `select to_regprocedure($1) is not null`, f.Signature).Scan(&exists); err != nil {
			return err
		}
		if !exists {
			continue
		}
		statements := append([]string{"revoke all on routine " + f.Signature + " from public"}, f.Grants...)
		if _, err := tx.Exec(ctx, strings.Join(statements, "; ")); err != nil {
			return fmt.Errorf("restore privileges of %s: %w", f.Signature, err)
		}
	}
	return nil
}

// place says where in a file an error of the server is: "name:line".
func place(f sqlFile, err error) string {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || pg.Position == 0 {
		return f.name
	}
	// The position counts characters, from 1.
	runes := []rune(f.text)
	before := runes[:min(int(pg.Position)-1, len(runes))]
	return fmt.Sprintf("%s:%d", f.name, strings.Count(string(before), "\n")+1)
}
