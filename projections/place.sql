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

-- Published messages enter the queue views: one run per key, priority, due time
-- and expiry, of at most 200 ids (an array beyond about 250 would be TOASTed).
create function leat.place(
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
    statuses     smallint[]
) returns void
language plpgsql as $$ -- runs under its callers' settings
declare
    islands bigint[]; -- counts, along each key, the messages that differ in times from the one before
begin
    -- The usual batch is alike but for its payloads.
    if channels[1] = all (channels) and routing_keys[1] = all (routing_keys)
        and num_nulls(priorities, delays, due_ats, ttls, expires_ats, statuses) = 6
    then
        insert into leat.queue_runs (channel_id, fifo, first_id, state, rank, routing_key, ids)
        select channels[1], channels[1] = any (coalesce(fifos, '{}')), ids[n], 0, 9, routing_keys[1], ids[n:n + 199]
        from generate_series(1, cardinality(ids), 200) n;
    else
        if fifos is not null and num_nonnulls(delays, due_ats, ttls, expires_ats) > 0 then
            -- Runs of a FIFO key never overlap.
            select array_agg(i.island order by i.n) into islands
            from (
                select t.n, count(*) filter (where t.times is distinct from t.before)
                    over (partition by t.channel, t.key order by t.n) as island
                from (
                    select u.n, u.channel, u.key, array[u.delay::text, u.due::text, u.ttl::text, u.expires::text] as times,
                        lag(array[u.delay::text, u.due::text, u.ttl::text, u.expires::text])
                            over (partition by u.channel, u.key order by u.n) as before
                    from unnest(channels, routing_keys, delays, due_ats, ttls, expires_ats) with ordinality
                        u (channel, key, delay, due, ttl, expires, n)
                ) t
            ) i;
        end if;
        insert into leat.queue_runs (channel_id, fifo, first_id, state, rank, routing_key, due_at, expires_at, ids)
        select m.channel, m.channel = any (coalesce(fifos, '{}')), min(m.id), (m.due is not null)::integer, m.rank, m.key,
            m.due, m.expires, array_agg(m.id order by m.id)
        from (
            select u.id, u.channel, u.key, 9 - coalesce(u.priority, 0) as rank,
                case when coalesce(u.due_at, now_ + u.delay) > now_ then coalesce(u.due_at, now_ + u.delay) end as due,
                coalesce(u.expires_at, now_ + u.ttl) as expires,
                (u.n - 1) / 200 as chunk, u.island
            from (
                select unnest(ids) as id, unnest(channels) as channel, unnest(routing_keys) as key, unnest(priorities) as priority,
                    unnest(delays) as delay, unnest(due_ats) as due_at, unnest(ttls) as ttl, unnest(expires_ats) as expires_at,
                    unnest(statuses) as status, unnest(islands) as island, generate_subscripts(ids, 1) as n
            ) u
            where coalesce(u.status, 0) = 0
        ) m
        group by m.channel, m.key, m.rank, m.due, m.expires, m.chunk, m.island;
    end if;

    if fifos is not null then
        -- An existing lane is left alone, and so never locked by an open publish.
        insert into leat.lanes (channel_id, routing_key, head_id, state, due_at)
        select distinct on (u.channel, u.key) u.channel, u.key, u.id,
            coalesce((coalesce(u.due_at, now_ + u.delay) > now_)::integer, 0), coalesce(u.due_at, now_ + u.delay)
        from unnest(ids, channels, routing_keys, delays, due_ats, statuses) u (id, channel, key, delay, due_at, status)
        where coalesce(u.status, 0) = 0 and u.channel = any (fifos)
        order by u.channel, u.key, u.id
        on conflict do nothing;
    end if;
end
$$;

-- Messages that were published while the views were lost enter them now, each
-- once, each key in order. Messages of a key whose append lock somebody holds
-- stay for the next time, and so does what comes after them in their keys. One
-- transaction at a time does it; the others leave it to that one.
create function leat.place_unplaced() returns integer
language plpgsql set search_path = '' as $$
declare
    waiting record;
    held    integer[] := '{}'; -- locks of keys that have to stay
    placed  integer := 0;
begin
    if not pg_try_advisory_xact_lock(1279607044, 4) then
        return 0;
    end if;
    for waiting in
        select u.ctid as tid, u.ids, array(
            select distinct leat.append_lock(e.channel_id, e.routing_key)
            from leat.events e
            join leat.channels c on c.id = e.channel_id and c.mode = 'fifo'
            where e.position = any (u.ids)) as locks
        from leat.unplaced u
        order by u.ids
        for update of u
    loop
        if waiting.locks && held or exists (
            select from unnest(waiting.locks) k (lock) where not pg_try_advisory_xact_lock(1279607043, k.lock))
        then
            held := held || waiting.locks;
            continue;
        end if;
        -- Due times stay as they were asked for: one that has passed is due at the next
        -- sweep. One that had passed at the publish is none, as in leat.fold().
        perform leat.place('-infinity', e.ids, e.channels, e.fifos, e.keys, e.priorities, null, e.dues, null, e.expires, null)
        from (
            select array_agg(e.position order by e.position) as ids,
                array_agg(e.channel_id order by e.position) as channels,
                array_agg(e.channel_id) filter (where c.mode = 'fifo') as fifos,
                array_agg(e.routing_key order by e.position) as keys,
                array_agg(coalesce(e.priority, 0::smallint) order by e.position) as priorities,
                array_agg(case when e.due_at > e.at then e.due_at end order by e.position) as dues,
                array_agg(e.expires_at order by e.position) as expires
            from leat.events e
            join leat.channels c on c.id = e.channel_id and c.deleted_at is null
            where e.position = any (waiting.ids)
        ) e
        where e.ids is not null;
        delete from leat.unplaced u where u.ctid = waiting.tid;
        placed := placed + cardinality(waiting.ids);
    end loop;
    return placed;
end
$$;
