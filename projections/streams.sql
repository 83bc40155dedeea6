-- What was before the log begins, as the log.dropped event has it.
create function leat.dropped_state(what text) returns jsonb
language sql stable set search_path = '' as $$
    select e.data -> dropped_state.what
    from leat.log_begin b
    join leat.events e on e.position = b.event
$$;

-- The streams as the log has them, up to a position if one is given: where they begin
-- by what was trimmed, and where they end by their messages. With count it also adds
-- up the payloads that they keep, which takes a look at all of them.
create function leat.fold_streams(count boolean, upto bigint default 9223372036854775807) returns table (
    channel_id   integer,
    first_offset bigint,
    first_bytes  bigint,
    next_offset  bigint,
    bytes        bigint
)
language sql stable set search_path = '' set jit = off as $$
    with before as materialized (
        select d.channel_id, d.first_offset, d.first_bytes, d.next_offset
        from jsonb_to_recordset(leat.dropped_state('streams'))
            d (channel_id integer, first_offset bigint, first_bytes bigint, next_offset bigint)
    ), ends as materialized (
        select c.id, coalesce(t.first_offset, b.first_offset, 0) as first_offset, coalesce(t.bytes, b.first_bytes, 0) as first_bytes,
            coalesce(m.next_offset, b.next_offset, 0) as next_offset
        from leat.channels c
        left join before b on b.channel_id = c.id
        left join lateral (
            select (e.data ->> 'firstOffset')::bigint as first_offset, (e.data ->> 'bytes')::bigint as bytes
            from leat.events e
            where e.channel_id = c.id and e.kind = 'stream.trimmed' and e.position <= upto
              and e.kind in ('stream.trimmed', 'point.created', 'point.committed', 'point.reset', 'point.deleted')
            order by e.position desc
            limit 1
        ) t on true
        left join lateral (
            select e.stream_offset + coalesce(cardinality(e.message_ids), 1) as next_offset
            from leat.events e
            where e.channel_id = c.id and e.stream_offset is not null and e.position <= upto
            order by e.stream_offset desc
            limit 1
        ) m on true
        where c.kind = 'stream' and c.deleted_at is null
    ), sizes as materialized (
        select e.channel_id, sum(octet_length(o.payload)) as bytes
        from ends n
        join leat.events e on e.channel_id = n.id and e.stream_offset is not null
        cross join lateral unnest(case when e.kind = 'message.published' then array[e.position] else e.origin_ids end)
            with ordinality i (origin, place)
        join leat.events o on o.position = i.origin
        where fold_streams.count and e.stream_offset + i.place - 1 >= n.first_offset
        group by e.channel_id
    )
    select n.id, n.first_offset, n.first_bytes, n.next_offset,
        case when fold_streams.count then n.first_bytes + coalesce(s.bytes, 0) end
    from ends n
    left join sizes s on s.channel_id = n.id
$$;

-- The replication points as the log has them, a row for each partition.
create function leat.fold_points(upto bigint default 9223372036854775807) returns table (
    channel_id   integer,
    name         text,
    partitions   smallint,
    created_at   timestamptz,
    generation   bigint,
    partition    smallint,
    next_offset  bigint,
    committed_at timestamptz
)
language sql stable set search_path = '' set jit = off as $$
    with before as materialized (
        select d.*
        from jsonb_to_recordset(leat.dropped_state('points')) d (channel_id integer, name text, partitions smallint,
            created_at timestamptz, generation bigint, partition smallint, next_offset bigint, committed_at timestamptz)
        join leat.channels c on c.id = d.channel_id and c.deleted_at is null
    ), told as materialized (
        select e.channel_id, e.data ->> 'point' as name, e.kind, e.position, e.at, e.data
        from leat.events e
        join leat.channels c on c.id = e.channel_id and c.deleted_at is null
        where e.kind in ('stream.trimmed', 'point.created', 'point.committed', 'point.reset', 'point.deleted')
          and e.kind <> 'stream.trimmed'
          and e.position <= upto
        union all -- what was before, as events that would have the same effect
        select b.channel_id, b.name, 'point.created', 0, b.created_at, jsonb_build_object('partitions', b.partitions)
        from before b
        where b.partition = 0
        union all
        select b.channel_id, b.name, 'point.reset', b.generation, b.created_at, jsonb_build_object('next', b.next_offset)
        from before b
        where b.partition = 0
        union all
        select b.channel_id, b.name, 'point.committed', b.generation + 1, b.committed_at,
            jsonb_build_object('positions', jsonb_build_object(b.partition, b.next_offset - 1))
        from before b
    ), made as (
        select distinct on (t.channel_id, t.name) t.*
        from told t
        where t.kind in ('point.created', 'point.deleted')
        order by t.channel_id, t.name, t.position desc
    ), placed as (
        select distinct on (t.channel_id, t.name) t.*
        from told t
        where t.kind in ('point.created', 'point.reset')
        order by t.channel_id, t.name, t.position desc
    ), committed as (
        select t.channel_id, t.name, l.partition, t.position, t.at, l.last
        from told t
        cross join lateral (
            select 0 as partition, (t.data ->> 'offset')::bigint as last
            where t.data ? 'offset'
            union all
            select p.key::integer, p.value::bigint
            from jsonb_each_text(t.data -> 'positions') p
        ) l
        where t.kind = 'point.committed'
    )
    select m.channel_id, m.name, (m.data ->> 'partitions')::smallint, m.at, p.position, g.partition::smallint,
        coalesce(c.next_offset, (p.data ->> 'next')::bigint), coalesce(c.at, p.at)
    from made m
    join placed p on p.channel_id = m.channel_id and p.name = m.name
    cross join lateral generate_series(0, (m.data ->> 'partitions')::integer - 1) g (partition)
    left join lateral (
        select max(c.last) + 1 as next_offset, max(c.at) as at
        from committed c
        where c.channel_id = m.channel_id and c.name = m.name and c.partition = g.partition and c.position > p.position
    ) c on true
    where m.kind = 'point.created'
$$;

-- The epochs of streams that came after their first one, as the log has them.
create function leat.fold_epochs(upto bigint default 9223372036854775807) returns table (
    channel_id integer,
    epoch      bigint,
    began      bigint
)
language sql stable set search_path = '' set jit = off as $$
    select k.channel_id, k.epoch, k.began
    from (
        select s.key::integer as channel_id, (e.data ->> 'epoch')::bigint as epoch, s.value::bigint as began
        from leat.events e
        cross join lateral jsonb_each_text(e.data -> 'streams') s
        where e.channel_id is null and e.message_ids is not null and e.kind = 'log.restored' and e.position <= upto
        union all
        select d.channel_id, d.epoch, d.began
        from jsonb_to_recordset(leat.dropped_state('epochs')) d (channel_id integer, epoch bigint, began bigint)
    ) k
    join leat.channels c on c.id = k.channel_id and c.deleted_at is null
$$;

-- Compares the log with the streams and their points: those that differ.
create function leat.verify_streams() returns table (
    message_id bigint,
    channel_id integer,
    log        jsonb,
    view       jsonb
)
language sql stable set search_path = '' set jit = off as $$
    select 0::bigint, coalesce(f.id, v.id), f.what, v.what
    from (
        select f.channel_id as id, 'stream' as what_of, jsonb_build_object('stream', c.name, 'first', f.first_offset,
            'trimmed', f.first_bytes, 'next', f.next_offset, 'bytes', f.bytes) as what
        from leat.fold_streams(true) f
        join leat.channels c on c.id = f.channel_id
        union all
        select f.channel_id, format('%s/%s', f.name, f.partition), to_jsonb(f) - 'channel_id'
        from leat.fold_points() f
        union all
        select f.channel_id, 'epoch ' || f.epoch, to_jsonb(f) - 'channel_id'
        from leat.fold_epochs() f
    ) f
    full join (
        select coalesce(s.channel_id, h.channel_id) as id, 'stream' as what_of, jsonb_build_object('stream', c.name,
            'first', s.first_offset, 'trimmed', s.first_bytes, 'next', h.next_offset, 'bytes', h.bytes) as what
        from leat.streams s
        full join leat.stream_heads h on h.channel_id = s.channel_id
        join leat.channels c on c.id = coalesce(s.channel_id, h.channel_id)
        union all
        select p.channel_id, format('%s/%s', p.name, t.partition), (to_jsonb(p) || to_jsonb(t)) - 'channel_id'
        from leat.points p
        left join leat.point_positions t on t.channel_id = p.channel_id and t.name = p.name
        union all
        select k.channel_id, 'epoch ' || k.epoch, to_jsonb(k) - 'channel_id'
        from leat.epochs k
        join leat.channels c on c.id = k.channel_id and c.deleted_at is null
    ) v on v.id = f.id and v.what_of = f.what_of
    where f.what is distinct from v.what
$$;

-- Makes the streams and their points what the log says, where they are not; answers
-- how many were wrong. Nobody publishes to streams, or commits, meanwhile.
create function leat.restore_streams() returns bigint
language plpgsql set search_path = '' as $$
declare
    wrong bigint;
begin
    if not exists (select from leat.verify_streams()) then
        return 0;
    end if;
    lock table leat.points, leat.point_positions, leat.streams, leat.stream_heads, leat.epochs in share row exclusive mode;
    select count(*) into wrong from leat.verify_streams();
    if wrong > 0 then
        delete from leat.point_holders;
        delete from leat.point_members;
        delete from leat.points;
        delete from leat.stream_heads;
        delete from leat.streams;
        delete from leat.epochs;
        insert into leat.epochs select f.* from leat.fold_epochs() f;
        insert into leat.streams (channel_id, first_offset, first_bytes)
        select f.channel_id, f.first_offset, f.first_bytes from leat.fold_streams(false) f;
        insert into leat.stream_heads (channel_id, next_offset, bytes)
        select f.channel_id, f.next_offset, f.bytes from leat.fold_streams(true) f;
        insert into leat.points (channel_id, name, partitions, created_at, generation)
        select distinct f.channel_id, f.name, f.partitions, f.created_at, f.generation from leat.fold_points() f;
        insert into leat.point_positions (channel_id, name, partition, next_offset, committed_at)
        select f.channel_id, f.name, f.partition, f.next_offset, f.committed_at from leat.fold_points() f;
    end if;
    return wrong;
end
$$;
