-- The partitions of the log but for the default one, in order: positions from low,
-- below high.
create function leat.partitions() returns table (name name, low bigint, high bigint)
language sql stable rows 20 set search_path = '' as $$
    select p.relname, b.bounds[1]::bigint, b.bounds[2]::bigint
    from pg_catalog.pg_inherits i
    join pg_catalog.pg_class p on p.oid = i.inhrelid
    cross join lateral regexp_match(pg_catalog.pg_get_expr(p.relpartbound, p.oid),
        'FROM \(''?(\d+)''?\) TO \(''?(\d+)') b (bounds)
    where i.inhparent = 'leat.events'::regclass
      and b.bounds is not null
    order by 2
$$;

-- An event about the log itself. It has no channel and a list of no messages: so it
-- is in the index events_batches, and is found without one of its own, which every
-- publish would pay for.
create function leat.append_log(kind leat.event_kind, actor text, data jsonb) returns bigint
language sql volatile set search_path = '' as $$
    select leat.append(append_log.kind, null, append_log.actor, '{}', append_log.data)
$$;

-- The seals whose events lie behind a position, in order, at most so many.
create function leat.seals(after bigint, most integer) returns table (event bigint, data jsonb)
language sql stable rows 1000 set search_path = '' set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
    select e.position, e.data
    from leat.events e
    where e.channel_id is null
      and e.message_ids is not null
      and e.position > seals.after
      and e.kind = 'log.sealed'
    order by e.channel_id, e.position
    limit seals.most
$$;

-- The seal that was made last, if there is one.
create function leat.last_seal() returns table (event bigint, at timestamptz, data jsonb)
language sql stable rows 1 set search_path = '' set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
    select e.position, e.at, e.data
    from leat.events e
    where e.channel_id is null
      and e.message_ids is not null
      and e.kind = 'log.sealed'
    order by e.channel_id desc, e.position desc
    limit 1
$$;

-- What there is to seal: the last seal, up to where everything is settled, or where
-- the partition of the first event after the seal ends, and how old that event is,
-- null if there is none but seals, and what was archived of them.
create function leat.unsealed(out to_position bigint, out digest text, out settled bigint, out age interval)
language plpgsql set search_path = '' set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
begin
    settled := leat.settled_position();
    select (l.data ->> 'to')::bigint, l.data ->> 'digest' into to_position, digest from leat.last_seal() l;
    to_position := coalesce(to_position, 0);
    select clock_timestamp() - e.at into age
    from leat.events e
    where e.position > to_position and e.position <= settled and e.kind not in ('log.sealed', 'log.archived')
    order by e.position
    limit 1;
    settled := least(settled, (select min(p.high) - 1 from leat.partitions() p where p.high > to_position + 1));
end
$$;
