-- Makes partitions of the log until two full ones lie ahead of the sequence;
-- answers how many it made. If the maker was late, rows are in the default
-- partition: that one then becomes the ordinary partition of its range and a
-- new default takes its place, so no row moves. So it is when somebody has dropped
-- the partition that was written to, but what is gone stays a gap.
-- Give it a lock_timeout: attaching waits for readers of the default partition.
create function leat.make_partitions(size bigint default 8388608) returns integer
language plpgsql set search_path = '' as $$
declare
    upper bigint;
    last  bigint;
    made  integer := 0;
    begins bigint; -- of the partition that the default one becomes
    ends   bigint;
begin
    if not pg_try_advisory_xact_lock(1279607044, 1) then
        return 0;
    end if;
    select coalesce(max((regexp_match(pg_get_expr(p.relpartbound, p.oid), 'TO \(''?(\d+)'))[1]::bigint), 1)
    into upper
    from pg_catalog.pg_inherits i
    join pg_catalog.pg_class p on p.oid = i.inhrelid
    where i.inhparent = 'leat.events'::regclass;

    if exists (select from leat.events_default) then
        alter table leat.events detach partition leat.events_default;
        select min(d.position), max(d.position) into begins, last from leat.events_default d;
        select g.high + 1 into ends from leat.log_gaps() g where begins between g.low and g.high;
        if ends is null then
            begins := upper;
            ends := upper + (last - upper) / size * size + size;
        end if;
        execute format('alter table leat.events_default rename to %I', 'events_' || begins);
        execute format('alter index leat.events_default_pkey rename to %I', 'events_' || begins || '_pkey');
        execute format('alter index if exists leat.events_default_channel_id_position_idx rename to %I',
            'events_' || begins || '_channel_id_position_idx');
        execute format('alter table leat.events attach partition leat.%I for values from (%s) to (%s)', 'events_' || begins, begins, ends);
        upper := greatest(upper, ends);
        create table leat.events_default partition of leat.events default;
        create trigger append_only_truncate before truncate on leat.events_default
            for each statement execute function leat.refuse_change();
        made := 1;
    end if;

    select s.last_value into last from leat.position_seq s;
    if upper >= last + 2 * size then
        return made;
    end if;
    -- No range can be attached that has rows in the default partition. Whoever
    -- has put one there since we looked is waited for here; the next round
    -- makes room for it.
    lock table leat.events_default in access exclusive mode;
    if exists (select from leat.events_default) then
        return made;
    end if;
    while upper < last + 2 * size loop
        -- Attached, not created as a partition: that would lock the whole log.
        execute format('create table leat.%I (like leat.events including defaults including indexes)', 'events_' || upper);
        execute format('create trigger append_only_truncate before truncate on leat.%I '
            'for each statement execute function leat.refuse_change()', 'events_' || upper);
        execute format('alter table leat.events attach partition leat.%I for values from (%s) to (%s)',
            'events_' || upper, upper, upper + size);
        upper := upper + size;
        made := made + 1;
    end loop;
    return made;
end
$$;
