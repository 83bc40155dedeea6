-- The replays as the log has them: how each was started, and what its last event says.
-- Those whose start has left the log are not in it.
create function leat.fold_replays() returns setof leat.replays
language sql stable set search_path = '' set jit = off as $$
    with told as materialized (
        select e.position, e.at, e.kind, e.channel_id, e.actor, e.data
        from leat.events e
        where e.kind in ('replay.started', 'replay.resumed', 'replay.advanced', 'replay.finished')
    ), last as (
        select distinct on (t.data ->> 'replay') t.*
        from told t
        where t.kind <> 'replay.started'
        order by t.data ->> 'replay', t.position desc
    )
    select s.position, (s.data ->> 'source')::integer, s.channel_id, (s.data ->> 'from')::bigint, (s.data ->> 'to')::bigint,
        (s.data ->> 'since')::timestamptz, (s.data ->> 'until')::timestamptz, s.data ->> 'pattern', (s.data ->> 'rate')::integer, s.actor,
        (s.data ->> 'startedAt')::timestamptz, coalesce((l.data ->> 'run')::integer, 1), (s.data ->> 'byOffset')::boolean,
        (s.data ->> 'next')::bigint, coalesce((l.data ->> 'next')::bigint, (s.data ->> 'next')::bigint), (s.data ->> 'last')::bigint,
        (l.data ->> 'upto')::bigint, coalesce((l.data ->> 'afterId')::bigint, 0), coalesce((l.data ->> 'messages')::bigint, 0),
        coalesce((l.data ->> 'bytes')::bigint, 0), coalesce((l.data ->> 'copies')::bigint, 0), coalesce((l.data ->> 'dead')::bigint, 0),
        coalesce((l.data ->> 'unroutable')::bigint, 0), coalesce((l.data ->> 'gone')::bigint, 0), coalesce(l.at, s.at),
        coalesce(l.kind = 'replay.finished', false)
    from told s
    left join last l on l.data ->> 'replay' = s.position::text
    where s.kind = 'replay.started'
$$;

-- Compares the log with the replays: those that differ, but for when they went on last.
create function leat.verify_replays() returns table (
    message_id bigint,
    channel_id integer,
    log        jsonb,
    view       jsonb
)
language sql stable set search_path = '' set jit = off as $$
    select 0::bigint, coalesce(f.target_id, r.target_id), f.what, r.what
    from (select f.id, f.target_id, to_jsonb(f) - 'changed_at' as what from leat.fold_replays() f) f
    full join (
        select r.id, r.target_id, to_jsonb(r) - 'changed_at' as what
        from leat.replays r
        where r.id >= coalesce((select b.first_position from leat.log_begin b), 1)
    ) r on r.id = f.id
    where f.what is distinct from r.what
$$;

-- Makes the replays what the log says, where they are not; answers how many were wrong.
create function leat.restore_replays() returns bigint
language plpgsql set search_path = '' as $$
declare
    wrong bigint;
begin
    if not exists (select from leat.verify_replays()) then
        return 0;
    end if;
    lock table leat.replays in share row exclusive mode;
    select count(*) into wrong from leat.verify_replays();
    if wrong > 0 then
        delete from leat.replays r where r.id >= coalesce((select b.first_position from leat.log_begin b), 1);
        insert into leat.replays select f.* from leat.fold_replays() f;
    end if;
    return wrong;
end
$$;
