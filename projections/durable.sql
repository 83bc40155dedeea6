-- Makes the queue views survive a crash of the server, or spares their WAL;
-- answers whether that was news. Either way the tables are written anew, and
-- polls, settlements and publishes wait, at most the caller's lock_timeout for
-- the locks.
create function leat.set_durable_views(durable boolean) returns boolean
language plpgsql set search_path = '' as $$
declare
    wanted "char" := case when durable then 'p' else 'u' end;
begin
    -- Not while a rebuild or another broker is at it.
    perform pg_advisory_xact_lock(1279607044, 2);
    if not exists (
        select from pg_class c
        where c.oid in ('leat.views_alive'::regclass, 'leat.queue_runs'::regclass, 'leat.lanes'::regclass)
          and c.relpersistence <> wanted)
    then
        return false;
    end if;
    -- In the order in which all others take them.
    lock table leat.views_alive, leat.queue_runs, leat.lanes in access exclusive mode;
    if durable then
        alter table leat.views_alive set logged;
        alter table leat.queue_runs set logged;
        alter table leat.lanes set logged;
    else
        alter table leat.views_alive set unlogged;
        alter table leat.queue_runs set unlogged;
        alter table leat.lanes set unlogged;
    end if;
    return true;
end
$$;
