-- The digest of the chain at a position where a seal ends, else null.
create function leat.seal_ending(at_position bigint) returns text
language sql stable set search_path = '' set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
    select e.data ->> 'digest'
    from leat.events e
    where e.channel_id is null
      and e.message_ids is not null
      and e.position > at_position
      and e.kind = 'log.sealed'
      and e.data ->> 'to' = at_position::text
    order by e.channel_id, e.position
    limit 1
$$;

-- The partitions of the log that hold, or will hold, events: where each begins and
-- ends, when, and whether all of it is settled, sealed and archived.
create function leat.log_partitions() returns table (
    name     text,
    low      bigint,
    high     bigint,
    bytes    bigint,
    events   bigint, -- about; -1: not known yet
    first_at timestamptz,
    last_at  timestamptz,
    settled  boolean,
    sealed   boolean,
    digest   text,   -- of the chain at its end, if a seal ends there
    archived boolean
)
language plpgsql set search_path = '' set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
    settled_to bigint := leat.settled_position();
    sealed_to  bigint := (select (l.data ->> 'to')::bigint from leat.last_seal() l);
    archives   int8multirange;
begin
    select range_agg(int8range((e.data ->> 'from')::bigint, (e.data ->> 'to')::bigint, '[]')) into archives
    from leat.events e
    where e.channel_id is null and e.message_ids is not null and e.kind = 'log.archived';
    return query
    select p.name::text, p.low, p.high, pg_total_relation_size(c.oid), c.reltuples::bigint, f.at, l.at,
        p.high - 1 <= settled_to, coalesce(p.high - 1 <= sealed_to, false),
        case when p.high - 1 <= sealed_to then leat.seal_ending(p.high - 1) end,
        coalesce(archives @> int8range(p.low, p.high), false)
    from leat.partitions() p
    join pg_catalog.pg_class c on c.relname = p.name and c.relnamespace = 'leat'::regnamespace
    left join lateral (
        select e.at from leat.events e where e.position >= p.low and e.position < p.high order by e.position limit 1
    ) f on true
    left join lateral (
        select e.at from leat.events e where e.position >= p.low and e.position < p.high order by e.position desc limit 1
    ) l on true
    where p.low <= settled_to + 1
    order by p.low;
end
$$;

-- Drops the partitions of the log up to a position, where one of them ends, and
-- appends the event that says so; answers its position, null if somebody else drops
-- or has dropped at the moment, or a message was copied from there after the pins
-- were read, at pinned_at. Give it a short lock_timeout: nobody appends meanwhile.
create function leat.drop_log(to_position bigint, pinned_at bigint, begins bigint, data jsonb) returns bigint
language plpgsql set search_path = '' as $$
declare
    dropped  name;
    appended bigint;
begin
    if not pg_try_advisory_xact_lock(1279607044, 7)
        or begins <> coalesce((select b.first_position from leat.log_begin b), 1)
    then
        return null;
    end if;
    lock table leat.events in access exclusive mode;
    if exists (
        select from leat.events e
        where e.kind = 'message.copied'
          and e.position > pinned_at
          and exists (select from unnest(e.origin_ids) o where o <= to_position))
    then
        return null;
    end if;
    foreach dropped in array array(select p.name from leat.partitions() p where p.high <= to_position + 1) loop
        execute format('drop table leat.%I', dropped);
    end loop;
    appended := leat.append_log('log.dropped', 'leat', data);
    insert into leat.log_begin (first_position, event) values (to_position + 1, appended)
    on conflict (singleton) do update set first_position = excluded.first_position, event = excluded.event;
    return appended;
end
$$;
