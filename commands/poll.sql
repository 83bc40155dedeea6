-- Hands out messages of one queue to several callers: request i wants wants[i]
-- messages, at least one, for leases[i] (null: the queue's). Answers a row per
-- request that got any, its messages in arrays, in the order of the queue. A
-- message of more than 8 KiB comes without headers and payload, which
-- leat.contents() reads: an array of large ones could outgrow any memory.
-- When there is less than all want, the requests get even shares, but each at least
-- grain messages, the first ones first: a delivery and its settlement cost more than
-- the messages in them.
-- from_ids, if given, are lower bounds by rank that let the scan pass over what
-- is long gone while a held snapshot keeps it in the index; only a call without
-- them finds everything. Unless durable, the transaction commits asynchronously: a
-- lost delivery is a redelivery. It has to be if anything else is in it.
create function leat.claim(
    queue        integer,
    wants        integer[],
    leases       interval[],
    consumers    text[],
    routing_keys text[],
    from_ids     bigint[],
    grain        integer,
    durable      boolean
) returns table (
    request       integer,
    delivery      bigint,
    lease_until   timestamptz,
    message_ids   bigint[],
    origin_ids    bigint[], -- null: itself
    keys          text[],
    priorities    smallint[],
    attempts      integer[],
    published_ats timestamptz[],
    content_types text[],
    headers       text[],
    payloads      bytea[]
)
language plpgsql
set search_path = ''
set plan_cache_mode = force_generic_plan -- planning anew would cost more than running
set enable_seqscan = off -- queue tables swing between empty and full: a plan must not
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off as $$
declare
    known   record;
    channel leat.channels;
    picks   leat.pick[];
    now_    timestamptz := clock_timestamp();
    drawn   bigint[];
begin
    if not durable then
        perform set_config('synchronous_commit', 'off', true);
    end if;
    select c as channel, exists (select from leat.views_alive) as alive into known
    from leat.channels c
    where c.id = queue and c.deleted_at is null and c.kind = 'queue';
    if not found then
        raise exception 'no queue with id %', queue using errcode = 'LE002';
    elsif not known.alive then
        perform leat.need_views();
    end if;
    channel := known.channel;

    if channel.mode = 'fifo' then
        picks := leat.pick_fifo(queue, now_, wants, routing_keys, coalesce(from_ids[1], 0), grain);
    else
        picks := leat.pick_standard(channel, now_, wants, routing_keys, from_ids, grain);
    end if;
    if picks = '{}' then
        return;
    end if;

    -- The position of a request's event is its delivery. Those that got something
    -- are the first ones.
    perform leat.fence();
    drawn := array(
        select nextval('leat.position_seq')
        from generate_series(1, case when cardinality(wants) = 1 then 1 else (select max(p.request) from unnest(picks) p) end));

    if exists (select from unnest(picks) p where p.upto - p.start + 1 < p.size) then
        -- A run that was taken in parts: the parts become runs of their own ...
        insert into leat.queue_runs (channel_id, fifo, first_id, state, rank, routing_key, expires_at, ids, origins, headers,
            delivery, due_at, owner, deliveries)
        select r.channel_id, r.fifo, r.ids[p.start], 2, r.rank, r.routing_key, r.expires_at, r.ids[p.start:p.upto],
            r.origins[p.start:p.upto], r.headers, drawn[p.request], now_ + coalesce(leases[p.request], channel.lease), consumers[p.request], r.deliveries + 1
        from unnest(picks) p
        join leat.queue_runs r on r.ctid = p.tid
        where p.start > 1 or p.upto < p.size;
        -- ... and what nobody took stays what it was,
        update leat.queue_runs r
        set ids = r.ids[p.upto + 1:], origins = r.origins[p.upto + 1:], first_id = r.ids[p.upto + 1]
        from (
            select p.tid, max(p.upto) as upto
            from unnest(picks) p
            group by p.tid
            having max(p.upto) < max(p.size)
        ) p
        where r.ctid = p.tid;
        delete from leat.queue_runs r
        using (
            select p.tid from unnest(picks) p
            group by p.tid
            having count(*) > 1 and max(p.upto) = max(p.size)
        ) p
        where r.ctid = p.tid;
    end if;
    -- while a run that one request took whole just moves.
    update leat.queue_runs r
    set state = 2, delivery = drawn[p.request], deliveries = r.deliveries + 1,
        due_at = now_ + coalesce(leases[p.request], channel.lease), owner = consumers[p.request]
    from unnest(picks) p
    where r.ctid = p.tid and p.start = 1 and p.upto = p.size;

    insert into leat.events (position, at, kind, channel_id, actor, delivery, due_at, message_ids)
    select d.delivery, now_, 'message.delivered', queue, consumers[d.n], d.delivery,
        now_ + coalesce(leases[d.n], channel.lease),
        array(
            select i.id
            from leat.queue_runs r
            cross join lateral unnest(r.ids) i (id)
            where r.delivery = d.delivery and r.state = 2
            order by r.rank, i.id)
    from unnest(drawn) with ordinality d (delivery, n);

    -- Sorted before the payloads are read, so that these are moved just once.
    return query
    select m.n, drawn[m.n], now_ + coalesce(leases[m.n], channel.lease), array_agg(m.id), array_agg(m.origin),
        array_agg(m.routing_key),
        array_agg(m.priority), array_agg(m.deliveries), array_agg(e.at), array_agg(e.content_type),
        array_agg(case
            when m.headers is not null then (coalesce(e.headers, '{}') || m.headers)::text
            when octet_length(e.payload) + coalesce(pg_column_size(e.headers), 0) <= 8192 then e.headers::text end),
        array_agg(case when octet_length(e.payload) + coalesce(pg_column_size(e.headers), 0) <= 8192 then e.payload end)
    from (
        select d.n::integer as n, i.id, r.origins[i.place] as origin, r.headers, r.routing_key, (9 - r.rank)::smallint as priority,
            r.deliveries
        from unnest(drawn) with ordinality d (delivery, n)
        join leat.queue_runs r on r.delivery = d.delivery
        cross join lateral unnest(r.ids) with ordinality i (id, place)
        where r.delivery = any (drawn) and r.state = 2
        order by 1, r.rank, i.id
    ) m
    join leat.events e on e.position = coalesce(m.origin, m.id)
    group by m.n;
end
$$;

-- What leat.claim left out of large messages, by origin.
create function leat.contents(origin_ids bigint[]) returns table (origin_id bigint, headers text, payload bytea)
language sql stable as $$
    select e.position, e.headers::text, e.payload
    from leat.events e
    where e.position = any (contents.origin_ids)
$$;

-- Picks from a standard queue, higher priority first, older first. Runs that
-- another claim holds are passed over.
create function leat.pick_standard(
    channel      leat.channels,
    now_         timestamptz,
    wants        integer[],
    routing_keys text[],
    from_ids     bigint[],
    grain        integer
) returns leat.pick[]
language plpgsql
set enable_sort = off as $$ -- the rest is set by leat.claim
declare
    -- Lazily, rank by rank: ten short index descents at most, and no more rows
    -- read than handed out.
    heads cursor for
        select h.tid, h.size
        from generate_series(0, 9) k (rank)
        cross join lateral (
            select r.ctid as tid, cardinality(r.ids) as size
            from leat.queue_runs r
            where r.channel_id = channel.id and r.state = 0 and not r.fifo and r.rank = k.rank
              and r.first_id >= coalesce(from_ids[k.rank + 1], 0)
              and (r.expires_at is null or r.expires_at > now_)
            order by r.first_id
            for update skip locked
        ) h;
    aged cursor for
        select h.tid, h.size
        from (
            select k.rank
            from generate_series(0, 9) k (rank)
            cross join lateral (
                select r.first_id
                from leat.queue_runs r
                where r.channel_id = channel.id and r.state = 0 and not r.fifo and r.rank = k.rank
                order by r.first_id
                limit 1
            ) f
            cross join lateral ( -- a copy has no event under its id: its own comes just after
                select e.at from leat.events e where e.position >= f.first_id order by e.position limit 1
            ) e
            order by e.at + k.rank * channel.priority_ageing
        ) k
        cross join lateral (
            select r.ctid as tid, cardinality(r.ids) as size
            from leat.queue_runs r
            where r.channel_id = channel.id and r.state = 0 and not r.fifo and r.rank = k.rank
              and (r.expires_at is null or r.expires_at > now_)
            order by r.first_id
            for update skip locked
        ) h;
    keyed cursor for
        select h.tid, h.size
        from generate_series(0, 9) k (rank)
        cross join lateral (
            select r.ctid as tid, cardinality(r.ids) as size
            from (select distinct u.key from unnest(routing_keys) u (key)) f
            join leat.queue_runs r on r.channel_id = channel.id and r.routing_key = f.key
            where r.state = 0 and r.rank = k.rank
              and (r.expires_at is null or r.expires_at > now_)
            for update of r skip locked
        ) h;
    source  refcursor;
    head    record;
    picks   leat.pick[] := '{}';
    request integer := 1;
    need    integer := wants[1];
    taken   integer;
    part    integer;
begin
    if routing_keys is not null then
        open keyed;
        source := keyed;
    elsif channel.priority_ageing > interval '0' then
        open aged;
        source := aged;
    else
        open heads;
        source := heads;
    end if;
    <<runs>>
    loop
        fetch source into head;
        exit when not found;
        taken := 0;
        while taken < head.size loop
            while need = 0 loop
                request := request + 1;
                exit runs when request > cardinality(wants);
                need := wants[request];
            end loop;
            part := least(need, head.size - taken);
            picks := picks || row(head.tid, request, taken + 1, taken + part, head.size)::leat.pick;
            taken := taken + part;
            need := need - part;
        end loop;
        exit when need = 0 and request = cardinality(wants);
    end loop;
    close source;
    if cardinality(wants) > 1 and picks <> '{}' and (need > 0 or request < cardinality(wants)) then
        return leat.share(picks, wants, grain);
    end if;
    return picks;
end
$$;

-- Divides what was picked, which is less than all want, evenly among the requests,
-- but gives at least grain messages to each, the first ones first. Those that get
-- something are the first ones.
create function leat.share(picks leat.pick[], wants integer[], grain integer) returns leat.pick[]
language plpgsql as $$
declare
    shares  integer[] := array_fill(0, array[cardinality(wants)]);
    shared  leat.pick[] := '{}';
    pick    leat.pick;
    total   integer := (select sum(p.upto - p.start + 1) from unnest(picks) p);
    left_   integer := total;
    open    integer := cardinality(wants); -- requests that want more than the level
    level   integer;
    want    integer;
    request integer := 1;
    taken   integer;
    part    integer;
begin
    foreach want in array array(select w from unnest(wants) w order by w) loop
        exit when want * open > left_;
        left_ := left_ - want;
        open := open - 1;
    end loop;
    level := case when open = 0 then total else greatest(grain, left_ / open) end;
    left_ := total;
    for i in 1 .. cardinality(wants) loop
        shares[i] := least(wants[i], level, left_);
        left_ := left_ - shares[i];
    end loop;
    for i in 1 .. cardinality(wants) loop
        exit when left_ = 0;
        continue when shares[i] = wants[i];
        shares[i] := shares[i] + 1;
        left_ := left_ - 1;
    end loop;

    foreach pick in array picks loop
        continue when pick.start > 1; -- its run was all taken with the first part
        taken := 0;
        while taken < pick.size loop
            while shares[request] = 0 loop
                request := request + 1;
            end loop;
            part := least(shares[request], pick.size - taken);
            shared := shared || row(pick.tid, request, taken + 1, taken + part, pick.size)::leat.pick;
            taken := taken + part;
            shares[request] := shares[request] - part;
        end loop;
    end loop;
    return shared;
end
$$;

-- Picks from a FIFO queue: locks a free lane, then reads its runs in a later
-- statement, which sees all that was committed before the lock. One lane serves
-- one request only: one delivery of a key in flight at a time. Requests take turns
-- at the lanes, after at least grain messages.
create function leat.pick_fifo(
    queue        integer,
    now_         timestamptz,
    wants        integer[],
    routing_keys text[],
    from_id      bigint,
    grain        integer
) returns leat.pick[]
language plpgsql
set enable_sort = off as $$ -- the rest is set by leat.claim
declare
    every cursor for
        select l.routing_key, l.head_id
        from leat.lanes l
        where l.channel_id = queue and l.state = 0 and l.head_id >= from_id
        order by l.head_id
        for update skip locked;
    keyed cursor for
        select l.routing_key, l.head_id
        from leat.lanes l
        where l.channel_id = queue and l.routing_key = any (routing_keys)
          and (l.state = 0 or (l.state = 1 and l.due_at <= now_))
        for update skip locked;
    source  refcursor;
    lane    record;
    run     record;
    picks   leat.pick[] := '{}';
    needs   integer[] := wants;
    open    integer[] := array(select generate_subscripts(wants, 1)); -- requests that need more
    turn    integer := 1;                                             -- in open
    request integer;
    need    integer;
    streak  integer := 0; -- messages that the request got in its turn
    part    integer;
    got     integer;
    stray   boolean;
    empty   text[] := '{}';
begin
    if routing_keys is not null then
        open keyed;
        source := keyed;
    else
        open every;
        source := every;
    end if;
    loop
        exit when open = '{}';
        fetch source into lane;
        exit when not found;
        request := open[turn];
        need := needs[request];
        got := 0;
        stray := false;
        for run in
            select r.ctid as tid, cardinality(r.ids) as size, r.state, r.due_at, r.expires_at,
                not r.ids <@ (
                    select c.admitted from leat.circuits c
                    where c.channel_id = queue and c.routing_key = lane.routing_key and c.state <> 'closed') as held
            from leat.queue_runs r
            where r.channel_id = queue and r.routing_key = lane.routing_key and r.state <= 1 and r.rank = 9
              and r.first_id >= case when lane.head_id = 9223372036854775807 then 0 else lane.head_id end
            order by r.first_id
        loop
            continue when run.expires_at <= now_; -- the sweeper takes it
            if run.held then
                stray := true; -- came while the circuit opened: to the dead letters
                continue;
            end if;
            exit when run.state = 1 and run.due_at > now_;
            part := least(need - got, run.size);
            picks := picks || row(run.tid, request, 1, part, run.size)::leat.pick;
            got := got + part;
            exit when got = need;
        end loop;
        if stray then
            update leat.circuits c set straggling = true
            where c.channel_id = queue and c.routing_key = lane.routing_key and not c.straggling;
        end if;
        if got = 0 then
            empty := empty || lane.routing_key;
        else
            update leat.lanes l
            set state = 2, in_flight = got, due_at = null
            where l.channel_id = queue and l.routing_key = lane.routing_key;
            needs[request] := need - got;
            streak := streak + got;
            if need = got then
                open := open[:turn - 1] || open[turn + 1:];
                streak := 0;
            elsif streak >= grain then
                turn := turn + 1;
                streak := 0;
            end if;
            if turn > cardinality(open) then
                turn := 1;
            end if;
        end if;
    end loop;
    close source;
    if empty <> '{}' then
        perform leat.free_lanes(now_, array(select queue from unnest(empty)), empty, array(select 0 from unnest(empty)));
    end if;
    return picks;
end
$$;
