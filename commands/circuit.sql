-- The circuit of a FIFO key opens when a message of the key dies. While it is not
-- closed, the key's messages go to the dead letters, but for those that it
-- admits: the probe, and what was recovered by hand. Whoever changes a row of
-- leat.circuits holds the row lock of the key's lane; publishers read it under the
-- key's append lock.

-- Messages of FIFO keys died for a reason of their own: counts them, and opens the
-- circuits that have enough. The caller holds the lanes.
create function leat.fail_circuits(
    channel leat.channels,
    now_    timestamptz,
    actor   text,
    reason  text,
    ids     bigint[],
    keys    text[]
) returns void
language plpgsql as $$ -- runs under its callers' settings
declare
    failed  record;
    circuit leat.circuits;
    before  integer;
begin
    for failed in
        select u.key, array_agg(u.id order by u.id) as ids
        from unnest(ids, keys) u (id, key)
        group by u.key
        order by u.key
    loop
        select c.* into circuit from leat.circuits c where c.channel_id = channel.id and c.routing_key = failed.key;
        if coalesce(circuit.state, 'closed') = 'closed' then
            continue when not channel.circuit;
            before := coalesce(circuit.failures, 0);
            if before + cardinality(failed.ids) < channel.circuit_threshold then
                insert into leat.circuits as c (channel_id, routing_key, state, failures, changed_at)
                values (channel.id, failed.key, 'closed', cardinality(failed.ids), now_)
                on conflict on constraint circuits_pkey do update
                    set failures = c.failures + excluded.failures, changed_at = excluded.changed_at;
            else
                -- A threshold that was lowered may have been reached before.
                perform leat.trip_circuit(channel, now_, actor, failed.key,
                    failed.ids[greatest(channel.circuit_threshold - before, 1)], reason, '{}');
            end if;
        elsif circuit.state = 'closing' or (circuit.state = 'half_open' and circuit.message_id = any (failed.ids)) then
            perform leat.trip_circuit(channel, now_, actor, failed.key,
                case when circuit.message_id = any (failed.ids) then circuit.message_id else failed.ids[1] end, reason,
                leat.without(circuit.admitted, failed.ids));
        elsif circuit.admitted && failed.ids then
            update leat.circuits c set admitted = leat.without(c.admitted, failed.ids)
            where c.channel_id = channel.id and c.routing_key = failed.key;
        end if;
    end loop;
end
$$;

create function leat.without(list bigint[], gone bigint[]) returns bigint[]
language sql immutable as $$
    select coalesce(array_agg(u.id order by u.n), '{}') from unnest(list) with ordinality u (id, n) where u.id <> all (gone)
$$;

-- Opens a circuit: what waits under the key dies, and what an open publish adds
-- to it, the sweeper finds. Opened by hand (no culprit), it stays open until it is
-- closed by hand. Answers how many messages died. The caller holds the lane.
create function leat.trip_circuit(
    channel  leat.channels,
    now_     timestamptz,
    actor    text,
    key      text,
    culprit  bigint,
    why      text,
    admitted bigint[]
) returns bigint
language plpgsql as $$ -- runs under its callers' settings
declare
    -- An open publish must not hold up whoever settles, and an old snapshot does not
    -- see what others have published.
    alone  boolean := pg_try_advisory_xact_lock(1279607043, leat.append_lock(channel.id, key))
        and current_setting('transaction_isolation') = 'read committed';
    probe  timestamptz := case when culprit is not null and channel.circuit_cool_down > '0' then now_ + channel.circuit_cool_down end;
    moved  bigint := leat.kill_waiting(channel.id, now_, actor, key, admitted);
begin
    insert into leat.circuits as c (channel_id, routing_key, state, message_id, reason, opened_at, changed_at, probe_at,
        admitted, straggling)
    values (channel.id, key, 'open', culprit, why, now_, now_, probe, trip_circuit.admitted, not alone)
    on conflict on constraint circuits_pkey do update
        set state = 'open', failures = 0, message_id = excluded.message_id, reason = excluded.reason,
            opened_at = coalesce(c.opened_at, excluded.opened_at), changed_at = excluded.changed_at,
            probe_at = excluded.probe_at, admitted = excluded.admitted, straggling = excluded.straggling;
    perform leat.fence();
    insert into leat.events (at, kind, channel_id, routing_key, actor, due_at, message_ids, data)
    values (now_, 'circuit.opened', channel.id, key, actor, probe, case when culprit is not null then array[culprit] end,
        jsonb_build_object('reason', why, 'messages', moved)
            || case when culprit is null then '{"by": "hand"}' else '{}' end::jsonb);
    return moved;
end
$$;

-- What waits under a key dies, but for what its circuit admits; answers how many.
create function leat.kill_waiting(channel integer, now_ timestamptz, actor text, key text, admitted bigint[]) returns bigint
language plpgsql as $$ -- runs under its callers' settings
begin
    if admitted <> '{}' then
        perform leat.single_runs(array(
            select r.ctid from leat.queue_runs r
            where r.channel_id = channel and r.routing_key = key and r.state <= 1 and r.rank = 9
              and r.ids && admitted and not r.ids <@ admitted));
    end if;
    return leat.move_runs(channel, now_, actor, 'message.dead_lettered', array(
        select r.ctid from leat.queue_runs r
        where r.channel_id = channel and r.routing_key = key and r.state <= 1 and r.rank = 9
          and not r.ids && admitted
        order by r.first_id));
end
$$;

-- Locks what is dead of a key, and tells whether it got all; with wait it does. Who
-- redrives or removes dead letters has no lane: a run that is only read may be gone, or
-- in parts, when it is changed. The caller holds the lane and the append lock.
create function leat.hold_dead(channel integer, key text, wait boolean) returns boolean
language plpgsql as $$ -- runs under its callers' settings
declare
    locked bigint;
begin
    loop
        if wait then
            perform from leat.queue_runs r
            where r.channel_id = channel and r.routing_key = key and r.state = 3 and r.fifo
            order by r.first_id
            for update;
        else
            perform from leat.queue_runs r
            where r.channel_id = channel and r.routing_key = key and r.state = 3 and r.fifo
            for update skip locked;
        end if;
        get diagnostics locked = row_count;
        -- Another look finds the parts that others have left meanwhile.
        if locked = (
            select count(*) from leat.queue_runs r
            where r.channel_id = channel and r.routing_key = key and r.state = 3 and r.fifo)
        then
            return true;
        elsif not wait then
            return false;
        end if;
    end loop;
end
$$;

-- The dead of a key wait again, before all that came after them; answers how
-- many. The caller holds the lane, the append lock and the dead.
create function leat.revive_dead(channel integer, now_ timestamptz, actor text, key text, admitted bigint[]) returns bigint
language plpgsql as $$ -- runs under its callers' settings
declare
    moved bigint;
begin
    -- Runs of a key must not overlap: one that another was taken out of comes apart.
    perform leat.single_runs(array(
        select r.tid
        from (
            select r.*, max(r.last_id) over (order by r.first_id rows between unbounded preceding and 1 preceding) as before,
                lead(r.first_id) over (order by r.first_id) as after
            from (
                select r.ctid as tid, r.first_id, r.ids[cardinality(r.ids)] as last_id, r.state from leat.queue_runs r
                where r.channel_id = channel and r.routing_key = key and r.state <= 1 and r.rank = 9
                union all
                select r.ctid, r.first_id, r.ids[cardinality(r.ids)], r.state from leat.queue_runs r
                where r.channel_id = channel and r.routing_key = key and r.state = 3 and r.fifo
            ) r
        ) r
        where r.state = 3 and r.last_id > r.first_id
          and (r.before > r.first_id or r.after < r.last_id
            or exists (select from unnest(admitted) a (id) where a.id between r.first_id and r.last_id))));
    moved := leat.move_runs(channel, now_, actor, 'message.recovered', array(
        select r.ctid from leat.queue_runs r
        where r.channel_id = channel and r.routing_key = key and r.state = 3 and r.fifo
        order by r.first_id));
    update leat.lanes l set head_id = 0 where l.channel_id = channel and l.routing_key = key;
    perform leat.free_lanes(now_, array[channel], array[key], array[0]);
    return moved;
end
$$;

-- Runs come apart into runs of one.
create function leat.single_runs(runs tid[]) returns void
language sql as $$ -- runs under its callers' settings
    with gone as (
        delete from leat.queue_runs r where r.ctid = any (runs) returning r.*
    )
    insert into leat.queue_runs (first_id, delivery, due_at, expires_at, died_at, channel_id, deliveries, state, rank, fifo,
        routing_key, owner, reason, ids, headers, origins)
    select i.id, g.delivery, g.due_at, g.expires_at, g.died_at, g.channel_id, g.deliveries, g.state, g.rank, g.fifo,
        g.routing_key, g.owner, g.reason, array[i.id], g.headers, case when g.origins is not null then array[g.origins[i.n]] end
    from gone g
    cross join lateral unnest(g.ids) with ordinality i (id, n)
$$;

-- Runs of a channel, in the order of their ids, die because of a circuit
-- (message.dead_lettered), or wait again (message.recovered); answers how many
-- messages they hold. Costs by run, not by message: neighbours are named by ranges
-- where these are much fewer than ids.
create function leat.move_runs(channel integer, now_ timestamptz, actor text, kind leat.event_kind, runs tid[]) returns bigint
language plpgsql as $$ -- runs under its callers' settings
declare
    dies  constant boolean := kind = 'message.dead_lettered';
    moved bigint;
begin
    if runs = '{}' then
        return 0;
    end if;
    perform leat.fence();
    with runs as materialized (
        -- solid: without a gap; begins: not the next after the run before.
        select s.*, not coalesce(s.solid and lag(s.solid) over w and lag(s.last_id) over w + 1 = s.first_id, false) as begins
        from (
            select r.ctid as tid, r.first_id, r.ids[cardinality(r.ids)] as last_id, cardinality(r.ids) as size,
                r.ids[cardinality(r.ids)] - r.first_id + 1 = cardinality(r.ids) as solid
            from leat.queue_runs r
            where r.ctid = any (runs)
        ) s
        window w as (order by s.first_id)
    ), total as materialized (
        select 2 * sum(case when r.solid then r.begins::integer else r.size end) < sum(r.size) as by_ranges from runs r
    ), grouped as materialized (
        -- At most 10,000 ids or ranges in an event; a run has 200 at most.
        select r.*, (sum(case when t.by_ranges and r.solid then r.begins::integer else r.size end)
            over (order by r.first_id) - 1) / 9800 as part
        from runs r, total t
    ), drawn as materialized (
        select array(select nextval('leat.position_seq') from generate_series(0, (select max(g.part) from grouped g))) as positions
    ), moved as (
        update leat.queue_runs r
        set state = case when dies then 3 else 0 end, delivery = case when dies then d.positions[g.part + 1] end, owner = null,
            due_at = null, expires_at = null, reason = case when dies then 'circuit_open' end,
            died_at = case when dies then now_ end, deliveries = case when dies then r.deliveries else 0 end
        from grouped g, drawn d
        where r.ctid = g.tid
        returning d.positions[g.part + 1] as position, g.solid, g.first_id, g.last_id, r.ids
    ), named as (
        select m.position, array_agg(m.id order by m.id) as ids, null::int8multirange as ranges
        from (select m.position, unnest(m.ids) as id from moved m, total t where not t.by_ranges) m -- nothing wide to sort
        group by m.position
        union all
        select m.position, '{}', range_agg(case
            when m.solid then int8multirange(int8range(m.first_id, m.last_id, '[]'))
            else (select range_agg(int8range(u.id, u.id, '[]')) from unnest(m.ids) u (id))
        end)
        from moved m, total t
        where t.by_ranges
        group by m.position
    ), appended as (
        insert into leat.events (position, at, kind, channel_id, actor, message_ids, message_ranges, data)
        select n.position, now_, move_runs.kind, channel, actor, n.ids, n.ranges,
            case when dies then '{"reason": "circuit_open"}'::jsonb end
        from named n
    )
    select sum(g.size) into moved from grouped g;
    return moved;
end
$$;

-- What was given back to keys whose circuit is not closed dies, but for what that
-- admits. The caller holds the lanes.
create function leat.hold_back(channel integer, now_ timestamptz, actor text, keys text[]) returns void
language plpgsql as $$ -- runs under its callers' settings
declare
    circuit leat.circuits;
begin
    for circuit in
        select c.* from leat.circuits c
        where c.channel_id = channel and c.routing_key = any (keys) and c.state <> 'closed'
        order by c.routing_key
    loop
        perform leat.kill_waiting(channel, now_, actor, circuit.routing_key, circuit.admitted);
    end loop;
end
$$;

-- The messages, out of some of one queue, that circuits keep from waiting.
create function leat.barred(channel integer, ids bigint[], keys text[]) returns bigint[]
language sql stable as $$ -- runs under its callers' settings
    select coalesce(array_agg(u.id), '{}')
    from unnest(ids, keys) u (id, key)
    join leat.circuits c on c.channel_id = channel and c.routing_key = u.key
    where c.state <> 'closed' and u.id <> all (c.admitted)
$$;

-- Messages of FIFO keys were acked: a probe has passed, and the key's failures
-- count from the start. The caller holds the lanes.
create function leat.pass_circuits(channels integer[], keys text[], ids bigint[]) returns void
language plpgsql as $$ -- runs under its callers' settings
declare
    touched tid[];
begin
    touched := array(
        select c.tid
        from (select distinct u.channel, u.key from unnest(channels, keys) u (channel, key)) u
        cross join lateral (
            select c.ctid as tid from leat.circuits c
            where c.channel_id = u.channel and c.routing_key = u.key and (c.state = 'closed' or c.admitted && ids)
            for update
        ) c);
    delete from leat.circuits c where c.ctid = any (touched) and c.state = 'closed';
    update leat.circuits c
    set admitted = leat.without(c.admitted, ids), changed_at = clock_timestamp(),
        state = case when c.state = 'half_open' and c.message_id = any (ids) then 'closing' else c.state end
    where c.ctid = any (touched);
end
$$;

-- Messages have left a FIFO queue without an ack: where one was the probe, the
-- next dead one is tried instead. The caller holds the lanes.
create function leat.lose_probes(channel integer, now_ timestamptz, actor text, ids bigint[]) returns void
language plpgsql as $$ -- runs under its callers' settings
declare
    circuit leat.circuits;
begin
    update leat.circuits c set admitted = leat.without(c.admitted, ids)
    where c.channel_id = channel and c.state <> 'closed' and c.admitted && ids;
    for circuit in
        update leat.circuits c set state = 'open', probe_at = now_, changed_at = now_
        where c.channel_id = channel and c.state = 'half_open' and c.message_id = any (ids)
        returning c.*
    loop
        perform leat.fence();
        insert into leat.events (at, kind, channel_id, routing_key, actor, due_at, message_ids, data)
        values (now_, 'circuit.opened', channel, circuit.routing_key, actor, now_, array[circuit.message_id],
            '{"reason": "probe_gone", "messages": 0}');
    end loop;
end
$$;

-- Tries to lock a lane, which is made if there is none: without waiting.
create function leat.try_lane(channel integer, key text) returns boolean
language plpgsql as $$ -- runs under its callers' settings
begin
    perform from leat.lanes l where l.channel_id = channel and l.routing_key = key for update skip locked;
    if found then
        return true;
    end if;
    -- It may be that of an open publish, which has the append lock then.
    if exists (select from leat.lanes l where l.channel_id = channel and l.routing_key = key)
        or not pg_try_advisory_xact_lock(1279607043, leat.append_lock(channel, key))
    then
        return false;
    end if;
    insert into leat.lanes (channel_id, routing_key, head_id, state)
    values (channel, key, 9223372036854775807, 0)
    on conflict do nothing;
    perform from leat.lanes l where l.channel_id = channel and l.routing_key = key for update skip locked;
    return found;
end
$$;

-- Closes a circuit and, if revive, recovers what is dead of its key; answers how
-- many. The caller holds the lane and the append lock and, if revive, the dead.
create function leat.shut_circuit(circuit leat.circuits, now_ timestamptz, actor text, revive boolean, by text) returns bigint
language plpgsql as $$ -- runs under its callers' settings
declare
    moved bigint := 0;
begin
    if revive then
        moved := leat.revive_dead(circuit.channel_id, now_, actor, circuit.routing_key, circuit.admitted);
    elsif circuit.straggling then
        perform leat.kill_waiting(circuit.channel_id, now_, actor, circuit.routing_key, circuit.admitted);
        perform leat.free_lanes(now_, array[circuit.channel_id], array[circuit.routing_key], array[0]);
    end if;
    delete from leat.circuits c where c.channel_id = circuit.channel_id and c.routing_key = circuit.routing_key;
    perform leat.fence();
    insert into leat.events (at, kind, channel_id, routing_key, actor, message_ids, data)
    values (now_, 'circuit.closed', circuit.channel_id, circuit.routing_key, actor,
        case when by = 'probe' then array[circuit.message_id] end, jsonb_build_object('by', by, 'messages', moved));
    return moved;
end
$$;

-- Lets the first dead message of a key through, to see whether it works now; with
-- none dead, the circuit can close. False: somebody has that message in hand. The
-- caller holds the lane.
create function leat.try_probe(circuit leat.circuits, now_ timestamptz) returns boolean
language plpgsql as $$ -- runs under its callers' settings
declare
    run record;
    id  bigint;
begin
    select r.ctid as tid, r.* into run
    from leat.queue_runs r
    where r.channel_id = circuit.channel_id and r.routing_key = circuit.routing_key and r.state = 3 and r.fifo
    order by r.first_id
    limit 1;
    if not found then
        update leat.circuits c
        set state = 'closing', message_id = null, probe_at = null, changed_at = now_
        where c.channel_id = circuit.channel_id and c.routing_key = circuit.routing_key;
        return true;
    end if;
    perform from leat.queue_runs r
    where r.ctid = run.tid and r.state = 3 and r.channel_id = run.channel_id and r.ids = run.ids
    for update skip locked;
    if not found then
        return false;
    end if;
    id := run.first_id;
    if cardinality(run.ids) > 1 then
        update leat.queue_runs r
        set ids = r.ids[2:], origins = r.origins[2:], first_id = r.ids[2]
        where r.ctid = run.tid;
    else
        delete from leat.queue_runs r where r.ctid = run.tid;
    end if;
    insert into leat.queue_runs (channel_id, fifo, first_id, state, rank, routing_key, ids, origins, headers)
    values (run.channel_id, true, id, 0, run.rank, run.routing_key, run.ids[1:1], run.origins[1:1], run.headers);
    update leat.circuits c
    set state = 'half_open', message_id = id, probe_at = null, changed_at = now_, admitted = c.admitted || id
    where c.channel_id = circuit.channel_id and c.routing_key = circuit.routing_key;

    perform leat.fence();
    insert into leat.events (at, kind, channel_id, actor, message_ids, data)
    values (now_, 'message.recovered', circuit.channel_id, 'leat', array[id], '{"admitted": true}');
    insert into leat.events (at, kind, channel_id, routing_key, actor, message_ids, data)
    values (now_, 'circuit.half_opened', circuit.channel_id, circuit.routing_key, 'leat', array[id], '{"messages": 1}');
    update leat.lanes l set head_id = least(l.head_id, id)
    where l.channel_id = circuit.channel_id and l.routing_key = circuit.routing_key;
    perform leat.free_lanes(now_, array[circuit.channel_id], array[circuit.routing_key], array[0]);
    return true;
end
$$;

-- What time and open publishes leave to do: cool-downs that are over, circuits that
-- can close, messages that came after all. n counts the circuits that changed.
create function leat.sweep_circuits(now_ timestamptz, page integer, out n integer, out changed integer[])
language plpgsql as $$ -- runs under its callers' settings
declare
    todo    record;
    circuit leat.circuits;
    moved   bigint := 0;
begin
    n := 0;
    changed := '{}';
    for todo in
        select c.channel_id, c.routing_key from leat.circuits c
        where c.state = 'open' and c.probe_at is not null and c.probe_at <= now_
        union
        select c.channel_id, c.routing_key from leat.circuits c
        where c.state = 'closing' or c.straggling
        order by 1, 2
    loop
        exit when n >= page or moved > 100000; -- in one transaction
        if not exists (select from leat.channels c where c.id = todo.channel_id and c.deleted_at is null) then
            delete from leat.circuits c where c.channel_id = todo.channel_id and c.routing_key = todo.routing_key;
            continue;
        end if;
        continue when not leat.try_lane(todo.channel_id, todo.routing_key);
        select c.* into circuit from leat.circuits c
        where c.channel_id = todo.channel_id and c.routing_key = todo.routing_key;
        if circuit.state = 'open' and circuit.probe_at <= now_ then
            if leat.try_probe(circuit, now_) then
                n := n + 1;
                changed := changed || circuit.channel_id;
            end if;
            select c.* into circuit from leat.circuits c
            where c.channel_id = todo.channel_id and c.routing_key = todo.routing_key;
        end if;
        if not coalesce(circuit.state = 'closing' or circuit.straggling, false)
            or not pg_try_advisory_xact_lock(1279607043, leat.append_lock(circuit.channel_id, circuit.routing_key))
            or circuit.state = 'closing' and not leat.hold_dead(circuit.channel_id, circuit.routing_key, false)
        then
            -- A lane that was made for this is empty.
            perform leat.free_lanes(now_, array[todo.channel_id], array[todo.routing_key], array[0]);
        elsif circuit.state = 'closing' then
            moved := moved + leat.shut_circuit(circuit, now_, 'leat', true,
                case when circuit.message_id is null then 'empty' else 'probe' end);
            n := n + 1;
            changed := changed || circuit.channel_id;
        else
            moved := moved + leat.kill_waiting(circuit.channel_id, now_, 'leat', circuit.routing_key, circuit.admitted);
            update leat.circuits c set straggling = false
            where c.channel_id = circuit.channel_id and c.routing_key = circuit.routing_key;
            perform leat.free_lanes(now_, array[circuit.channel_id], array[circuit.routing_key], array[0]);
            n := n + 1;
        end if;
    end loop;
end
$$;

-- Finds a FIFO queue for a circuit's sake, and keeps it from being deleted.
create function leat.circuit_queue(queue text, key text) returns leat.channels
language plpgsql as $$ -- runs under its callers' settings
declare
    channel leat.channels;
begin
    perform leat.need_views();
    if key is null or octet_length(key) > 255 then
        raise exception 'a routing key has at most 255 bytes' using errcode = 'LE003', column = 'routingKey';
    end if;
    perform pg_advisory_xact_lock_shared(1279607042, leat.queue_id(queue));
    select c.* into channel from leat.channels c where c.id = leat.queue_id(queue);
    if channel.mode <> 'fifo' then
        raise exception 'queue % is not FIFO: it has no circuits', quote_literal(queue) using errcode = 'LE003', column = 'queue';
    end if;
    return channel;
end
$$;

-- Opens a circuit by hand: what waits under the key dies. changed: it was not open.
create function leat.open_circuit(queue text, routing_key text, actor text default null,
    out changed boolean, out messages bigint)
language plpgsql
set search_path = ''
set lock_timeout = '2s'
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off as $$
declare
    channel leat.channels := leat.circuit_queue(queue, open_circuit.routing_key);
    now_    timestamptz;
begin
    loop
        insert into leat.lanes as l (channel_id, routing_key, head_id, state)
        values (channel.id, open_circuit.routing_key, 9223372036854775807, 0)
        on conflict on constraint lanes_pkey do nothing;
        perform from leat.lanes l where l.channel_id = channel.id and l.routing_key = open_circuit.routing_key for update;
        exit when found; -- else it was empty, and somebody who had it has taken it away
    end loop;
    now_ := clock_timestamp();
    changed := not exists (
        select from leat.circuits c
        where c.channel_id = channel.id and c.routing_key = open_circuit.routing_key and c.state = 'open');
    messages := 0;
    if changed then
        messages := leat.trip_circuit(channel, now_, coalesce(actor, 'sql:' || session_user), open_circuit.routing_key, null,
            'by hand', '{}');
    end if;
    perform leat.free_lanes(now_, array[channel.id], array[open_circuit.routing_key], array[0]);
end
$$;

-- Closes a circuit by hand, and recovers the dead letters of the key or leaves them
-- where they are. changed: it was not closed. Waits at most 2 s for open publishes.
create function leat.close_circuit(queue text, routing_key text, recover boolean default false, actor text default null,
    out changed boolean, out messages bigint)
language plpgsql
set search_path = ''
set lock_timeout = '2s'
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off as $$
declare
    channel leat.channels := leat.circuit_queue(queue, close_circuit.routing_key);
    circuit leat.circuits;
    now_    timestamptz;
begin
    -- Before the lane: nobody who has a lane waits for an append lock.
    perform pg_advisory_xact_lock(1279607043, leat.append_lock(channel.id, close_circuit.routing_key));
    insert into leat.lanes as l (channel_id, routing_key, head_id, state)
    values (channel.id, close_circuit.routing_key, 9223372036854775807, 0)
    on conflict on constraint lanes_pkey do nothing;
    perform from leat.lanes l where l.channel_id = channel.id and l.routing_key = close_circuit.routing_key for update;
    now_ := clock_timestamp();
    select c.* into circuit from leat.circuits c
    where c.channel_id = channel.id and c.routing_key = close_circuit.routing_key;
    changed := coalesce(circuit.state, 'closed') <> 'closed';
    messages := 0;
    if changed then
        if recover then
            perform leat.hold_dead(channel.id, close_circuit.routing_key, true);
        end if;
        messages := leat.shut_circuit(circuit, now_, coalesce(actor, 'sql:' || session_user), coalesce(recover, false), 'hand');
        perform leat.wake(array[channel.id]);
    else
        delete from leat.circuits c where c.channel_id = channel.id and c.routing_key = close_circuit.routing_key;
    end if;
    perform leat.free_lanes(now_, array[channel.id], array[close_circuit.routing_key], array[0]);
end
$$;
