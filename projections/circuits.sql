-- The circuits that are not closed as the log has them: the last event of each key
-- decides. probe_at is what an opening said of it. With upto and channels as leat.fold.
create function leat.fold_circuits(upto bigint default null, channels integer[] default null) returns table (
    channel_id  integer,
    routing_key text,
    state       text,
    message_id  bigint,
    reason      text,
    opened_at   timestamptz,
    changed_at  timestamptz,
    probe_at    timestamptz
)
language sql stable set search_path = '' set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
    select l.channel_id, l.routing_key, case when l.kind = 'circuit.opened' then 'open' else 'half_open' end, l.message_ids[1],
        l.reason, l.opened_at, l.at, case when l.kind = 'circuit.opened' then l.due_at end
    from (
        select e.*, row_number() over (partition by e.channel_id, e.routing_key order by e.position desc) as back,
            max(e.data ->> 'reason') filter (where e.kind = 'circuit.opened') over w as reason,
            max(e.at) filter (where e.kind = 'circuit.opened') over w as opened_at
        from leat.events e
        where e.kind in ('circuit.opened', 'circuit.half_opened', 'circuit.closed')
          and (fold_circuits.upto is null or e.position <= fold_circuits.upto)
          and (fold_circuits.channels is null or e.channel_id = any (fold_circuits.channels))
        window w as (partition by e.channel_id, e.routing_key order by e.position rows between 1 preceding and current row)
    ) l
    join leat.channels c on c.id = l.channel_id and (c.deleted_at is null or c.id = any (fold_circuits.channels))
    where l.back = 1 and l.kind <> 'circuit.closed'
$$;

-- Compares the log with the circuits: those that differ. One that is closing has no
-- event that says so yet.
create function leat.verify_circuits() returns table (
    message_id bigint,
    channel_id integer,
    log        jsonb,
    view       jsonb
)
language sql stable set search_path = '' set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
    select coalesce(f.message_id, c.message_id, 0), coalesce(f.channel_id, c.channel_id),
        case when f.channel_id is not null then
            jsonb_build_object('circuit', f.routing_key, 'state', f.state, 'messageId', f.message_id, 'probeAt', f.probe_at) end,
        case when c.channel_id is not null then
            jsonb_build_object('circuit', c.routing_key, 'state', c.state, 'messageId', c.message_id, 'probeAt', c.probe_at) end
    from leat.fold_circuits() f
    full join (select c.* from leat.circuits c where c.state <> 'closed') c
        on c.channel_id = f.channel_id and c.routing_key = f.routing_key
    where f.channel_id is null or c.channel_id is null
       or (c.state <> 'closing' and (f.state, f.message_id, f.probe_at) is distinct from (c.state, c.message_id, c.probe_at))
$$;

-- Makes the circuits what the log says, where they are not; answers how many were
-- wrong. What was let through by hand then goes to the dead letters again, but not
-- the message that a half-open circuit tries.
create function leat.restore_circuits() returns bigint
language plpgsql set search_path = '' set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
    wrong bigint;
begin
    lock table leat.circuits in share row exclusive mode;
    select count(*) into wrong from leat.verify_circuits();
    if wrong > 0 then
        delete from leat.circuits c
        where c.state <> 'closed'
          and not exists (
            select from leat.fold_circuits() f
            where f.channel_id = c.channel_id and f.routing_key = c.routing_key);
        insert into leat.circuits as c (channel_id, routing_key, state, message_id, reason, opened_at, changed_at, probe_at,
            admitted, straggling)
        select f.channel_id, f.routing_key, f.state, f.message_id, f.reason, f.opened_at, f.changed_at, f.probe_at,
            case when f.state = 'half_open' then array[f.message_id] else '{}' end, true
        from leat.fold_circuits() f
        on conflict (channel_id, routing_key) do update
            set state = excluded.state, message_id = excluded.message_id, probe_at = excluded.probe_at,
                changed_at = excluded.changed_at, straggling = true,
                admitted = case when excluded.message_id = any (c.admitted) then c.admitted else c.admitted || excluded.admitted end
            where c.state not in ('closing', excluded.state);
    end if;
    return wrong;
end
$$;
