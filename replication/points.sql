-- Replication points. Locks come in one order: the point, its members by name, its
-- positions by partition; of several points, by stream and name. A commit takes
-- positions only. Whoever moves a point or gives a partition to somebody else holds
-- the positions, so that no commit is between.

-- Makes a point, or finds it. A point that exists stays where it is, whatever the
-- start says; partitions null is any, and 1 for a new one.
create function leat.declare_point(
    stream       text,
    point        text,
    partitions   integer,
    kind         text,
    start_offset bigint,
    start_time   timestamptz,
    known_epoch  bigint,
    actor        text,
    out created    boolean,
    out channel_id integer,
    out epoch      bigint
)
language plpgsql set search_path = '' set enable_seqscan = off as $$
declare
    found_ record;
    have   leat.points;
    shares integer;
    now_   timestamptz;
begin
    found_ := leat.find_stream(stream, true);
    channel_id := found_.channel_id;
    epoch := found_.epoch;
    select p.* into have from leat.points p where p.channel_id = found_.channel_id and p.name = point;
    if not found then
        -- One point of a stream is made at a time.
        perform from leat.channels c where c.id = found_.channel_id for no key update;
        select p.* into have from leat.points p where p.channel_id = found_.channel_id and p.name = point;
    end if;
    if have.name is not null then
        created := false;
        -- How far the reader was beyond the point, nobody knows.
        perform leat.check_epoch(stream, channel_id, epoch, known_epoch, null, found_.first_offset);
        if have.partitions <> partitions then
            raise exception 'Point % of stream % has %, not %.', point, stream, leat.so_many_partitions(have.partitions),
                leat.so_many_partitions(partitions)
                using errcode = 'LE034', column = 'partitions';
        end if;
        return;
    end if;

    created := true;
    found_ := leat.find_start(stream, kind, start_offset, start_time, known_epoch, false);
    now_ := clock_timestamp();
    shares := coalesce(partitions, 1);
    insert into leat.points (channel_id, name, partitions, created_at, generation)
    values (channel_id, point, shares, now_, leat.append_point('point.created', now_, channel_id, actor,
        jsonb_build_object('point', point, 'partitions', shares, 'next', found_.next_offset)));
    insert into leat.point_positions (channel_id, name, partition, next_offset, committed_at)
    select declare_point.channel_id, point, g, found_.next_offset, now_
    from generate_series(0, shares - 1) g;
end
$$;

create function leat.so_many_partitions(n integer) returns text
language sql immutable set search_path = '' as $$ select n || case n when 1 then ' partition' else ' partitions' end $$;

-- The view has the time of the event.
create function leat.append_point(kind leat.event_kind, at timestamptz, channel_id integer, actor text, data jsonb) returns bigint
language plpgsql set search_path = '' as $$
declare
    appended bigint;
begin
    perform leat.fence();
    insert into leat.events (kind, at, channel_id, actor, data)
    values (kind, at, channel_id, actor, data)
    returning position into appended;
    return appended;
end
$$;

-- Commits of many callers. Each item names the last offset that was processed, in
-- one partition or in all (-1); the code of its answer is '' where it counts, be it
-- for nothing new. A member's commit counts unless somebody else holds the
-- partition, or it holds it by a later grant than that of the commit (since; null is
-- any); a commit without a member is that of an operator, and always counts. Nobody
-- waits for a position that a transaction of others holds: what needs it is answered
-- with busy and changes nothing.
create function leat.commit_points(
    channels    integer[],
    points      text[],
    partitions  smallint[],
    lasts       bigint[],
    epochs      bigint[],
    members     text[],
    joins       timestamptz[],
    generations bigint[],
    sinces      timestamptz[],
    actors      text[]
) returns table (item integer, code text, epoch bigint, resume bigint)
language plpgsql set search_path = '' set enable_seqscan = off as $$
declare
    held_channels   integer[];
    held_points     text[];
    held_partitions smallint[];
    now_            timestamptz;
begin
    select array_agg(h.channel_id), array_agg(h.name), array_agg(h.partition)
    into held_channels, held_points, held_partitions
    from (
        select p.channel_id, p.name, p.partition
        from (select distinct c.* from unnest(channels, points, partitions) c (channel, point, partition)) c
        join leat.point_positions p on p.channel_id = c.channel and p.name = c.point and c.partition in (p.partition, -1)
        order by p.channel_id, p.name, p.partition
        for no key update of p skip locked
    ) h;
    perform leat.fence();
    now_ := clock_timestamp();
    return query
    with asked as materialized (
        select c.n, c.channel, c.point, c.partition, c.last, c.epoch, c.member, c.joined, c.generation, c.since, c.actor
        from unnest(channels, points, partitions, lasts, epochs, members, joins, generations, sinces, actors) with ordinality
            c (channel, point, partition, last, epoch, member, joined, generation, since, actor, n)
    ), streams as materialized (
        select c.id, leat.epoch_of(c.id, c.epoch) as epoch, leat.stream_end(c.id) as end_offset
        from (select distinct a.channel from asked a) a
        join leat.channels c on c.id = a.channel and c.deleted_at is null
    ), held as materialized (
        select distinct h.channel, h.point, h.partition
        from unnest(held_channels, held_points, held_partitions) h (channel, point, partition)
    ), judged as materialized (
        select a.n, a.channel, a.point, t.partitions, p.partition, a.last, a.actor, p.next_offset, s.epoch, s.end_offset,
               case
                   when s.id is null then 'channel_not_found'
                   when p.partition is null then 'point_not_found'
                   when a.epoch <> s.epoch and a.last >= coalesce(leat.same_below(a.channel, a.epoch), 0) then 'epoch_changed'
                   when bool_or(e.partition is null) over (partition by a.n) then 'busy'
                   when a.generation <> t.generation then 'point_moved'
                   when a.member is not null and (h.member, h.joined) <> (a.member, a.joined) then 'point_taken'
                   when h.since <> a.since then 'point_taken'
                   when a.last >= s.end_offset then 'offset_ahead'
                   when a.last + 1 < p.next_offset then 'commit_behind'
                   else ''
               end as code
        from asked a
        left join streams s on s.id = a.channel
        left join leat.points t on t.channel_id = a.channel and t.name = a.point
        left join leat.point_positions p on p.channel_id = a.channel and p.name = a.point and a.partition in (p.partition, -1)
        left join held e on e.channel = p.channel_id and e.point = p.name and e.partition = p.partition
        left join leat.point_holders h on h.channel_id = p.channel_id and h.name = p.name and h.partition = p.partition
    ), moved as materialized (
        select j.channel, j.point, j.partitions, j.partition, max(j.last) as last, (array_agg(j.actor order by j.last desc))[1] as actor
        from judged j
        where j.code = '' and j.last >= j.next_offset
        group by j.channel, j.point, j.partitions, j.partition
    ), updated as (
        update leat.point_positions p
        set next_offset = m.last + 1, committed_at = now_
        from moved m
        where p.channel_id = m.channel and p.name = m.point and p.partition = m.partition
    ), logged as (
        insert into leat.events (kind, at, channel_id, actor, data)
        select 'point.committed', now_, m.channel, (array_agg(m.actor order by m.last desc))[1],
               jsonb_build_object('point', m.point) || case
                   when m.partitions = 1 then jsonb_build_object('offset', max(m.last))
                   else jsonb_build_object('positions', jsonb_object_agg(m.partition, m.last))
               end
        from moved m
        group by m.channel, m.point, m.partitions
        order by m.channel, m.point
    )
    -- Of all partitions, one that counts is enough.
    select j.n::integer, min(j.code collate "C"), min(j.epoch),
           case min(j.code collate "C")
               when 'offset_ahead' then min(j.end_offset)
               else min(j.next_offset)
           end
    from judged j
    group by j.n;
end
$$;

-- Moves a point anywhere, all its partitions, and forgets who reads with it: they
-- are told, and begin again.
create function leat.reset_point(
    stream       text,
    point        text,
    kind         text,
    start_offset bigint,
    start_time   timestamptz,
    known_epoch  bigint,
    actor        text
) returns void
language plpgsql set search_path = '' set enable_seqscan = off as $$
declare
    place    record := leat.find_start(stream, kind, start_offset, start_time, known_epoch, true);
    now_     timestamptz;
    position bigint;
begin
    perform leat.hold_point(place.channel_id, stream, point);
    now_ := clock_timestamp();
    position := leat.append_point('point.reset', now_, place.channel_id, actor,
        jsonb_build_object('point', point, 'next', place.next_offset));
    update leat.points p set generation = position where p.channel_id = place.channel_id and p.name = point;
    update leat.point_positions p
    set next_offset = place.next_offset, committed_at = now_
    where p.channel_id = place.channel_id and p.name = point;
    perform leat.forget_members(place.channel_id, point);
end
$$;

create function leat.delete_point(stream text, point text, actor text) returns void
language plpgsql set search_path = '' set enable_seqscan = off as $$
declare
    channel integer := (leat.find_stream(stream, true)).channel_id;
begin
    perform leat.hold_point(channel, stream, point);
    perform leat.append_point('point.deleted', clock_timestamp(), channel, actor, jsonb_build_object('point', point));
    perform leat.forget_members(channel, point);
    delete from leat.points p where p.channel_id = channel and p.name = point;
end
$$;

-- All points of a stream that is deleted: its channel.deleted event says so.
create function leat.drop_points(channel integer) returns void
language plpgsql set search_path = '' set enable_seqscan = off as $$
begin
    perform from leat.points p where p.channel_id = channel order by p.name for update;
    perform leat.forget_members(p.channel_id, p.name) from leat.points p where p.channel_id = channel;
    perform from leat.point_positions p where p.channel_id = channel order by p.name, p.partition for update;
    delete from leat.points p where p.channel_id = channel;
end
$$;

-- Locks a point with its positions.
create function leat.hold_point(channel integer, stream text, point text) returns void
language plpgsql as $$ -- runs under its callers' settings
begin
    perform from leat.points p where p.channel_id = channel and p.name = point for update;
    if not found then
        raise exception 'Stream % has no point %.', stream, point using errcode = 'LE033';
    end if;
    perform from leat.point_members m where m.channel_id = channel and m.name = point order by m.member for update;
    perform from leat.point_positions p where p.channel_id = channel and p.name = point order by p.partition for update;
end
$$;

create function leat.forget_members(channel integer, point text) returns void
language plpgsql as $$ -- runs under its callers' settings
begin
    delete from leat.point_members m where m.channel_id = channel and m.name = point;
    delete from leat.point_holders h where h.channel_id = channel and h.name = point;
end
$$;
