-- Publishes many messages of many callers in one transaction.
-- Every array has one element per message, or is null when no message uses it.
-- requests groups the messages that stand or fall together. Answers the ids and,
-- unless everything was stored, a status each: 0 stored, 1 duplicate, 2 dedup
-- conflict, 3 busy, 4 no such channel, 5 refused with its request, 6 priority on
-- a FIFO queue, 7 priority, delay or expiry in a stream. dead tells which went to the dead letters at once (null: none);
-- message route_of[i] (route_of is null: every one) was copied to the channel with
-- route_ids[i] and route_names[i]; route_dead tells which copies went to the dead
-- letters (null: none). offsets are those of messages in streams (null: none).
-- knows is how many readers of the write-ahead log need not be told (leat.wake).
-- With wait = false nothing in here waits for another transaction for long: for
-- streams, which others publish to all the time, patience in milliseconds.
create function leat.publish_many(
    requests      integer[],
    channels      integer[],
    routing_keys  text[],
    payloads      bytea[],
    content_types text[],
    headers       text[],
    priorities    smallint[],
    delays        interval[],
    due_ats       timestamptz[],
    ttls          interval[],
    expires_ats   timestamptz[],
    dedup_ids     text[],
    actors        text[],
    wait          boolean,
    patience      integer default 0,
    knows         integer default 0,
    out ids       bigint[],
    out statuses  smallint[],
    out dead      boolean[],
    out route_of    integer[],
    out route_ids   integer[],
    out route_names text[],
    out route_dead  boolean[],
    out offsets     bigint[]
)
language plpgsql
set search_path = ''
set plan_cache_mode = force_generic_plan -- planning anew would cost more than running
set enable_seqscan = off -- queue tables swing between empty and full: a plan must not
set enable_bitmapscan = off
set jit = off as $$
declare
    now_    timestamptz;
    live    integer[];
    fifos   integer[]; -- of channels and of the targets of links
    streams integer[]; -- likewise
    ordered integer[]; -- both
    exchanges integer[];
    linked  boolean;
    refused integer[];
    alive   boolean;
    waiting boolean;
    others  boolean; -- other brokers read the write-ahead log
    sizes   bigint[]; -- of payloads; null without streams
    deaths  bigint[];
    places  smallint[]; -- statuses, and 9 for what has no place because its channel is no queue
    alike   boolean := false; -- all go the same ways under the same keys
    route_keys text[];
    -- Where messages and copies enter: those themselves, and behind them the copies.
    all_of       integer[];
    all_channels integer[] := channels;
    all_keys     text[] := routing_keys;
begin
    if not wait then
        perform set_config('lock_timeout', '100ms', true);
    end if;
    -- A channel is not deleted under an open publish.
    perform pg_advisory_xact_lock_shared(1279607042, c.id)
    from (select distinct u.id from unnest(channels) u (id) order by 1) c;
    perform leat.fence();

    select array_agg(c.id), array_agg(c.id) filter (where c.mode = 'fifo'), array_agg(c.id) filter (where c.kind = 'exchange'),
        array_agg(c.id) filter (where c.kind = 'stream'), bool_or(c.linked)
    into live, fifos, exchanges, streams, linked
    from leat.channels c
    where c.id = any (channels) and c.deleted_at is null;

    if not channels <@ coalesce(live, '{}') then
        select array_agg(case when u.c = any (live) then 0 else 4 end order by u.n) into statuses
        from unnest(channels) with ordinality u (c, n);
    end if;

    if fifos is not null then
        if exists (select from unnest(channels, priorities) u (c, p) where u.p <> 0 and u.c = any (fifos)) then
            select array_agg(case when coalesce(u.s, 0) = 0 and u.p <> 0 and u.c = any (fifos) then 6 else coalesce(u.s, 0) end order by u.n)
            into statuses
            from unnest(channels, priorities, statuses) with ordinality u (c, p, s, n);
        end if;
    end if;
    if streams is not null and num_nonnulls(priorities, delays, due_ats, ttls, expires_ats) > 0 then
        select array_agg(
            case
                when coalesce(u.s, 0) = 0 and u.c = any (streams)
                    and (u.p <> 0 or num_nonnulls(u.delay, u.due, u.ttl, u.expires) > 0)
                then 7
                else coalesce(u.s, 0)
            end order by u.n)
        into statuses
        from unnest(channels, priorities, delays, due_ats, ttls, expires_ats, statuses) with ordinality
            u (c, p, delay, due, ttl, expires, s, n);
    end if;

    if linked then
        alike := statuses is null and num_nulls(headers, priorities, delays, due_ats, ttls, expires_ats, dedup_ids) = 7
            and channels[1] = all (channels) and routing_keys[1] = all (routing_keys)
            and (actors is null or coalesce(actors[1] = all (actors), false));
        select array_agg(r.n), array_agg(r.target_id), array_agg(r.routing_key)
        into route_of, route_ids, route_keys
        from (
            select r.*
            from leat.routes_of(case when alike then channels[1:1] else channels end,
                case when alike then routing_keys[1:1] else routing_keys end, headers::jsonb[]) r
            order by r.n, r.target_id
        ) r
        where coalesce(statuses[r.n], 0) = 0;
    end if;
    if route_ids is not null then
        -- No target is deleted meanwhile: that takes the locks of all that lead there.
        select array_agg(u.n), array_agg(u.target), array_agg(u.key), array_agg(u.name)
        into route_of, route_ids, route_keys, route_names
        from (
            select u.n, u.target, u.key, c.name
            from unnest(route_of, route_ids, route_keys) with ordinality u (n, target, key, i)
            join leat.channels c on c.id = u.target
            order by u.i
        ) u;
        all_of := array(select n from generate_subscripts(channels, 1) n) || route_of;
        all_channels := channels || route_ids;
        all_keys := routing_keys || route_keys;
        fifos := nullif(coalesce(fifos, '{}')
            || array(select c.id from leat.channels c where c.id = any (route_ids) and c.mode = 'fifo'), '{}');
        streams := nullif(coalesce(streams, '{}')
            || array(select c.id from leat.channels c where c.id = any (route_ids) and c.mode = 'stream'), '{}');
    end if;

    ordered := case when streams is null then fifos else coalesce(fifos, '{}') || streams end;
    if ordered is not null then
        -- The append lock of each key, and of each stream, in one order: positions of
        -- a key, and offsets of a stream, are then drawn in commit order.
        if wait then
            perform pg_advisory_xact_lock(1279607043, b.lock)
            from (
                select distinct leat.append_lock(u.c, case when u.c = any (streams) then '' else u.k end) as lock
                from unnest(all_channels, all_keys) u (c, k)
                where u.c = any (ordered)
                order by 1
            ) b;
        else
            select array_agg(b.lock) into refused
            from (
                select distinct leat.append_lock(u.c, case when u.c = any (streams) then '' else u.k end) as lock
                from unnest(all_channels, all_keys) u (c, k)
                where u.c = any (ordered)
                order by 1
            ) b
            where not pg_try_advisory_xact_lock(1279607043, b.lock);
            if refused is not null and streams is not null and patience > 0 then
                refused := leat.await_streams(streams, refused, patience);
            end if;
            if refused is not null then
                -- A message is as busy as the busiest of its copies.
                refused := array(
                    select distinct coalesce(all_of[u.i], u.i)
                    from unnest(all_channels, all_keys) with ordinality u (c, k, i)
                    where u.c = any (ordered)
                      and leat.append_lock(u.c, case when u.c = any (streams) then '' else u.k end) = any (refused));
                select array_agg(case when coalesce(u.s, 0) = 0 and (alike or u.n = any (refused)) then 3 else coalesce(u.s, 0) end order by u.n)
                into statuses
                from unnest(requests, statuses) with ordinality u (r, s, n);
            end if;
        end if;
    end if;

    now_ := clock_timestamp();
    select array(select nextval('leat.position_seq') from generate_subscripts(requests, 1)),
        exists (select from leat.views_alive),
        exists (select from leat.unplaced),
        (select count(*) from leat.brokers b where b.until > now_ and b.tail = 'wal') > coalesce(knows, 0)
    into ids, alive, waiting, others;

    if dedup_ids is not null then
        select d.ids, d.statuses into ids, statuses
        from leat.deduplicate(now_, ids, channels, routing_keys, payloads, content_types, headers, dedup_ids, statuses) d;
    end if;

    if statuses is not null then
        statuses := leat.refuse_requests(requests, channels, ids, dedup_ids, statuses);
        if not exists (select from unnest(statuses) u (s) where u.s <> 0) then
            statuses := null;
        end if;
    end if;

    if streams is not null then
        -- A later statement than the one that locks: it sees the heads as they are now.
        sizes := array(select octet_length(p.payload) from (select unnest(payloads) as payload) p);
        offsets := leat.take_offsets(channels, streams, sizes, statuses);
    end if;

    insert into leat.events (position, at, kind, channel_id, stream_offset, routing_key, payload, content_type, headers,
        priority, due_at, expires_at, actor, data)
    select u.id, now_, 'message.published', u.channel, u.stream_offset, u.key, u.payload,
        nullif(u.content_type, 'application/json'), nullif(u.headers, '{}')::jsonb,
        nullif(u.priority, 0), coalesce(u.due_at, now_ + u.delay), coalesce(u.expires_at, now_ + u.ttl), u.actor,
        case when u.dedup_id is not null then jsonb_build_object('dedupId', u.dedup_id) end
    from (
        -- In step, shorter ones padded with null, and without the copy that unnest
        -- in the from clause makes of each array.
        select unnest(ids) as id, unnest(channels) as channel, unnest(routing_keys) as key, unnest(payloads) as payload,
            unnest(content_types) as content_type, unnest(headers) as headers, unnest(priorities) as priority,
            unnest(delays) as delay, unnest(due_ats) as due_at, unnest(ttls) as ttl, unnest(expires_ats) as expires_at,
            unnest(dedup_ids) as dedup_id, unnest(actors) as actor, unnest(statuses) as status,
            unnest(offsets) as stream_offset
    ) u
    where coalesce(u.status, 0) = 0;

    if streams is not null and dedup_ids is not null and statuses is not null then
        -- A duplicate has the offset of the first one.
        offsets := array(
            select coalesce(u.o, (select e.stream_offset from leat.events e where e.position = u.id and u.s = 1))
            from unnest(ids, offsets, statuses) with ordinality u (id, o, s, n)
            order by u.n);
    end if;
    if wait or others then
        perform leat.wake(channels || route_ids, case when wait then 0 else knows end);
    end if;
    if alive and waiting then
        -- A transaction of somebody else's may stay open, and must not be the one that places.
        if not wait then
            perform leat.place_unplaced();
        end if;
        -- What of the same keys could not be placed goes first: this queues up behind it.
        alive := fifos is null or not exists (
            select from leat.unplaced u
            where u.channel_id = any (fifos)
              and (u.channel_id, u.routing_key) in (select c, k from unnest(all_channels, all_keys) m (c, k)));
    end if;
    if fifos is not null then
        deaths := leat.deaths_by_circuit(now_, ids, channels, routing_keys, fifos, statuses);
        if deaths is not null then
            dead := array(select d.position is not null from unnest(deaths) with ordinality d (position, n) order by d.n);
        end if;
    end if;
    places := statuses;
    exchanges := case when streams is null then exchanges else coalesce(exchanges, '{}') || streams end;
    if exchanges is not null then
        places := array(
            select case when u.c = any (exchanges) then 9 else coalesce(u.s, 0) end
            from unnest(channels, statuses) with ordinality u (c, s, n)
            order by u.n);
    end if;
    if exchanges is null or not channels <@ exchanges then
        perform leat.place(alive, now_, ids, channels, fifos, routing_keys, priorities, delays, due_ats, ttls, expires_ats, places,
            deaths => deaths);
    end if;
    if route_ids is null or (alike and statuses is not null) then
        return;
    end if;

    -- Copies of what was stored.
    fifos := nullif(array(select c.id from leat.channels c where c.id = any (route_ids) and c.mode = 'fifo'), '{}');
    if streams is not null then
        streams := nullif(array(select c.id from leat.channels c where c.id = any (route_ids) and c.mode = 'stream'), '{}');
    end if;
    if alike then
        if alive and not (fifos is not null
            and exists (select from leat.circuits c where c.channel_id = any (fifos) and c.state <> 'closed'))
        then
            perform leat.copy_alike(now_, actors[1], channels[1], ids, route_ids, route_keys, fifos, streams, sizes);
            route_of := null;
            return;
        end if;
        select array_agg(u.n), array_agg(u.target), array_agg(u.name), array_agg(u.key)
        into route_of, route_ids, route_names, route_keys
        from (
            select m.n, u.target, u.name, u.key
            from generate_subscripts(ids, 1) m (n)
            cross join unnest(route_ids, route_names, route_keys) u (target, name, key)
            order by m.n
        ) u;
    elsif statuses is not null then
        select array_agg(u.n), array_agg(u.target), array_agg(u.name), array_agg(u.key)
        into route_of, route_ids, route_names, route_keys
        from (
            select u.n, u.target, u.name, u.key
            from unnest(route_of, route_ids, route_names, route_keys) with ordinality u (n, target, name, key, i)
            where coalesce(statuses[u.n], 0) = 0
            order by u.i
        ) u;
        if route_of is null then
            return;
        end if;
    end if;
    select leat.copy_messages(alive, now_, 'link', array_agg(u.actor), array_agg(u.source), array_agg(u.parent), array_agg(u.parent),
        route_ids, route_keys, fifos, streams, array_agg(u.size),
        case when priorities is not null then array_agg(u.priority) end,
        case when num_nonnulls(due_ats, delays) > 0 then array_agg(u.due) end,
        case when num_nonnulls(expires_ats, ttls) > 0 then array_agg(u.expires) end,
        null)
    into deaths
    from (
        select actors[u.n] as actor, channels[u.n] as source, ids[u.n] as parent, sizes[u.n] as size, priorities[u.n] as priority,
            coalesce(due_ats[u.n], now_ + delays[u.n]) as due, coalesce(expires_ats[u.n], now_ + ttls[u.n]) as expires
        from unnest(route_of) with ordinality u (n, i)
        order by u.i
    ) u;
    if deaths is not null then
        route_dead := array(select d.position is not null from unnest(deaths) with ordinality d (position, n) order by d.n);
    end if;
end
$$;

-- A key's append lock within the class: 1,024 per queue, so that no transaction
-- can fill the lock table. A collision costs parallelism only.
create function leat.append_lock(channel integer, routing_key text) returns integer
language sql immutable as $$
    select (mod(channel, 2097152) * 1024) + (hashtext(routing_key) & 1023)
$$;

-- Enters dedup ids by unique index: of two at once, one waits and is the
-- duplicate. Same content: the first message's id, status 1; other content: 2.
create function leat.deduplicate(
    now_          timestamptz,
    inout ids     bigint[],
    channels      integer[],
    routing_keys  text[],
    payloads      bytea[],
    content_types text[],
    headers       text[],
    dedup_ids     text[],
    inout statuses smallint[]
)
language plpgsql as $$
declare
    digests bytea[];
begin
    digests := array(
        select sha256(convert_to(format('%s|%s|%s|', length(u.k), u.k, coalesce(u.t, 'application/json')), 'UTF8')
            || convert_to(coalesce(nullif(u.h, '')::jsonb, '{}')::text, 'UTF8') || u.p)
        from unnest(routing_keys, payloads, content_types, headers) with ordinality u (k, p, t, h, n)
        order by u.n);

    -- In the order of the ids, so that two batches never wait for each other.
    insert into leat.dedup as d (channel_id, dedup_id, message_id, digest, expires_at)
    select distinct on (u.c, u.k) u.c, u.k, u.id, u.digest, now_ + c.dedup_window
    from unnest(channels, dedup_ids, ids, digests, statuses) u (c, k, id, digest, s)
    join leat.channels c on c.id = u.c
    where u.k is not null and coalesce(u.s, 0) = 0
    order by u.c, u.k, u.id
    on conflict (channel_id, dedup_id) do update
        set message_id = excluded.message_id, digest = excluded.digest, expires_at = excluded.expires_at
        where d.expires_at <= now_;

    select array_agg(coalesce(d.message_id, u.id) order by u.n),
        array_agg(case
            when coalesce(u.s, 0) <> 0 or d.message_id is null or d.message_id = u.id then coalesce(u.s, 0)
            when d.digest = u.digest then 1
            else 2 end order by u.n)
    into ids, statuses
    from unnest(channels, dedup_ids, ids, digests, statuses) with ordinality u (c, k, id, digest, s, n)
    left join leat.dedup d on d.channel_id = u.c and d.dedup_id = u.k;
end
$$;

-- One refused message refuses its request, and undoes what that has entered of dedup
-- ids, but not what others have, whose messages are stored. A duplicate of a message
-- that is refused here is none: it is busy, and comes again.
create function leat.refuse_requests(
    requests  integer[],
    channels  integer[],
    ids       bigint[],
    dedup_ids text[],
    statuses  smallint[]
) returns smallint[]
language plpgsql as $$ -- runs under its callers' settings
declare
    refused  integer[] := array(select distinct u.r from unnest(requests, statuses) u (r, s) where u.s > 1);
    orphaned integer[]; -- requests
    undone   bigint[] := '{}'; -- messages
begin
    if refused = '{}' then
        return statuses;
    end if;
    while dedup_ids is not null loop
        undone := array(
            select u.id
            from unnest(requests, ids, dedup_ids, statuses) u (r, id, k, s)
            where u.s = 0 and u.k is not null and u.r = any (refused));
        orphaned := array(
            select distinct u.r
            from unnest(requests, ids, statuses) u (r, id, s)
            where u.s = 1 and u.id = any (undone) and u.r <> all (refused));
        statuses := array(
            select case when u.s = 1 and u.r = any (orphaned) and u.id = any (undone) then 3 else u.s end
            from unnest(requests, ids, statuses) with ordinality u (r, id, s, n)
            order by u.n);
        refused := refused || orphaned;
        exit when orphaned = '{}';
    end loop;
    if undone <> '{}' then
        delete from leat.dedup d
        using unnest(channels, dedup_ids, ids) u (c, k, id)
        where d.channel_id = u.c and d.dedup_id = u.k and d.message_id = u.id and u.id = any (undone);
    end if;
    return array(
        select case when u.s <= 1 and u.r = any (refused) then 5 else u.s end
        from unnest(requests, statuses) with ordinality u (r, s, n)
        order by u.n);
end
$$;
