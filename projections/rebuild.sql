-- Empties the queue views and fills them from the log; answers how many
-- messages they hold. Polls and settlements are refused meanwhile (LE001);
-- publishes go on, and what they append enters the views when they are back.
-- The fold and the clearing of leat.unplaced share one statement's snapshot: a
-- publish is in the one or, later, in the other.
create function leat.rebuild_views() returns bigint
language plpgsql set search_path = '' set jit = off set work_mem = '256MB' as $$
declare
    held bigint;
begin
    perform pg_advisory_xact_lock(1279607044, 2);
    -- A crash may have lost claims, which commit asynchronously, and the positions
    -- with them: none of those may be drawn again, or a receipt would come twice.
    perform setval('leat.position_seq', s.last_value + 65536) from leat.position_seq s;
    perform setval('leat.rebuild_seq', 1, false);
    delete from leat.queue_runs;
    delete from leat.lanes;
    with placed as (
        delete from leat.unplaced
    ), folded as (
        -- An island begins wherever something differs from the message before it in
        -- its key: runs of a key never overlap.
        select f.*, row_number() over w as n,
            (f.state, f.deliveries, f.delivery, f.due_at, f.expires_at, f.owner, f.reason, f.died_at, f.headers, f.origin is null)
                is distinct from (lag(f.state) over w, lag(f.deliveries) over w, lag(f.delivery) over w, lag(f.due_at) over w,
                    lag(f.expires_at) over w, lag(f.owner) over w, lag(f.reason) over w, lag(f.died_at) over w,
                    lag(f.headers) over w, lag(f.origin) over w is null) as begins
        from leat.fold(count => true) f
        window w as (partition by f.channel_id, f.routing_key, f.rank order by f.id)
    ), numbered as (
        select f.*, max(case when f.begins then f.n end) over w as island
        from folded f
        window w as (partition by f.channel_id, f.routing_key, f.rank order by f.id)
    ), filled as (
        -- min() of what is the same in all of an island.
        insert into leat.queue_runs (channel_id, routing_key, rank, fifo, state, deliveries, delivery, due_at, expires_at,
            owner, reason, died_at, first_id, ids, origins, headers)
        select n.channel_id, n.routing_key, n.rank, bool_and(n.fifo),
            -- What came due meanwhile need not wait for a sweep.
            case when min(n.state) = 1 and min(n.due_at) <= clock_timestamp() and not bool_and(n.fifo) then 0 else min(n.state) end,
            min(n.deliveries), min(n.delivery), min(n.due_at), min(n.expires_at), min(n.owner), min(n.reason), min(n.died_at),
            min(n.id), array_agg(n.id order by n.id),
            case when bool_or(n.origin is not null) then array_agg(coalesce(n.origin, n.id) order by n.id) end,
            (array_agg(n.headers))[1]
        from numbered n
        group by n.channel_id, n.routing_key, n.rank, n.island,
            (n.n - n.island) / case when n.origin is null then 200 else 100 end
        returning cardinality(ids) as size
    )
    select coalesce(sum(f.size), 0) into held from filled f;

    insert into leat.lanes (channel_id, routing_key, head_id, in_flight, state, due_at)
    select l.channel_id, l.routing_key, l.head_id, l.in_flight,
        case when l.in_flight > 0 then 2 when l.head_due > clock_timestamp() then 1 else 0 end,
        case when l.in_flight = 0 and l.head_due > clock_timestamp() then l.head_due end
    from (
        select r.channel_id, r.routing_key, min(r.first_id) as head_id,
            coalesce(sum(cardinality(r.ids)) filter (where r.state = 2), 0) as in_flight,
            (array_agg(case when r.state = 1 then r.due_at end order by r.first_id) filter (where r.state <= 1))[1] as head_due
        from leat.queue_runs r
        where r.fifo and r.state <= 2
        group by r.channel_id, r.routing_key
    ) l;
    perform leat.restore_circuits();
    perform leat.restore_replays();
    insert into leat.views_alive default values on conflict do nothing;
    return held;
end
$$;

-- How far the rebuild that goes on is: events read, of about so many.
create function leat.rebuild_progress(out done bigint, out total bigint)
language sql stable set search_path = '' as $$
    select case when r.is_called then r.last_value else 0 end,
        p.last_value - coalesce((select max(c.position) from leat.checkpoints c), 0)
    from leat.rebuild_seq r, leat.position_seq p
$$;

-- Gives the views up, as a crash would: leat.rebuild_views() is next. The marker
-- is truncated, not deleted, to wait for every open transaction that saw it, at
-- most the caller's lock_timeout: whoever saw it writes to the views before that.
create function leat.lose_views() returns void
language plpgsql set search_path = '' as $$
begin
    truncate leat.views_alive, leat.queue_runs, leat.lanes;
end
$$;

-- Compares the log with the live views in one snapshot: the messages and the
-- circuits that differ, and without use_checkpoint the streams, points and replays too.
create function leat.verify_views(use_checkpoint boolean default false) returns table (
    message_id bigint,
    channel_id integer,
    log        jsonb,
    view       jsonb
)
language plpgsql set search_path = '' set jit = off set work_mem = '256MB' as $$
begin
    perform leat.need_views();
    return query
    with folded as materialized (
        select f.id, f.channel_id, jsonb_build_object('state', case when f.state <= 1 then 'waiting' when f.state = 2 then 'in_flight' else 'dead' end,
            'priority', 9 - f.rank, 'routingKey', f.routing_key, 'attempts', f.deliveries, 'delivery', f.delivery,
            'dueAt', f.due_at, 'expiresAt', f.expires_at, 'owner', f.owner, 'reason', f.reason, 'diedAt', f.died_at, 'origin', coalesce(f.origin, f.id), 'headers', f.headers) as what
        from leat.fold(use_checkpoint) f
        where not exists (select from leat.unplaced u where f.id = any (u.ids))
    ), live as materialized (
        select i.id, r.channel_id, jsonb_build_object('state', case when r.state <= 1 then 'waiting' when r.state = 2 then 'in_flight' else 'dead' end,
            'priority', 9 - r.rank, 'routingKey', r.routing_key, 'attempts', r.deliveries, 'delivery', r.delivery,
            'dueAt', r.due_at, 'expiresAt', r.expires_at, 'owner', r.owner, 'reason', r.reason, 'diedAt', r.died_at, 'origin', coalesce(i.origin, i.id), 'headers', r.headers) as what
        from leat.queue_runs r
        cross join lateral unnest(r.ids, r.origins) i (id, origin)
    )
    select coalesce(f.id, l.id), coalesce(f.channel_id, l.channel_id), f.what, l.what
    from folded f
    full join live l on l.id = f.id
    where f.what is distinct from l.what or f.channel_id is distinct from l.channel_id
    union all
    select c.* from leat.verify_circuits() c
    union all
    select s.* from leat.verify_streams() s where not use_checkpoint
    union all
    select r.* from leat.verify_replays() r where not use_checkpoint
    union all -- nobody can compare with what the log has lost
    select 0, 0, jsonb_build_object('goneFrom', g.low, 'goneTo', g.high), null from leat.log_gaps() g;
end
$$;

-- Copies the views to where a rebuild can start from, when the log has grown
-- enough since the last copy to pay for it; answers its position, else null.
create function leat.checkpoint(least_growth bigint default 100000) returns bigint
language plpgsql set search_path = '' set jit = off as $$
declare
    settled bigint;
    drawn   bigint;
    held    bigint;
    before  bigint;
begin
    perform leat.need_views();
    if not pg_try_advisory_xact_lock(1279607044, 3) then
        return null;
    end if;
    settled := leat.settled_position();
    select s.last_value into drawn from leat.position_seq s;
    select coalesce(max(c.position), 0) into before from leat.checkpoints c;
    select coalesce(sum(cardinality(r.ids)), 0) into held from leat.queue_runs r;
    -- A long open append would make the list of included events long: another time.
    if settled - before < greatest(least_growth, held / 2, 1) or drawn - settled > 100000 then
        return null;
    end if;
    -- Not while something is in the log and not in the views. Asked in the snapshot
    -- that is copied: an open publish may end at any moment.
    with made as (
        insert into leat.checkpoints (position, included)
        select settled, coalesce(array_agg(e.position), '{}') from leat.events e where e.position > settled
        having not exists (select from leat.unplaced)
        returning position
    )
    insert into leat.checkpoint_runs (checkpoint, channel_id, state, rank, routing_key, deliveries, delivery, due_at,
        expires_at, owner, reason, died_at, ids, origins, headers)
    select m.position, r.channel_id, r.state, r.rank, r.routing_key, r.deliveries, r.delivery, r.due_at, r.expires_at, r.owner,
        r.reason, r.died_at, r.ids, r.origins, r.headers
    from made m, leat.queue_runs r;
    if not exists (select from leat.checkpoints c where c.position = settled) then
        return null;
    end if;
    delete from leat.checkpoints c where c.position < settled;
    delete from leat.checkpoint_runs r where r.checkpoint < settled;
    return settled;
end
$$;
