create function leat.views_alive() returns boolean
language sql stable as $$
    select exists (select from leat.views_alive)
$$;

-- Every function that reads or writes runs calls this first.
create function leat.need_views() returns void
language plpgsql as $$
begin
    if not exists (select from leat.views_alive) then
        raise exception 'leat: views lost' using errcode = 'LE001',
            hint = 'They are rebuilt from the log by the first broker that sees this.';
    end if;
end
$$;

-- Messages enter the queue views: one run per key, priority, due time, expiry, death
-- and headers, of at most 200 ids, or 100 of copies (a row beyond 2 kB would be TOASTed).
-- Arrays that no message uses are null. origins and overlays are those of copies;
-- deaths are the events that say why a message is dead. What has a status but 0 does
-- not enter. Without alive they go where they wait for the views.
create function leat.place(
    alive        boolean,
    now_         timestamptz,
    ids          bigint[],
    channels     integer[],
    fifos        integer[],
    routing_keys text[],
    priorities   smallint[] default null,
    delays       interval[] default null,
    due_ats      timestamptz[] default null,
    ttls         interval[] default null,
    expires_ats  timestamptz[] default null,
    statuses     smallint[] default null,
    origins      bigint[] default null,
    overlays     jsonb[] default null,
    deaths       bigint[] default null
) returns void
language plpgsql as $$ -- runs under its callers' settings
begin
    -- The usual batch is alike but for its payloads.
    if alive and channels[1] = all (channels) and routing_keys[1] = all (routing_keys)
        and num_nulls(priorities, delays, due_ats, ttls, expires_ats, statuses, origins, overlays, deaths) = 9
    then
        insert into leat.queue_runs (channel_id, fifo, first_id, state, rank, routing_key, ids)
        select channels[1], channels[1] = any (coalesce(fifos, '{}')), ids[n], 0, 9, routing_keys[1], ids[n:n + 199]
        from generate_series(1, cardinality(ids), 200) n;
    elsif alive then
        insert into leat.queue_runs (channel_id, fifo, first_id, state, rank, routing_key, due_at, expires_at, ids, origins,
            headers, delivery, reason, died_at)
        select r.channel, r.fifo, r.first_id, r.state, r.rank, r.key, r.due, r.expires, r.ids_, r.origins_,
            r.headers, r.death, r.reason, r.died_at
        from leat.group_runs(now_, ids, channels, fifos, routing_keys, priorities, delays, due_ats, ttls, expires_ats,
            statuses, origins, overlays, deaths) r;
    else
        insert into leat.unplaced (channel_id, fifo, first_id, state, rank, routing_key, due_at, expires_at, ids, origins,
            headers, delivery, reason, died_at)
        select r.channel, r.fifo, r.first_id, r.state, r.rank, r.key, r.due, r.expires, r.ids_, r.origins_,
            r.headers, r.death, r.reason, r.died_at
        from leat.group_runs(now_, ids, channels, fifos, routing_keys, priorities, delays, due_ats, ttls, expires_ats,
            statuses, origins, overlays, deaths) r;
        return;
    end if;

    if fifos is not null then
        -- An existing lane is left alone, and so never locked by an open publish.
        insert into leat.lanes (channel_id, routing_key, head_id, state, due_at)
        select distinct on (u.channel, u.key) u.channel, u.key, u.id,
            coalesce((coalesce(u.due_at, now_ + u.delay) > now_)::integer, 0), coalesce(u.due_at, now_ + u.delay)
        from unnest(ids, channels, routing_keys, delays, due_ats, statuses, deaths) u (id, channel, key, delay, due_at, status, death)
        where coalesce(u.status, 0) = 0 and u.death is null and u.channel = any (fifos)
        order by u.channel, u.key, u.id
        on conflict do nothing;
    end if;
end
$$;

-- The runs that messages make.
create function leat.group_runs(
    now_         timestamptz,
    ids          bigint[],
    channels     integer[],
    fifos        integer[],
    routing_keys text[],
    priorities   smallint[],
    delays       interval[],
    due_ats      timestamptz[],
    ttls         interval[],
    expires_ats  timestamptz[],
    statuses     smallint[],
    origins      bigint[],
    overlays     jsonb[],
    deaths       bigint[]
) returns table (
    channel  integer,
    fifo     boolean,
    first_id bigint,
    state    smallint,
    rank     smallint,
    key      text,
    due      timestamptz,
    expires  timestamptz,
    ids_     bigint[],
    origins_ bigint[],
    headers  jsonb,
    death    bigint,
    reason   text,
    died_at  timestamptz
)
language plpgsql stable as $$ -- runs under its callers' settings
declare
    islands bigint[]; -- counts, along each key, the messages that differ in times from the one before
begin
    if fifos is not null and num_nonnulls(delays, due_ats, ttls, expires_ats, overlays) > 0 then
        -- Runs of a FIFO key never overlap.
        select array_agg(i.island order by i.n) into islands
        from (
            select t.n, count(*) filter (where t.times is distinct from t.before)
                over (partition by t.channel, t.key order by t.n) as island
            from (
                select u.n, u.channel, u.key, array[u.delay::text, u.due::text, u.ttl::text, u.expires::text, u.overlay::text] as times,
                    lag(array[u.delay::text, u.due::text, u.ttl::text, u.expires::text, u.overlay::text])
                        over (partition by u.channel, u.key order by u.n) as before
                from unnest(channels, routing_keys, delays, due_ats, ttls, expires_ats, overlays) with ordinality
                    u (channel, key, delay, due, ttl, expires, overlay, n)
            ) t
        ) i;
    end if;
    return query
    select m.channel, m.channel = any (coalesce(fifos, '{}')), min(m.id),
        case when m.death is not null then 3 when m.due is not null then 1 else 0 end::smallint, m.rank::smallint, m.key,
        case when m.death is null then m.due end, case when m.death is null then m.expires end, array_agg(m.id order by m.id),
        case when bool_or(m.origin is not null) then array_agg(coalesce(m.origin, m.id) order by m.id) end,
        m.overlay, m.death, case when m.death is not null then 'circuit_open' end, case when m.death is not null then now_ end
    from (
        select u.id, u.channel, u.key, 9 - coalesce(u.priority, 0) as rank,
            case when coalesce(u.due_at, now_ + u.delay) > now_ then coalesce(u.due_at, now_ + u.delay) end as due,
            coalesce(u.expires_at, now_ + u.ttl) as expires,
            (u.n - 1) / case when origins is null then 200 else 100 end as chunk, u.island, u.origin, u.overlay, u.death
        from (
            select unnest(ids) as id, unnest(channels) as channel, unnest(routing_keys) as key, unnest(priorities) as priority,
                unnest(delays) as delay, unnest(due_ats) as due_at, unnest(ttls) as ttl, unnest(expires_ats) as expires_at,
                unnest(statuses) as status, unnest(origins) as origin, unnest(overlays) as overlay, unnest(deaths) as death,
                unnest(islands) as island, generate_subscripts(ids, 1) as n
        ) u
        where coalesce(u.status, 0) = 0
    ) m
    group by m.channel, m.key, m.rank, m.due, m.expires, m.chunk, m.island, m.overlay, m.death;
end
$$;

-- What waited for the views enters them now, each run once, each key in order. Runs
-- of a key whose append lock somebody holds stay for the next time, and so do the
-- later ones of the key. One transaction at a time does it; the others leave it to
-- that one. A time that has passed is due at the next sweep.
create function leat.place_unplaced() returns integer
language plpgsql set search_path = '' as $$
declare
    waiting record;
    held    integer[] := '{}'; -- locks of keys that have to stay
    lock    integer;
    placed  integer;
begin
    if not pg_try_advisory_xact_lock(1279607044, 4) then
        return 0;
    end if;
    with gone as (
        delete from leat.unplaced u where not u.fifo returning u.*
    ), moved as (
        insert into leat.queue_runs (channel_id, fifo, first_id, state, rank, routing_key, due_at, expires_at, ids, origins,
            headers, delivery, reason, died_at)
        select g.channel_id, g.fifo, g.first_id, g.state, g.rank, g.routing_key, g.due_at, g.expires_at, g.ids, g.origins,
            g.headers, g.delivery, g.reason, g.died_at
        from gone g
        join leat.channels c on c.id = g.channel_id and c.deleted_at is null
        returning 1
    )
    select count(*) into placed from moved;
    for waiting in
        select u.ctid as tid, u.*, c.id is not null as alive
        from leat.unplaced u
        left join leat.channels c on c.id = u.channel_id and c.deleted_at is null
        where u.fifo -- others may have come since the statement above
        order by u.first_id
        for update of u
    loop
        lock := leat.append_lock(waiting.channel_id, waiting.routing_key);
        if lock = any (held) or not pg_try_advisory_xact_lock(1279607043, lock) then
            held := held || lock;
            continue;
        end if;
        if waiting.alive then
            insert into leat.queue_runs (channel_id, fifo, first_id, state, rank, routing_key, due_at, expires_at, ids, origins,
                headers, delivery, reason, died_at)
            select waiting.channel_id, true, waiting.first_id, waiting.state, waiting.rank, waiting.routing_key, waiting.due_at,
                waiting.expires_at, waiting.ids, waiting.origins, waiting.headers, waiting.delivery, waiting.reason, waiting.died_at;
            if waiting.state <= 1 then
                insert into leat.lanes (channel_id, routing_key, head_id, state, due_at)
                values (waiting.channel_id, waiting.routing_key, waiting.first_id, waiting.state, waiting.due_at)
                on conflict do nothing;
            end if;
            placed := placed + 1;
        end if;
        delete from leat.unplaced u where u.ctid = waiting.tid;
    end loop;
    return placed;
end
$$;
