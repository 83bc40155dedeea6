-- Dead letters leave for another channel, where they are new messages with the
-- same origins.

-- Redrives a page of the dead letters that a filter chooses, as leat.recover_dead
-- recovers them: with what their channel's links make of them, as published ones.
-- What has no route there stays. A FIFO key, or a stream, that somebody publishes to
-- is busy.
create function leat.redrive_dead(
    queue   integer,
    filter  leat.dead_filter,
    after   bigint,
    target  text,
    ttl     interval,
    actor   text,
    page    integer,
    out recovered    bigint,
    out circuit_open bigint,
    out busy         bigint,
    out next         bigint
)
language plpgsql set search_path = '' set enable_seqscan = off set jit = off as $$
declare
    channel leat.channels := leat.hold_queue(queue);
    entry   leat.channels := leat.redrive_target(channel, target);
    window_ record;
    tids    tid[];
    moved   record;
begin
    recovered := 0;
    circuit_open := 0;
    busy := 0;
    select w.* into window_ from leat.dead_page(queue, filter, after, page) w;
    if window_.upto is null then
        return;
    end if;
    next := case when window_.more then window_.upto end;
    tids := leat.split_runs(leat.lock_dead(queue, filter, after, window_.upto), leat.chosen_ids(filter));
    if channel.mode = 'fifo' then
        tids := array(
            select r.ctid from leat.queue_runs r
            where r.ctid = any (tids) and not exists (
                select from leat.circuits c
                where c.channel_id = queue and c.routing_key = r.routing_key and c.state <> 'closed'));
    end if;
    select m.* into moved from leat.redrive(channel, clock_timestamp(), actor, entry, ttl, tids) m;
    recovered := moved.moved;
    busy := moved.busy;
    select p.circuit_open into circuit_open from leat.passed_over(queue, filter, after, window_.upto) p;
end
$$;

-- Redrives dead letters by id; a status each as leat.dead_statuses() has them, and
-- 0: redriven, 4: has no route.
create function leat.redrive_ids(queue integer, message_ids bigint[], target text, ttl interval, actor text) returns smallint[]
language plpgsql set search_path = '' set enable_seqscan = off set jit = off as $$
declare
    channel  leat.channels := leat.hold_queue(queue);
    entry    leat.channels := leat.redrive_target(channel, target);
    tids     tid[];
    moved    record;
    statuses smallint[];
begin
    tids := leat.split_runs(
        leat.lock_found(queue, array(select f.first_id from leat.find_dead(queue, message_ids) f)),
        (select range_agg(int8range(u.id, u.id, '[]')) from unnest(message_ids) u (id)));
    select m.* into moved from leat.redrive(channel, clock_timestamp(), actor, entry, ttl, tids) m;
    statuses := leat.dead_statuses(queue, message_ids, moved.gone);
    return array(
        select case when u.status = 3 and moved.unroutable @> u.id then 4 else u.status end::smallint
        from unnest(message_ids, statuses) with ordinality u (id, status, n)
        order by u.n);
end
$$;

create function leat.redrive_target(channel leat.channels, target text) returns leat.channels
language plpgsql stable set search_path = '' as $$
declare
    entry leat.channels;
begin
    select c.* into entry from leat.channels c where c.name = target and c.deleted_at is null;
    if not found then
        raise exception 'there is no channel %', coalesce(to_json(target)::text, 'null') using errcode = 'LE002', column = 'to';
    elsif entry.id = channel.id then
        raise exception 'is the queue itself: leave it out' using errcode = 'LE003', column = 'to';
    end if;
    return entry;
end
$$;

-- Moves the messages of locked dead runs into a channel.
create function leat.redrive(
    channel leat.channels,
    now_    timestamptz,
    actor   text,
    entry   leat.channels,
    ttl     interval,
    tids    tid[],
    out moved      bigint,
    out busy       bigint,
    out gone       int8multirange,
    out unroutable int8multirange
)
language plpgsql set search_path = '' set enable_seqscan = off set jit = off as $$
declare
    dead   record;
    routes record;
    hold   record;
begin
    moved := 0;
    busy := 0;
    gone := '{}';
    unroutable := '{}';
    select array_agg(m.id order by m.id) as ids, array_agg(coalesce(m.origin, m.id) order by m.id) as origins,
        array_agg(m.rank order by m.id) as ranks, array_agg(m.routing_key order by m.id) as keys,
        array_agg(m.headers order by m.id) as headers
    into dead
    from (
        select i.id, i.origin, r.rank, r.routing_key, r.headers
        from leat.queue_runs r
        cross join lateral unnest(r.ids, r.origins) i (id, origin)
        where r.ctid = any (tids)
    ) m;
    if dead.ids is null then
        return;
    end if;

    select w.* into routes from leat.ways_into(entry, dead.origins, dead.keys, dead.headers) w;
    unroutable := coalesce((
        select range_agg(int8range(u.id, u.id, '[]'))
        from unnest(dead.ids) with ordinality u (id, n)
        where u.n not in (select p.n from unnest(routes.places) p (n))), '{}');
    if routes.places is null then
        return;
    end if;

    select h.* into hold from leat.hold_ways(entry, routes.places, routes.targets, routes.ways, 0) h;
    busy := cardinality(array(select distinct p.n from unnest(routes.places) p (n))) - cardinality(hold.held);
    if hold.held = '{}' then
        return;
    end if;
    select range_agg(int8range(dead.ids[h.n], dead.ids[h.n], '[]')) into gone from unnest(hold.held) h (n);

    tids := leat.split_runs(tids, gone); -- once: in the condition it would run for each row
    delete from leat.queue_runs r where r.ctid = any (tids);
    perform leat.append_many(now_, 'message.recovered', channel.id, actor, gone, null, jsonb_build_object('to', entry.name));
    perform leat.copy_messages(
        hold.alive, now_, 'redrive', array_agg(redrive.actor), array_agg(channel.id), array_agg(dead.ids[u.n] order by u.i),
        array_agg(dead.origins[u.n] order by u.i), array_agg(u.target order by u.i), array_agg(u.key order by u.i), hold.fifos, hold.streams,
        case when hold.streams is not null then
            array_agg((select octet_length(e.payload) from leat.events e where e.position = dead.origins[u.n])::bigint order by u.i) end,
        array_agg((9 - dead.ranks[u.n])::smallint order by u.i), null,
        case when ttl is not null then array_agg(now_ + ttl order by u.i) end,
        case when exists (select from unnest(dead.headers) h where h is not null) then array_agg(dead.headers[u.n] order by u.i) end)
    from unnest(routes.places, routes.targets, routes.ways) with ordinality u (n, target, key, i)
    where u.n in (select h.n from unnest(hold.held) h (n));
    moved := cardinality(hold.held);
end
$$;

-- Sends dead letters into another channel, in the caller's transaction: a row each.
create function leat.redrive(queue text, target text, message_ids bigint[], ttl interval default null)
    returns table (message_id bigint, result text)
language plpgsql set search_path = '' as $$
declare
    id integer := leat.queue_id(queue);
begin
    perform leat.check_named(message_ids, ttl);
    return query
    select u.id, (array['redriven', 'not_dead', 'not_found', 'busy', 'unroutable'])[u.status + 1]
    from unnest(message_ids, leat.redrive_ids(id, message_ids, target, ttl, 'sql:' || session_user)) with ordinality u (id, status, n)
    order by u.n;
end
$$;

-- Sends all dead letters of a queue that died before now into another channel, or
-- those of a key, a reason, a time, in the caller's transaction; counts them. Keys
-- whose circuit is not closed stay, and what has no route from there.
create function leat.redrive_all(
    queue       text,
    target      text,
    routing_key text default null,
    reason      text default null,
    died_after  timestamptz default null,
    died_before timestamptz default null,
    ttl         interval default null,
    out redriven     bigint,
    out circuit_open bigint,
    out busy         bigint
)
language plpgsql set search_path = '' as $$
declare
    id     integer := leat.queue_id(queue);
    filter leat.dead_filter := row(routing_key, reason, died_after, coalesce(died_before, clock_timestamp()), null, null);
    after  bigint := 0;
    part   record;
begin
    perform leat.check_chosen(reason, ttl);
    redriven := 0;
    circuit_open := 0;
    busy := 0;
    while after is not null loop
        select r.* into part from leat.redrive_dead(id, filter, after, target, ttl, 'sql:' || session_user, 10000) r;
        redriven := redriven + part.recovered;
        circuit_open := circuit_open + part.circuit_open;
        busy := busy + part.busy;
        after := part.next;
    end loop;
end
$$;
