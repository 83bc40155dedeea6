-- Who reads with a point. A point with one partition belongs to who came last; the
-- partitions of a group are shared by all its members. The tables are unlogged: a
-- crash of the server empties them, and the brokers enter their members again.

-- Enters a new member, makes the point if there is none, and tells what it got.
create function leat.join_point(
    stream       text,
    point        text,
    partitions   integer,
    kind         text,
    start_offset bigint,
    start_time   timestamptz,
    known_epoch  bigint,
    actor        text,
    member       text,
    broker       text,
    out channel_id   integer,
    out epoch        bigint,
    out first_offset bigint,
    out end_offset   bigint,
    out created      boolean,
    out shares       integer,
    out generation   bigint,
    out joined       timestamptz,
    out held         smallint[],
    out since        timestamptz[],
    out nexts        bigint[]
)
language plpgsql set search_path = '' set enable_seqscan = off as $$
begin
    select d.created, d.channel_id, d.epoch into created, channel_id, epoch
    from leat.declare_point(stream, point, partitions, kind, start_offset, start_time, known_epoch, actor) d;
    select p.partitions, p.generation into shares, generation
    from leat.points p
    where p.channel_id = join_point.channel_id and p.name = point
    for no key update;
    if not found then
        raise exception 'Stream % has no point %: it was deleted just now.', stream, point using errcode = 'LE033';
    end if;
    -- Later than all before, whatever the clock does.
    joined := greatest(clock_timestamp(), (
        select max(m.joined) + interval '1 microsecond' from leat.point_members m
        where m.channel_id = join_point.channel_id and m.name = point));
    insert into leat.point_members as m (channel_id, name, member, broker, joined, until)
    values (channel_id, point, member, broker, joined, clock_timestamp() + leat.member_time())
    on conflict on constraint point_members_pkey do update
        set broker = excluded.broker, joined = excluded.joined, until = excluded.until;
    perform leat.share_point(channel_id, point);

    first_offset := coalesce((select s.first_offset from leat.streams s where s.channel_id = join_point.channel_id), 0);
    end_offset := leat.stream_end(channel_id);
    select coalesce(array_agg(h.partition order by h.partition), '{}'),
           coalesce(array_agg(h.since order by h.partition), '{}'),
           coalesce(array_agg(p.next_offset order by h.partition), '{}')
    into held, since, nexts
    from leat.point_holders h
    join leat.point_positions p using (channel_id, name, partition)
    where h.channel_id = join_point.channel_id and h.name = point and h.member = join_point.member;
    -- A group may have gone by what is trimmed in one partition only.
    perform leat.check_offset(stream, epoch, n.next, first_offset, end_offset) from unnest(nexts) n (next);
end
$$;

-- How long a member is there without a sign of life of its broker.
create function leat.member_time() returns interval
language sql immutable set search_path = '' as $$ select interval '10 s' $$;

-- Gives the partitions of a point to the members that live, evenly, and lets as many
-- as possible stay where they are. What nobody has is given at once. What a member
-- that lives is to give up it keeps until it lets go, lest two read a partition.
create function leat.share_point(channel integer, point text) returns void
language plpgsql set search_path = '' set enable_seqscan = off as $$
declare
    shares integer;
    n      integer;
    now_   timestamptz;
begin
    select p.partitions into shares from leat.points p where p.channel_id = channel and p.name = point for no key update;
    if not found then
        return;
    end if;
    -- Not the members, whose signs of life must not wait: a delete looks again at who has given one.
    perform from leat.point_positions p where p.channel_id = channel and p.name = point order by p.partition for no key update;
    now_ := clock_timestamp();
    delete from leat.point_members m where m.channel_id = channel and m.name = point and m.until < now_;
    if shares = 1 then
        delete from leat.point_members m
        where m.channel_id = channel and m.name = point
          and m.joined < (select max(l.joined) from leat.point_members l where l.channel_id = channel and l.name = point);
    end if;
    select count(*) into n from leat.point_members m where m.channel_id = channel and m.name = point;
    delete from leat.point_holders h
    where h.channel_id = channel and h.name = point
      and not exists (
          select from leat.point_members m
          where m.channel_id = channel and m.name = point and m.member = h.member);
    if n = 0 then
        return;
    end if;
    -- A newer one of the same name has what the older had.
    update leat.point_holders h
    set joined = m.joined, since = greatest(now_, h.since + interval '1 microsecond')
    from leat.point_members m
    where h.channel_id = channel and h.name = point
      and m.channel_id = channel and m.name = point and m.member = h.member and m.joined <> h.joined;
    insert into leat.point_holders as h (channel_id, name, partition, member, joined, since)
    select channel, point, w.partition, w.member, w.joined, now_
    from leat.fair_shares(channel, point, shares, n) w
    on conflict on constraint point_holders_pkey do update
        set leaving = h.member <> excluded.member,
            -- Who is to keep it after all may have stopped already: it begins anew.
            since = case when h.leaving then greatest(now_, h.since + interval '1 microsecond') else h.since end
        where h.leaving <> (h.member <> excluded.member);
end
$$;

-- Who is to hold which partition. Those who hold most get the larger shares, and what
-- is to be given up already goes first, so that the answer stays the same while it
-- goes over.
create function leat.fair_shares(channel integer, point text, shares integer, n integer)
returns table (partition smallint, member text, joined timestamptz)
language sql stable set search_path = '' set enable_seqscan = off as $$
    with holders as (
        select h.partition, h.member, h.leaving,
               row_number() over (partition by h.member order by h.leaving, h.partition) as place
        from leat.point_holders h
        where h.channel_id = channel and h.name = point
    ), members as (
        select m.member, m.joined,
               shares / n + (row_number() over (order by k.staying desc, k.held desc, m.member) <= shares % n)::integer as quota
        from leat.point_members m
        cross join lateral (
            select count(*) as held, count(*) filter (where not h.leaving) as staying
            from holders h
            where h.member = m.member
        ) k
        where m.channel_id = channel and m.name = point
    ), kept as (
        select h.partition, m.member, m.joined
        from members m
        join holders h on h.member = m.member and h.place <= m.quota
    ), free as (
        select g::smallint as partition, row_number() over (order by g) as place
        from generate_series(0, shares - 1) g
        where g not in (select k.partition from kept k)
    ), seats as (
        select m.member, m.joined, row_number() over (order by s, m.member) as place
        from members m
        cross join lateral generate_series((select count(*) from kept k where k.member = m.member) + 1, m.quota) s
    )
    select k.partition, k.member, k.joined from kept k
    union all
    select f.partition, s.member, s.joined from free f join seats s using (place)
$$;

-- Signs of life of members of a broker. Waits for nobody: answers who was reached.
create function leat.renew_members(channels integer[], points text[], members text[], joins timestamptz[]) returns setof integer
language sql set search_path = '' set enable_seqscan = off as $$
    with reached as (
        select w.n, m.channel_id, m.name, m.member
        from unnest(channels, points, members, joins) with ordinality w (channel, point, member, joined, n)
        join leat.point_members m
            on m.channel_id = w.channel and m.name = w.point and m.member = w.member and m.joined = w.joined
        for update of m skip locked
    ), renewed as (
        update leat.point_members m
        set until = clock_timestamp() + leat.member_time()
        from reached r
        where r.channel_id = m.channel_id and r.name = m.name and r.member = m.member
    )
    select r.n::integer from reached r
$$;

-- Looks after the members of a broker: all of them, each with what the broker knows.
-- Answers only where something else is the case: their partitions are others, or
-- some are to be let go of (held), nobody knows them any more (lost), somebody else
-- took their place (taken), the point was reset (moved) or deleted (deleted), or its
-- stream (gone). stale are groups of theirs with members that have gone. Waits for
-- nobody.
create function leat.watch_members(
    channels    integer[],
    points      text[],
    members     text[],
    joins       timestamptz[],
    generations bigint[],
    counts      integer[],
    latest      timestamptz[]
) returns table (item integer, state text, held smallint[], since timestamptz[], nexts bigint[], leaving smallint[])
language plpgsql set search_path = '' set enable_seqscan = off as $$
begin
    return query
    with watched as materialized (
        select w.n, w.channel, w.point, w.member, w.joined, w.generation, w.count, w.latest
        from unnest(channels, points, members, joins, generations, counts, latest) with ordinality
            w (channel, point, member, joined, generation, count, latest, n)
    ), seen as materialized (
        select w.n, w.count, w.latest,
               case
                   when c.id is null then 'gone'
                   when p.name is null then 'deleted'
                   when p.generation <> w.generation then 'moved'
                   when m.joined = w.joined and (p.partitions > 1 or h.held <> '{}') then 'held'
                   when m.joined > w.joined or (p.partitions = 1 and exists (
                       select from leat.point_members o
                       where o.channel_id = w.channel and o.name = w.point and o.joined > w.joined)) then 'taken'
                   else 'lost'
               end as state,
               h.held, h.since, h.nexts, h.leaving
        from watched w
        left join leat.channels c on c.id = w.channel and c.deleted_at is null
        left join leat.points p on p.channel_id = w.channel and p.name = w.point
        left join leat.point_members m on m.channel_id = w.channel and m.name = w.point and m.member = w.member
        cross join lateral (
            select coalesce(array_agg(h.partition order by h.partition) filter (where not h.leaving), '{}') as held,
                   coalesce(array_agg(h.since order by h.partition) filter (where not h.leaving), '{}') as since,
                   coalesce(array_agg(o.next_offset order by h.partition) filter (where not h.leaving), '{}') as nexts,
                   coalesce(array_agg(h.partition order by h.partition) filter (where h.leaving), '{}') as leaving
            from leat.point_holders h
            join leat.point_positions o using (channel_id, name, partition)
            where h.channel_id = w.channel and h.name = w.point and h.member = w.member and h.joined = w.joined
        ) h
    )
    select s.n::integer, s.state, s.held, s.since, s.nexts, s.leaving
    from seen s
    where s.state <> 'held'
       or s.leaving <> '{}'
       or cardinality(s.held) <> s.count
       or (select max(u) from unnest(s.since) u) <> s.latest
    union all
    select min(w.n)::integer, 'stale', '{}', '{}', '{}', '{}'
    from watched w
    join leat.points p on p.channel_id = w.channel and p.name = w.point and p.partitions > 1
    where exists (
        select from leat.point_members m
        where m.channel_id = w.channel and m.name = w.point and m.until < clock_timestamp())
    group by w.channel, w.point;
end
$$;

-- Enters members of a broker again, which the others have forgotten, with the
-- partitions that they had where nobody has them now.
create function leat.rejoin_point(
    channel    integer,
    point      text,
    generation bigint,
    broker     text,
    members    text[],
    joins      timestamptz[],
    partitions smallint[],
    holders    text[]
) returns void
language plpgsql set search_path = '' set enable_seqscan = off as $$
begin
    perform from leat.points p
    where p.channel_id = channel and p.name = point and p.generation = rejoin_point.generation
    for no key update;
    if not found then
        return; -- the next look tells why
    end if;
    insert into leat.point_members as m (channel_id, name, member, broker, joined, until)
    select channel, point, w.member, broker, w.joined, clock_timestamp() + leat.member_time()
    from unnest(members, joins) w (member, joined)
    order by w.member
    on conflict on constraint point_members_pkey do update
        set broker = excluded.broker, joined = excluded.joined, until = excluded.until
        where m.joined < excluded.joined;
    perform from leat.point_positions p where p.channel_id = channel and p.name = point order by p.partition for no key update;
    insert into leat.point_holders (channel_id, name, partition, member, joined, since)
    select channel, point, w.partition, m.member, m.joined, clock_timestamp()
    from unnest(partitions, holders) w (partition, member)
    join leat.point_members m on m.channel_id = channel and m.name = point and m.member = w.member
    on conflict on constraint point_holders_pkey do nothing;
    perform leat.share_point(channel, point);
end
$$;

-- Members let go of partitions (null: of none), which nobody reads for them any more,
-- and the others share them. Who holds a point for long keeps nobody for long.
create function leat.let_go(channels integer[], points text[], members text[], joins timestamptz[], partitions smallint[])
returns void
language plpgsql set search_path = '' set enable_seqscan = off set lock_timeout = '1s' as $$
declare
    shared record;
begin
    for shared in
        select p.channel_id, p.name
        from (select distinct l.* from unnest(channels, points) l (channel, point)) l
        join leat.points p on p.channel_id = l.channel and p.name = l.point
        order by p.channel_id, p.name
        for no key update of p
    loop
        -- Before the holders, as everybody: commits wait for it, or it for them.
        perform from leat.point_positions p
        where p.channel_id = shared.channel_id and p.name = shared.name
        order by p.partition
        for no key update;
        delete from leat.point_holders h
        using unnest(channels, points, members, joins, partitions) l (channel, point, member, joined, partition)
        where h.channel_id = shared.channel_id and h.name = shared.name
          and l.channel = h.channel_id and l.point = h.name
          and l.member = h.member and l.joined = h.joined and l.partition = h.partition;
        perform leat.share_point(shared.channel_id, shared.name);
    end loop;
end
$$;

-- Members go, and leave their partitions to the others.
create function leat.leave_points(channels integer[], points text[], members text[], joins timestamptz[]) returns void
language plpgsql set search_path = '' set enable_seqscan = off set lock_timeout = '1s' as $$
declare
    shared record;
begin
    for shared in
        select p.channel_id, p.name
        from (select distinct l.* from unnest(channels, points) l (channel, point)) l
        join leat.points p on p.channel_id = l.channel and p.name = l.point
        where p.partitions > 1
        order by p.channel_id, p.name
        for no key update of p
    loop
        delete from leat.point_members m
        using unnest(channels, points, members, joins) l (channel, point, member, joined)
        where m.channel_id = shared.channel_id and m.name = shared.name
          and l.channel = shared.channel_id and l.point = shared.name and m.member = l.member and m.joined = l.joined;
        perform leat.share_point(shared.channel_id, shared.name);
    end loop;
    perform from leat.points p
    join (select distinct l.* from unnest(channels, points) l (channel, point)) l on p.channel_id = l.channel and p.name = l.point
    where p.partitions = 1
    order by p.channel_id, p.name
    for no key update of p;
    delete from leat.point_members m
    using unnest(channels, points, members, joins) l (channel, point, member, joined)
    where m.channel_id = l.channel and m.name = l.point and m.member = l.member and m.joined = l.joined;
    delete from leat.point_holders h
    using unnest(channels, points, members, joins) l (channel, point, member, joined)
    where h.channel_id = l.channel and h.name = l.point and h.member = l.member and h.joined = l.joined;
end
$$;
