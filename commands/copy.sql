-- Messages that become new messages of other channels: by links, by dead-lettering,
-- by redriving, by publishing again. One element per copy; optional arrays are null. parents are the
-- messages that are copied, in their channels; origins hold the payloads. The caller
-- holds the channel where the routes begin against deletion, and the append locks of
-- FIFO keys and of streams. Copies in a stream are there at once: they have neither a
-- priority nor times. sizes are those of the payloads. Copies into
-- a circuit that is not closed are dead: answers for each the position that says so,
-- and null when there are none.
create function leat.copy_messages(
    alive       boolean,
    now_        timestamptz,
    cause       text, -- link, dead_letter, redrive or republish
    actors      text[],
    sources     integer[],
    parents     bigint[],
    origins     bigint[],
    targets     integer[],
    keys        text[],
    fifos       integer[], -- which of the targets are
    streams     integer[], -- likewise
    sizes       bigint[],
    priorities  smallint[],
    due_ats     timestamptz[],
    expires_ats timestamptz[],
    overlays    jsonb[]
) returns bigint[]
language plpgsql
set search_path = '' as $$
declare
    ids     bigint[];
    deaths  bigint[];
    offsets  bigint[]; -- in streams
    islands  bigint[];
    statuses smallint[];
begin
    perform leat.fence();
    if priorities is not null and (fifos is not null or streams is not null) then
        priorities := array(
            select case when u.target = any (fifos || streams) then null else u.priority end
            from unnest(targets, priorities) with ordinality u (target, priority, n)
            order by u.n);
    end if;
    if streams is not null then
        select s.* into due_ats, expires_ats, offsets, islands, statuses
        from leat.enter_streams(streams, targets, sizes, sources, actors, overlays, due_ats, expires_ats) s;
    end if;
    ids := array(select nextval('leat.position_seq') from generate_subscripts(parents, 1));
    -- An event per source says where its messages went, and an event per target lists
    -- the copies that are alike: the first one's position is drawn before the others exist.
    with routed as materialized (
        select s.source, s.actor, nextval('leat.position_seq') as position
        from (select distinct u.source, u.actor from unnest(sources, actors) u (source, actor)) s
    ), copied as (
        insert into leat.events (at, kind, channel_id, stream_offset, routing_key, priority, due_at, expires_at, headers, actor,
            message_ids, origin_ids, data)
        select now_, 'message.copied', u.target, min(u.stream_offset), case when min(u.key) = max(u.key) then min(u.key) end, u.priority, u.due,
            u.expires, u.overlay, u.actor, array_agg(u.id), array_agg(u.origin),
            jsonb_strip_nulls(jsonb_build_object(
                'from', u.routed,
                'parents', case when bool_or(u.parent <> u.origin) then to_jsonb(array_agg(u.parent)) end,
                'keys', case when min(u.key) <> max(u.key) then to_jsonb(array_agg(u.key)) end))
        from (
            select u.*, r.position as routed, (u.n - 1) / 10000 as chunk
            from (
                select unnest(ids) as id, unnest(sources) as source, unnest(actors) as actor, unnest(parents) as parent,
                    unnest(origins) as origin, unnest(targets) as target, unnest(keys) as key, nullif(unnest(priorities), 0) as priority,
                    unnest(due_ats) as due, unnest(expires_ats) as expires, unnest(overlays) as overlay,
                    unnest(offsets) as stream_offset, unnest(islands) as island, generate_subscripts(ids, 1) as n
            ) u
            join routed r on r.source = u.source and r.actor is not distinct from u.actor
            order by r.position, u.target, u.n
        ) u
        group by u.routed, u.target, u.actor, u.priority, u.due, u.expires, u.overlay, u.chunk, u.island
        returning position, (data ->> 'from')::bigint as routed
    )
    insert into leat.events (position, at, kind, channel_id, actor, message_ids, data)
    select r.position, now_, 'message.routed', r.source, r.actor,
        array(
            select distinct u.parent
            from unnest(sources, actors, parents) u (source, actor, parent)
            where u.source = r.source and u.actor is not distinct from r.actor
            order by 1),
        jsonb_build_object('cause', cause, 'to', (select jsonb_agg(c.position order by c.position) from copied c where c.routed = r.position))
    from routed r;

    if fifos is not null then
        deaths := leat.deaths_by_circuit(now_, ids, targets, keys, fifos, null);
    end if;
    perform leat.place(alive, now_, ids, targets, fifos, keys, priorities, null, due_ats, null, expires_ats, statuses, origins, overlays,
        deaths);
    if cause <> 'link' then
        -- Publishers know where their messages go; of the others, which are few, the brokers hear.
        perform leat.wake(targets);
    end if;
    return deaths;
end
$$;

-- What copies are in streams: null for those that do not enter one, and their times,
-- which those that do give up. One event lists those beside each other in an island:
-- the order of a stream is that of the copies here. statuses are 9 where leat.place
-- has nothing to place.
create function leat.enter_streams(
    streams     integer[],
    targets     integer[],
    sizes       bigint[],
    sources     integer[],
    actors      text[],
    overlays    jsonb[],
    inout due_ats     timestamptz[],
    inout expires_ats timestamptz[],
    out offsets       bigint[],
    out islands       bigint[],
    out statuses      smallint[]
)
language plpgsql as $$ -- runs under its callers' settings
begin
    offsets := leat.take_offsets(targets, streams, sizes);
    select array_agg(case when i.stream_offset is null then i.due end order by i.n),
        array_agg(case when i.stream_offset is null then i.expires end order by i.n),
        array_agg(case when i.stream_offset is not null then i.island end order by i.n),
        array_agg(case when i.stream_offset is null then 0 else 9 end order by i.n)
    into due_ats, expires_ats, islands, statuses
    from (
        select u.*, u.stream_offset - row_number() over (
            partition by u.target, u.source, u.actor, u.overlay, (u.n - 1) / 10000 order by u.n) as island
        from unnest(targets, sources, actors, overlays, due_ats, expires_ats, offsets) with ordinality
            u (target, source, actor, overlay, due, expires, stream_offset, n)
    ) i;
end
$$;

-- leat.copy_messages for a publish whose messages are alike but for their payloads
-- and go the same ways, into channels that take them: it costs by the run.
create function leat.copy_alike(
    now_    timestamptz,
    actor   text,
    source  integer,
    parents bigint[],
    targets integer[],
    keys    text[],
    fifos   integer[],
    streams integer[],
    sizes   bigint[]
) returns void
language plpgsql as $$ -- runs under its callers' settings
declare
    size  integer := cardinality(parents);
    ids   bigint[] := array(select nextval('leat.position_seq') from generate_series(1, cardinality(parents) * cardinality(targets)));
    start bigint := nextval('leat.position_seq');
    offsets bigint[]; -- of the first copy in each target
begin
    if streams is not null then
        offsets := leat.take_offsets(
            array(select target from unnest(targets) with ordinality u (target, n) cross join generate_series(1, size) order by n),
            streams,
            array(select sizes[i] from generate_subscripts(targets, 1) n cross join generate_series(1, size) i order by n, i));
        offsets := array(select offsets[(n - 1) * size + 1] from generate_subscripts(targets, 1) n order by n);
    end if;
    with copied as (
        insert into leat.events (at, kind, channel_id, stream_offset, routing_key, actor, message_ids, origin_ids, data)
        select now_, 'message.copied', targets[t], offsets[t], keys[t], actor, ids[(t - 1) * size + 1:t * size], parents,
            jsonb_build_object('from', start)
        from generate_subscripts(targets, 1) t
        returning position
    )
    insert into leat.events (position, at, kind, channel_id, actor, message_ids, data)
    select start, now_, 'message.routed', source, actor, parents,
        jsonb_build_object('cause', 'link', 'to', to_jsonb(array_agg(c.position)))
    from copied c;

    insert into leat.queue_runs (channel_id, fifo, first_id, state, rank, routing_key, ids, origins)
    select targets[t], targets[t] = any (coalesce(fifos, '{}')), ids[(t - 1) * size + n], 0, 9, keys[t],
        ids[(t - 1) * size + n:least((t - 1) * size + n + 99, t * size)], parents[n:n + 99]
    from generate_subscripts(targets, 1) t
    cross join generate_series(1, size, 100) n -- as in leat.group_runs
    where streams is null or targets[t] <> all (streams);
    if fifos is not null then
        insert into leat.lanes (channel_id, routing_key, head_id, state)
        select targets[t], keys[t], ids[(t - 1) * size + 1], 0
        from generate_subscripts(targets, 1) t
        where targets[t] = any (fifos)
        on conflict do nothing;
    end if;
end
$$;

-- Messages of keys whose circuit is not closed are dead: for each, the position of the
-- event that says so, else null; null when there are none. Read behind the append locks.
create function leat.deaths_by_circuit(
    now_         timestamptz,
    ids          bigint[],
    channels     integer[],
    routing_keys text[],
    fifos        integer[],
    statuses     smallint[]
) returns bigint[]
language plpgsql as $$ -- runs under its callers' settings
declare
    dead   integer[]; -- places in ids
    deaths bigint[];
begin
    if not exists (select from leat.circuits c where c.channel_id = any (fifos) and c.state <> 'closed') then
        return null;
    end if;
    select array_agg(u.n) into dead
    from unnest(channels, routing_keys, statuses) with ordinality u (channel, key, status, n)
    join leat.circuits c on c.channel_id = u.channel and c.routing_key = u.key and c.state <> 'closed'
    where u.channel = any (fifos) and coalesce(u.status, 0) = 0;
    if dead is null then
        return null;
    end if;
    if current_setting('transaction_isolation') <> 'read committed' then
        -- An old snapshot may show a circuit that has closed since: this fails as a
        -- serialization does, for what died now would lose its place among the living.
        begin
            perform from unnest(dead) d (n)
            join leat.circuits c on c.channel_id = channels[d.n] and c.routing_key = routing_keys[d.n]
            for key share of c skip locked;
            raise exception 'rolled back, so that nobody waits for this' using errcode = 'LE000';
        exception
            when sqlstate 'LE000' then null;
        end;
    end if;
    with died as (
        insert into leat.events (at, kind, channel_id, actor, message_ids, data)
        select now_, 'message.dead_lettered', channels[d.n], 'leat', array_agg(ids[d.n] order by d.n),
            '{"reason": "circuit_open"}'
        from unnest(dead) d (n)
        group by channels[d.n]
        returning position, channel_id
    )
    select array_agg(d.position order by u.n) into deaths
    from unnest(channels) with ordinality u (channel, n)
    left join died d on d.channel_id = u.channel and u.n = any (dead);
    return deaths;
end
$$;

-- Copies of messages that died in a queue go to the channel it names, with headers
-- that say so, and on by its links. Neither leads to a FIFO queue or a stream:
-- declarations see to that. They have no time to live any more.
create function leat.copy_dead(channel leat.channels, now_ timestamptz, actor text, reason text, held leat.held[]) returns void
language plpgsql as $$ -- runs under its callers' settings
declare
    entry  leat.channels;
    copies record;
begin
    perform pg_advisory_xact_lock_shared(1279607042, channel.dead_letter_to); -- and so of all that it leads to
    select c.* into entry from leat.channels c where c.id = channel.dead_letter_to and c.deleted_at is null;
    if not found then
        return;
    end if;
    select array_agg(r.target) as targets, array_agg(r.key) as keys, array_agg(h.id) as parents,
        array_agg(coalesce(h.origin, h.id)) as origins, array_agg((9 - h.rank)::smallint) as priorities,
        array_agg(coalesce(h.headers, '{}') || jsonb_build_object(
            'leat-death-queue', channel.name,
            'leat-death-reason', reason,
            'leat-death-count', coalesce((h.headers ->> 'leat-death-count')::integer, 0) + 1,
            'leat-death-at', to_char(now_ at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
            'leat-death-key', h.routing_key)) as overlays
    into copies
    from (
        select u.n, entry.id as target, u.routing_key as key
        from unnest(held) with ordinality u (ordinal, channel_id, id, origin, delivery, fifo, rank, routing_key, deliveries, expires_at,
            owner, headers, n)
        where entry.kind = 'queue'
        union all
        select r.n, r.target_id, r.routing_key
        from leat.routes_of(
            array(select entry.id from unnest(held)),
            array(select h.routing_key from unnest(held) with ordinality h order by h.ordinality),
            array(
                select coalesce(e.headers, '{}') || coalesce(h.headers, '{}')
                from unnest(held) with ordinality h
                join leat.events e on e.position = coalesce(h.origin, h.id)
                order by h.ordinality)) r
        where entry.linked
    ) r
    join unnest(held) with ordinality h on h.ordinality = r.n;
    if copies.targets is null then
        return;
    end if;
    perform leat.copy_messages(true, now_, 'dead_letter', array(select actor from unnest(copies.targets)),
        array(select channel.id from unnest(copies.targets)), copies.parents, copies.origins, copies.targets, copies.keys, null, null, null,
        copies.priorities, null, null, copies.overlays);
end
$$;
