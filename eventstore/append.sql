-- Fences the transaction (the view leat.fence), for statements that do not do it themselves.
create function leat.fence() returns void
language plpgsql as $$
begin
    perform f.fenced from leat.fence f;
end
$$;

-- One event that is not a message of its own; its position.
create function leat.append(
    kind        leat.event_kind,
    channel_id  integer,
    actor       text,
    message_ids bigint[] default null,
    data        jsonb default null,
    delivery    bigint default null,
    due_at      timestamptz default null
) returns bigint
language plpgsql set search_path = '' as $$
declare
    appended bigint;
begin
    perform leat.fence();
    insert into leat.events (kind, channel_id, actor, message_ids, data, delivery, due_at)
    values (kind, channel_id, actor, message_ids, data, delivery, due_at)
    returning position into appended;
    return appended;
end
$$;

-- The highest position below which every event is committed or rolled back for
-- good. The sequence is read first and the locks in a later statement: whatever
-- had drawn a position up to the first reading holds its lock at the second, or
-- has ended. What is read up to here must be read in a statement after this one.
create function leat.settled_position() returns bigint
language plpgsql set search_path = '' as $$
declare
    last bigint;
    held bigint;
begin
    select s.last_value into last from leat.position_seq s;
    -- objid holds the value modulo 2^31; a holder that started after the first
    -- reading comes out as a huge distance and counts as none.
    select max(h.distance) into held
    from (
        select mod(mod(last - l.objid::bigint, 2147483648) + 2147483648, 2147483648) as distance
        from pg_catalog.pg_locks l
        where l.locktype = 'advisory'
          and l.classid = 1279607041
          and l.objsubid = 2
          and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
    ) h
    where h.distance < 1073741824;
    return last - coalesce(held, 0);
end
$$;
