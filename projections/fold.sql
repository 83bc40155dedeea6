-- The queue views as the log has them: checkpoint, then every event it does not
-- hold, the last one of each message deciding. One row per live message.
-- Reads what its snapshot sees, so in one snapshot it must equal the live views.
-- With count it counts the events that it reads in leat.rebuild_seq.
create function leat.fold(use_checkpoint boolean default true, count boolean default false) returns table (
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
    died_at     timestamptz
)
language sql stable set search_path = '' set jit = off set work_mem = '256MB'
set enable_nestloop = off as $$ -- a log that was never analyzed looks small, and would be joined row by row
    with base as materialized (
        select c.position, c.included
        from leat.checkpoints c
        where use_checkpoint
        order by c.position desc
        limit 1
    ), start as materialized (
        select coalesce((select b.position from base b), 0) as position,
            coalesce((select b.included from base b), '{}') as included
    ), batches as materialized (
        select e.position, e.kind, e.delivery, e.due_at, e.actor, e.at, e.data ->> 'reason' as reason, e.message_ids
        from leat.events e
        where e.position > (select s.position from start s)
          and e.message_ids is not null
          and e.position <> all ((select s.included from start s)::bigint[])
          and (not fold.count or nextval('leat.rebuild_seq') > 0)
    ), touched as materialized (
        select i.id, max(b.position) as last,
            count(*) filter (where b.kind = 'message.delivered')
                - count(*) filter (where b.kind = 'message.released') as deliveries
        from batches b
        cross join lateral unnest(b.message_ids) i (id)
        group by i.id
    ), known as (
        select e.position as id, e.channel_id, (e.due_at > e.at)::integer as state, 9 - coalesce(e.priority, 0) as rank,
            e.routing_key, 0 as deliveries, null::bigint as delivery,
            case when e.due_at > e.at then e.due_at end as due_at, e.expires_at,
            null::text as owner, null::text as reason, null::timestamptz as died_at
        from leat.events e
        where e.position > (select s.position from start s)
          and e.kind = 'message.published'
          and e.position <> all ((select s.included from start s)::bigint[])
          and (not fold.count or nextval('leat.rebuild_seq') > 0)
        union all
        select i.id, r.channel_id, r.state, r.rank, r.routing_key, r.deliveries, r.delivery, r.due_at, r.expires_at,
            r.owner, r.reason, r.died_at
        from leat.checkpoint_runs r
        cross join lateral unnest(r.ids) i (id)
        where r.checkpoint = (select b.position from base b)
    )
    select k.id, k.channel_id, c.mode = 'fifo',
        (case
            when b.kind is null then coalesce(k.state, 0)
            when b.kind in ('message.delivered', 'message.extended') then 2
            when b.kind = 'message.released' then 0
            when b.kind = 'message.dead_lettered' then 3
            else 1
        end)::smallint,
        k.rank::smallint, k.routing_key, k.deliveries + coalesce(t.deliveries, 0)::integer,
        case
            when b.kind is null then k.delivery
            when b.kind in ('message.delivered', 'message.extended') then b.delivery
            when b.kind = 'message.dead_lettered' then b.position
        end,
        case when b.kind is null then k.due_at when b.kind = 'message.dead_lettered' then null else b.due_at end,
        case when b.kind is null or b.kind <> 'message.dead_lettered' then k.expires_at end,
        -- An extension keeps the owner, who is the actor of the delivery.
        case
            when b.kind is null then k.owner
            when b.kind = 'message.delivered' then b.actor
            when b.kind = 'message.extended' then (select d.actor from leat.events d where d.position = b.delivery)
        end,
        case when b.kind is null then k.reason else b.reason end,
        case when b.kind is null then k.died_at when b.kind = 'message.dead_lettered' then b.at end
    from known k
    join leat.channels c on c.id = k.channel_id and c.deleted_at is null
    left join touched t on t.id = k.id
    left join batches b on b.position = t.last
    where b.kind is null
       or b.kind not in ('message.acked', 'message.expired', 'message.purged', 'message.discarded')
$$;
