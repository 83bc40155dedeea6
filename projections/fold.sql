-- The queue views as the log has them: checkpoint, then every event it does not
-- hold, the last one of each message deciding. One row per live message.
-- Reads what its snapshot sees, so in one snapshot it must equal the live views.
-- With count it counts the events that it reads in leat.rebuild_seq. With upto it is
-- the views as they were behind that position, for which it reads the log from its
-- beginning if the checkpoint is a later one. With channels it is those alone, and
-- also of such as are deleted by now.
-- In plpgsql, and planned for its arguments: without them the plan is what it would
-- be if they were not there.
create function leat.fold(use_checkpoint boolean default true, count boolean default false, upto bigint default null,
    channels integer[] default null) returns table (
    id          bigint,
    channel_id  integer,
    fifo        boolean,
    state       smallint,
    rank        smallint,
    routing_key text,
    deliveries  integer,
    delivery    bigint,
    due_at      timestamptz,
    expires_at  timestamptz,
    owner       text,
    reason      text,
    died_at     timestamptz,
    origin      bigint, -- null: itself
    headers     jsonb   -- laid over the origin's
)
language plpgsql stable set search_path = '' set jit = off set work_mem = '256MB' set plan_cache_mode = force_custom_plan
set enable_nestloop = off as $$ -- a log that was never analyzed looks small, and would be joined row by row
#variable_conflict use_column
begin
    return query
    with base as materialized (
        select c.position, c.included
        from leat.checkpoints c
        where fold.use_checkpoint
          and (fold.upto is null or (c.position <= fold.upto and fold.upto >= all (c.included)))
        order by c.position desc
        limit 1
    ), start as materialized (
        select greatest((select b.position from base b), 0,
                -- nothing of a channel is older than itself
                (select min(c.epoch) from leat.channels c where c.id = any (fold.channels))) as position,
            coalesce((select b.included from base b), '{}') as included
    ), batches as materialized (
        select e.position, e.kind, e.delivery, e.due_at, e.expires_at, e.actor, e.at, e.data ->> 'reason' as reason,
            coalesce(e.kind = 'message.recovered' and e.data ? 'to', false) as left_for_another, e.message_ids, e.message_ranges
        from leat.events e
        where e.position > (select s.position from start s)
          and e.message_ids is not null
          and e.kind not in ('message.copied', 'message.routed', 'circuit.opened', 'circuit.half_opened', 'circuit.closed')
          and e.position <> all ((select s.included from start s)::bigint[])
          and (fold.upto is null or e.position <= fold.upto)
          and (fold.channels is null or e.channel_id = any (fold.channels))
          and (not fold.count or nextval('leat.rebuild_seq') > 0)
    ), named as ( -- message by message
        select b.position, b.kind, i.id
        from batches b
        cross join lateral unnest(b.message_ids) i (id)
        union all
        select b.position, b.kind, i.id
        from batches b
        cross join lateral unnest(b.message_ranges) r
        cross join lateral generate_series(lower(r), upper(r) - 1) i (id)
    ), recovered as materialized ( -- attempts count from here, and the expiry is another
        select n.id, max(n.position) as position
        from named n
        where n.kind = 'message.recovered'
        group by n.id
    ), touched as materialized (
        select n.id, max(n.position) as last, max(r.position) as recovered,
            count(*) filter (where n.kind = 'message.delivered' and (r.position is null or r.position < n.position))
                - count(*) filter (where n.kind = 'message.released' and (r.position is null or r.position < n.position)) as deliveries
        from named n
        left join recovered r on r.id = n.id
        group by n.id
    ), known as (
        select e.position as id, null::bigint as origin, e.channel_id, (e.due_at > e.at)::integer as state,
            9 - coalesce(e.priority, 0) as rank, e.routing_key, 0 as deliveries, null::bigint as delivery,
            case when e.due_at > e.at then e.due_at end as due_at, e.expires_at,
            null::text as owner, null::text as reason, null::timestamptz as died_at, null::jsonb as headers
        from leat.events e
        where e.position > (select s.position from start s)
          and e.kind = 'message.published'
          and e.stream_offset is null
          and e.position <> all ((select s.included from start s)::bigint[])
          and (fold.upto is null or e.position <= fold.upto)
          and (fold.channels is null or e.channel_id = any (fold.channels))
          and (not fold.count or nextval('leat.rebuild_seq') > 0)
        union all
        select i.id, i.origin, e.channel_id, (e.due_at > e.at)::integer, 9 - coalesce(e.priority, 0),
            coalesce(e.routing_key, i.key), 0, null, case when e.due_at > e.at then e.due_at end, e.expires_at,
            null, null, null, e.headers
        from leat.events e
        cross join lateral rows from (unnest(e.message_ids), unnest(e.origin_ids), jsonb_array_elements_text(e.data -> 'keys'))
            i (id, origin, key)
        where e.position > (select s.position from start s)
          and e.kind = 'message.copied'
          and e.stream_offset is null
          and e.position <> all ((select s.included from start s)::bigint[])
          and (fold.upto is null or e.position <= fold.upto)
          and (fold.channels is null or e.channel_id = any (fold.channels))
          and (not fold.count or nextval('leat.rebuild_seq') > 0)
        union all
        select i.id, i.origin, r.channel_id, r.state, r.rank, r.routing_key, r.deliveries, r.delivery, r.due_at, r.expires_at,
            r.owner, r.reason, r.died_at, r.headers
        from leat.checkpoint_runs r
        cross join lateral unnest(r.ids, r.origins) i (id, origin)
        where r.checkpoint = (select b.position from base b)
          and (fold.channels is null or r.channel_id = any (fold.channels))
    )
    select k.id, k.channel_id, c.mode = 'fifo',
        (case
            when b.kind is null then coalesce(k.state, 0)
            when b.kind in ('message.delivered', 'message.extended') then 2
            when b.kind in ('message.released', 'message.recovered') then 0
            when b.kind = 'message.dead_lettered' then 3
            else 1
        end)::smallint,
        k.rank::smallint, k.routing_key,
        case when t.recovered is null then k.deliveries else 0 end + coalesce(t.deliveries, 0)::integer,
        case
            when b.kind is null then k.delivery
            when b.kind in ('message.delivered', 'message.extended') then b.delivery
            when b.kind = 'message.dead_lettered' then b.position
        end,
        case when b.kind is null then k.due_at when b.kind = 'message.dead_lettered' then null else b.due_at end,
        case
            when b.kind = 'message.dead_lettered' then null
            when t.recovered is null then k.expires_at
            else r.expires_at
        end,
        -- An extension keeps the owner, who is the actor of the delivery.
        case
            when b.kind is null then k.owner
            when b.kind = 'message.delivered' then b.actor
            when b.kind = 'message.extended' then (select d.actor from leat.events d where d.position = b.delivery)
        end,
        case when b.kind is null then k.reason else b.reason end,
        case when b.kind is null then k.died_at when b.kind = 'message.dead_lettered' then b.at end,
        k.origin, k.headers
    from known k
    join leat.channels c on c.id = k.channel_id and (c.deleted_at is null or c.id = any (fold.channels)) and c.kind = 'queue'
    left join touched t on t.id = k.id
    left join batches b on b.position = t.last
    left join batches r on r.position = t.recovered
    where b.kind is null
       or (b.kind not in ('message.acked', 'message.expired', 'message.purged', 'message.discarded') and not b.left_for_another);
end
$$;

-- Whether the log still has all that leat.fold reads of these channels up to a position:
-- it begins where it began and has no gaps, or a checkpoint stands in for what has left
-- it, or the channels are younger than that.
create function leat.can_fold(upto bigint, channels integer[]) returns boolean
language sql stable set search_path = '' as $$
    select not exists (
            select
            from leat.log_begin b
            join leat.channels c on c.epoch < b.first_position
            where c.id = any (can_fold.channels))
            and not exists (
                select
                from leat.log_gaps() g
                join leat.channels c on c.epoch <= g.high
                where g.low <= can_fold.upto and c.id = any (can_fold.channels))
        or exists (
            select
            from leat.checkpoints c
            where c.position <= can_fold.upto and can_fold.upto >= all (c.included)
              and not exists (select from leat.log_gaps() g where g.high > c.position and g.low <= can_fold.upto))
$$;
