-- Locks the lanes of messages in flight: before any of their runs, and in one order.
create function leat.lock_lanes(deliveries bigint[], message_ids bigint[]) returns void
language plpgsql as $$ -- runs under its callers' settings
begin
    perform from (
        select distinct r.channel_id, r.routing_key
        from leat.queue_runs r
        where r.delivery = any (lock_lanes.deliveries) and r.state = 2 and r.fifo
          -- Of many messages it is cheaper to lock all lanes than to look for theirs.
          and (cardinality(lock_lanes.message_ids) > 100 or r.ids && lock_lanes.message_ids)
        order by r.channel_id, r.routing_key
    ) d
    cross join lateral ( -- one by one: any other join may read all lanes
        select from leat.lanes l
        where l.channel_id = d.channel_id and l.routing_key = d.routing_key
        for update
    ) l;
end
$$;

-- Takes messages out of the runs they are in flight in, if the receipt still
-- holds: in flight in that queue, under that delivery, lease not over. Answers
-- those it took, with what their run knew; lanes are freed by the caller's tail.
create function leat.take_out(
    now_        timestamptz,
    channels    integer[],
    deliveries  bigint[],
    message_ids bigint[]
) returns setof leat.held
language plpgsql as $$ -- runs under its callers' settings
begin
    if exists (select from leat.channels c where c.id = any (channels) and c.mode = 'fifo') then
        perform leat.lock_lanes(take_out.deliveries, take_out.message_ids);
    end if;

    -- Locked here and changed in a later statement, which sees what the last
    -- holder of the lock left; a statement that waits and then changes rows by
    -- ctid would look for the new version with its old snapshot, and miss it.
    perform from leat.queue_runs r
    where r.delivery = any (take_out.deliveries) and r.state = 2 and r.channel_id = any (channels)
      and (cardinality(take_out.message_ids) > 100 or r.ids && take_out.message_ids) -- as in leat.lock_lanes
    order by r.delivery, r.first_id
    for update;

    -- Only what was really changed is answered: a run that somebody made since
    -- then is not locked, and may slip away.
    return query
    with held as materialized (
        select r.ctid as tid, r.*
        from leat.queue_runs r
        where r.delivery = any (take_out.deliveries) and r.state = 2 and coalesce(r.due_at > now_, false) and r.channel_id = any (channels)
    ), asked as materialized (
        select min(u.n) as n, u.channel, u.delivery, u.id
        from unnest(channels, deliveries, message_ids) with ordinality u (channel, delivery, id, n)
        group by u.channel, u.delivery, u.id
    ), listed as materialized (
        select h.tid, i.id, i.n as place, h.origins[i.n] as origin, a.n
        from held h
        cross join lateral unnest(h.ids) with ordinality i (id, n)
        left join asked a on a.channel = h.channel_id and a.delivery = h.delivery and a.id = i.id
    ), left_over as materialized (
        select l.tid, count(l.n) as hits, array_agg(l.id order by l.place) filter (where l.n is null) as ids,
            array_agg(l.origin order by l.place) filter (where l.n is null and l.origin is not null) as origins
        from listed l
        group by l.tid
    ), deleted as (
        delete from leat.queue_runs r
        using left_over o
        where r.ctid = o.tid and o.ids is null
        returning o.tid
    ), updated as (
        update leat.queue_runs r
        set ids = o.ids, first_id = o.ids[1], origins = o.origins
        from left_over o
        where r.ctid = o.tid and o.hits > 0 and o.ids is not null
        returning o.tid
    )
    select l.n::integer, h.channel_id, l.id, l.origin, h.delivery, h.fifo, h.rank, h.routing_key, h.deliveries, h.expires_at,
        h.owner, h.headers
    from listed l
    join held h on h.tid = l.tid
    where l.n is not null
      and l.tid in (select d.tid from deleted d union all select u.tid from updated u)
    order by l.n;
end
$$;

-- What in-flight messages become: runs of one in a FIFO queue, where runs of a
-- key must not overlap; grouped in a standard one.
create function leat.put_back(
    queue    integer,
    fifo     boolean,
    state    smallint,
    held     leat.held[],
    due      timestamptz,
    delivery bigint,
    reason   text,
    died_at  timestamptz
) returns void
language plpgsql as $$ -- runs under its callers' settings
begin
    insert into leat.queue_runs (channel_id, fifo, first_id, state, rank, routing_key, deliveries, due_at, expires_at,
        ids, origins, headers, delivery, owner, reason, died_at)
    select queue, put_back.fifo, min(h.id), put_back.state, h.rank, h.routing_key, h.deliveries, due,
        case when put_back.state < 3 then h.expires_at end,
        array_agg(h.id order by h.id),
        case when bool_or(h.origin is not null) then array_agg(coalesce(h.origin, h.id) order by h.id) end,
        h.headers, put_back.delivery, case when put_back.state = 2 then h.owner end, put_back.reason, put_back.died_at
    from unnest(held) with ordinality h
    group by h.rank, h.routing_key, h.deliveries, case when put_back.state < 3 then h.expires_at end,
        case when put_back.state = 2 then h.owner end, h.headers, case when put_back.fifo then h.ordinality else (h.ordinality - 1) / case when h.origin is null then 200 else 100 end end;
end
$$;

-- Acks of many callers and queues. A group is what one caller acks of one
-- delivery: message_ids from its start to the next one's, in ascending order;
-- groups of one channel and actor lie side by side. fifo: some of the channels may
-- be FIFO. Answers a status per message, null if all are settled: 0 settled, 1 not
-- in flight under that receipt (leat.receipt_fate tells what became of it).
-- With wait = false nothing in here waits for another transaction for long.
create function leat.ack_many(
    channels    integer[],
    actors      text[],
    deliveries  bigint[],
    starts      integer[],
    message_ids bigint[],
    fifo        boolean,
    wait        boolean
) returns smallint[]
language plpgsql
set search_path = ''
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_mergejoin = off
set jit = off as $$
declare
    whole    record;
    settled  integer[]; -- places in message_ids
begin
    if not wait then
        perform set_config('lock_timeout', '100ms', true);
    end if;
    if fifo then
        -- The views in the order of leat.lose_views(), which would deadlock otherwise. And
        -- not those that come back after the lanes have been looked for.
        perform leat.need_views();
        perform leat.lock_lanes(deliveries, message_ids);
    end if;

    -- Most acks are of whole runs, which just go. If these are all, this one
    -- statement does everything: it is the overhead of statements that costs.
    with known as materialized ( -- first, for the order of locks
        select exists (select from leat.views_alive) as alive
    ), asked as materialized (
        select u.*, message_ids[u.start:u.upto] as ids
        from (
            select unnest(channels) as channel, unnest(actors) as actor, unnest(deliveries) as delivery,
                unnest(starts) as start, unnest(starts[2:] || (cardinality(message_ids) + 1)) - 1 as upto
        ) u
    ), gone as (
        delete from leat.queue_runs r
        using asked a
        where r.delivery = any (ack_many.deliveries) and r.state = 2 and coalesce(r.due_at > clock_timestamp(), false)
          and r.delivery = a.delivery and r.channel_id = a.channel
          and r.ids = a.ids[array_position(a.ids, r.first_id):array_position(a.ids, r.first_id) + cardinality(r.ids) - 1]
        returning a.start - 1 + array_position(a.ids, r.first_id) as place, cardinality(r.ids) as size, r.fifo,
            r.channel_id, r.routing_key
    ), total as materialized (
        select coalesce(sum(g.size), 0) = cardinality(message_ids) as all_gone, array_agg(g.place) as places,
            array_agg(g.size) as sizes,
            array_agg(g.channel_id) filter (where g.fifo) as channels,
            array_agg(g.routing_key) filter (where g.fifo) as keys,
            array_agg(g.size) filter (where g.fifo) as counts
        from gone g
    ), fenced as materialized (
        select f.fenced from leat.fence f, total t where t.all_gone
    ), logged as (
        insert into leat.events (kind, channel_id, actor, delivery, message_ids)
        select 'message.acked', g.channel, g.actor, g.delivery, message_ids[g.start:g.upto]
        from fenced f
        cross join (
            select a.channel, a.actor, case when count(*) = 1 then min(a.delivery) end as delivery, min(a.start) as start,
                max(a.upto) as upto
            from asked a
            group by a.channel, a.actor
        ) g
    )
    select t.*, k.alive into whole from total t, known k;

    if not whole.all_gone then
        if not whole.alive then
            perform leat.need_views();
        end if;
        settled := leat.ack_parts(clock_timestamp(), channels, actors, deliveries, starts, message_ids,
            array(select generate_series(u.place, u.place + u.size - 1) from unnest(whole.places, whole.sizes) u (place, size)));
    end if;
    if fifo and whole.keys is not null then
        if exists (select from leat.circuits c where c.channel_id = any (whole.channels)) then
            perform leat.pass_circuits(whole.channels, whole.keys, array(
                select message_ids[n]
                from unnest(whole.places, whole.sizes) u (place, size)
                cross join lateral generate_series(u.place, u.place + u.size - 1) n));
        end if;
        perform leat.free_lanes(clock_timestamp(), whole.channels, whole.keys, whole.counts);
    end if;
    if settled is null then
        return null;
    end if;
    return array(
        select (s.n is null)::integer::smallint
        from generate_subscripts(message_ids, 1) u (n)
        left join unnest(settled) s (n) on s.n = u.n
        order by u.n);
end
$$;

-- The rest of leat.ack_many when some messages are not whole runs, or not in
-- flight: takes out one by one what is not settled yet, and logs all that is.
-- Answers the places of what is.
create function leat.ack_parts(
    now_        timestamptz,
    channels    integer[],
    actors      text[],
    deliveries  bigint[],
    starts      integer[],
    message_ids bigint[],
    settled     integer[]
) returns integer[]
language plpgsql as $$ -- runs under its callers' settings
declare
    groups integer[]; -- of each message
    places integer[]; -- of what is left
    taken  record;
begin
    groups := array(select width_bucket(n, starts) from generate_subscripts(message_ids, 1) n order by n);
    places := array(select n from generate_subscripts(message_ids, 1) n except select s.n from unnest(settled) s (n) order by n);
    select array_agg(places[t.ordinal]) as places, array_agg(t.channel_id) filter (where t.fifo) as channels,
        array_agg(t.routing_key) filter (where t.fifo) as keys
    into taken
    from leat.take_out(now_,
        array(select channels[groups[p.n]] from unnest(places) with ordinality p (n, i) order by p.i),
        array(select deliveries[groups[p.n]] from unnest(places) with ordinality p (n, i) order by p.i),
        array(select message_ids[p.n] from unnest(places) with ordinality p (n, i) order by p.i)) t;
    settled := settled || coalesce(taken.places, '{}');

    perform leat.fence();
    insert into leat.events (at, kind, channel_id, actor, delivery, message_ids)
    select now_, 'message.acked', channels[groups[s.n]], actors[groups[s.n]],
        case when min(deliveries[groups[s.n]]) = max(deliveries[groups[s.n]]) then min(deliveries[groups[s.n]]) end,
        array_agg(message_ids[s.n] order by s.n)
    from unnest(settled) s (n)
    group by 3, 4;
    if taken.keys is not null then
        if exists (select from leat.circuits c where c.channel_id = any (taken.channels)) then
            perform leat.pass_circuits(taken.channels, taken.keys, array(select message_ids[p.n] from unnest(taken.places) p (n)));
        end if;
        perform leat.free_lanes(now_, taken.channels, taken.keys, array_fill(1, array[cardinality(taken.keys)]));
    end if;
    return settled;
end
$$;

-- When a message that failed may be delivered again. The jitter only shortens,
-- so max_delay is a bound.
create function leat.backoff(channel leat.channels, attempt integer) returns interval
language sql volatile as $$
    select (1 - channel.jitter * random()) * case
        when channel.retry_strategy = 'fixed' then least(channel.base_delay, channel.max_delay)
        else least(channel.max_delay, channel.base_delay * power(2, least(attempt, 40) - 1)) end
$$;

-- Failed messages of one queue, already out of flight, go the way of its policy:
-- retried after delay (null: back-off by attempt), or dead. One event per
-- attempt count, so that all its messages share a due time.
create function leat.fail_messages(
    channel leat.channels,
    now_    timestamptz,
    kind    leat.event_kind, -- message.retried or message.lease_expired
    actor   text,
    delay   interval,
    reason  text,            -- not null: dead at once
    data    jsonb,
    held    leat.held[]
) returns void
language plpgsql as $$ -- runs under its callers' settings
declare
    attempt record;
    due     timestamptz;
    death   text;
    barred  bigint[] := '{}'; -- by open circuits
begin
    if channel.mode = 'fifo' then
        barred := leat.barred(channel.id, array(select h.id from unnest(held) h), array(select h.routing_key from unnest(held) h));
    end if;
    perform leat.fence();
    for attempt in
        select h.deliveries as count, h.id = any (barred) as barred, array_agg(h) as held, array_agg(h.id) as ids,
            case when min(h.delivery) = max(h.delivery) then min(h.delivery) end as delivery
        from unnest(held) h
        group by 1, 2
        order by 1, 2
    loop
        death := coalesce(reason, case
            when attempt.count >= channel.max_deliveries then 'retries_exhausted'
            when attempt.barred then 'circuit_open' end);
        due := now_ + coalesce(delay, leat.backoff(channel, attempt.count));
        if kind = 'message.lease_expired' or death is null then
            insert into leat.events (at, kind, channel_id, actor, delivery, due_at, message_ids, data)
            values (now_, kind, channel.id, actor, attempt.delivery, due, attempt.ids, data);
        end if;
        if death is null then
            perform leat.put_back(channel.id, channel.mode = 'fifo', 1::smallint, attempt.held, due, null, null, null);
        else
            perform leat.bury(channel, now_, actor, death, data, attempt.held);
        end if;
    end loop;
end
$$;

-- Messages that are out of the views become dead letters. Their run keeps the
-- position of the event, where the details are.
create function leat.bury(
    channel leat.channels,
    now_    timestamptz,
    actor   text,
    reason  text,
    data    jsonb,
    held    leat.held[]
) returns void
language plpgsql as $$ -- runs under its callers' settings
declare
    death bigint;
    copied leat.held[]; -- also sent to the channel for dead letters
begin
    if channel.dead_letter_to is not null and reason <> 'circuit_open' then
        -- A message that dies again and again on its way ends here: what would be sent
        -- round for ever stays.
        copied := array(select h from unnest(held) h where coalesce((h.headers ->> 'leat-death-count')::integer, 0) < 15);
        if cardinality(copied) < cardinality(held) then
            data := coalesce(data, '{}') || '{"hopLimit": true}';
        end if;
    end if;
    insert into leat.events (at, kind, channel_id, actor, delivery, message_ids, data)
    select now_, 'message.dead_lettered', channel.id, actor, case when min(h.delivery) = max(h.delivery) then min(h.delivery) end,
        array_agg(h.id), coalesce(data, '{}') || jsonb_build_object('reason', reason)
    from unnest(held) h
    returning position into death;
    perform leat.put_back(channel.id, channel.mode = 'fifo', 3::smallint, held, null, death, reason, now_);
    if channel.mode = 'fifo' and reason <> 'circuit_open' then
        perform leat.fail_circuits(channel, now_, actor, reason, array(select h.id from unnest(held) h),
            array(select h.routing_key from unnest(held) h));
    end if;
    if copied <> '{}' then
        perform leat.copy_dead(channel, now_, actor, reason, copied);
    end if;
end
$$;

-- The lanes that messages were taken out of show their next heads.
create function leat.free_lanes_of(now_ timestamptz, held leat.held[]) returns void
language plpgsql as $$ -- runs under its callers' settings
begin
    perform leat.free_lanes(now_, array_agg(h.channel_id), array_agg(h.routing_key), array_agg((h.delivery is not null)::integer))
    from unnest(held) h;
end
$$;

-- Nacks receipts of one queue. action: retry, deadLetter or discard. An error
-- class on the queue's nonRetryable list dead-letters whatever the action.
create function leat.nack_many(
    queue       integer,
    deliveries  bigint[],
    message_ids bigint[],
    action      text,
    delay       interval,
    reason      text,
    error_class text,
    actor       text
) returns smallint[]
language plpgsql
set search_path = ''
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_mergejoin = off
set jit = off as $$
declare
    now_    timestamptz := clock_timestamp();
    channel leat.channels;
    taken   leat.held[];
    death   text;
    details jsonb := nullif(jsonb_strip_nulls(jsonb_build_object('detail', reason, 'errorClass', error_class)), '{}');
begin
    perform leat.need_views();
    if action not in ('retry', 'deadLetter', 'discard') then
        raise exception 'action must be retry, deadLetter or discard' using errcode = 'LE003', column = 'action';
    end if;
    select c.* into channel from leat.channels c where c.id = queue and c.deleted_at is null;
    if not found then
        raise exception 'no queue with id %', queue using errcode = 'LE002';
    end if;
    if channel.dead_letter_to is not null then
        -- Before any run: who deletes a channel has this, and then waits for runs.
        perform pg_advisory_xact_lock_shared(1279607042, channel.dead_letter_to);
    end if;
    taken := array(select t from leat.take_out(now_, array(select queue from unnest(message_ids)), deliveries, message_ids) t);
    if taken <> '{}' then
        perform leat.fence();
        if error_class = any (channel.non_retryable) then
            death := 'non_retryable';
        elsif action = 'deadLetter' then
            death := 'rejected';
        end if;
        if death is null and action = 'discard' then
            insert into leat.events (at, kind, channel_id, actor, message_ids, data)
            select now_, 'message.discarded', queue, actor, array_agg(h.id), details
            from unnest(taken) h;
            if channel.mode = 'fifo' then
                perform leat.lose_probes(queue, now_, actor, array(select h.id from unnest(taken) h));
            end if;
        else
            perform leat.fail_messages(channel, now_, 'message.retried', actor, delay, death, details, taken);
        end if;
        if channel.mode = 'fifo' then
            perform leat.free_lanes_of(now_, taken);
        end if;
    end if;
    return leat.statuses_of(message_ids, taken);
end
$$;

-- A status per message of a request: 0 taken, 1 not in flight under that receipt.
create function leat.statuses_of(message_ids bigint[], taken leat.held[]) returns smallint[]
language sql stable as $$
    select array(
        select case when h.ordinal is null then 1 else 0 end::smallint
        from generate_subscripts(message_ids, 1) u (n)
        left join unnest(taken) h on h.ordinal = u.n
        order by u.n)
$$;

-- Sets the lease of receipts of one queue to end lease from now.
create function leat.extend_many(
    queue       integer,
    deliveries  bigint[],
    message_ids bigint[],
    lease       interval,
    actor       text,
    out statuses    smallint[],
    out lease_until timestamptz
)
language plpgsql
set search_path = ''
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_mergejoin = off
set jit = off as $$
declare
    now_  timestamptz := clock_timestamp();
    taken leat.held[];
    part  record;
    fifo  boolean;
begin
    perform leat.need_views();
    select c.mode = 'fifo' into fifo from leat.channels c where c.id = queue and c.deleted_at is null;
    if not found then
        raise exception 'no queue with id %', queue using errcode = 'LE002';
    end if;
    lease_until := now_ + lease;
    taken := array(select t from leat.take_out(now_, array(select queue from unnest(message_ids)), deliveries, message_ids) t);
    for part in
        select h.delivery, array_agg(h) as held, array_agg(h.id) as ids
        from unnest(taken) h
        group by h.delivery
    loop
        perform leat.fence();
        insert into leat.events (at, kind, channel_id, actor, delivery, due_at, message_ids)
        values (now_, 'message.extended', queue, actor, part.delivery, lease_until, part.ids);
        perform leat.put_back(queue, fifo, 2::smallint, part.held, lease_until, part.delivery, null, null);
    end loop;
    statuses := leat.statuses_of(message_ids, taken);
end
$$;

-- Gives messages back at once, without counting the attempt.
create function leat.release_many(
    queue       integer,
    deliveries  bigint[],
    message_ids bigint[],
    actor       text
) returns smallint[]
language plpgsql
set search_path = ''
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_mergejoin = off
set jit = off as $$
declare
    now_  timestamptz := clock_timestamp();
    keyed boolean;
    taken leat.held[];
begin
    perform leat.need_views();
    select c.mode = 'fifo' into keyed from leat.channels c where c.id = queue and c.deleted_at is null;
    if not found then
        raise exception 'no queue with id %', queue using errcode = 'LE002';
    end if;
    taken := array(select t from leat.take_out(now_, array(select queue from unnest(message_ids)), deliveries, message_ids) t);
    if taken <> '{}' then
        perform leat.fence();
        insert into leat.events (at, kind, channel_id, actor, message_ids)
        select now_, 'message.released', queue, actor, array_agg(h.id)
        from unnest(taken) h;
        perform leat.put_back(queue, keyed, 0::smallint, array_agg(row(h.ordinal, h.channel_id, h.id, h.origin, h.delivery, h.fifo,
            h.rank, h.routing_key, h.deliveries - 1, h.expires_at, h.owner, h.headers)::leat.held), null, null, null, null)
        from unnest(taken) h;
        if keyed then
            perform leat.hold_back(queue, now_, actor, array(select h.routing_key from unnest(taken) h));
            perform leat.free_lanes_of(now_, taken);
        end if;
    end if;
    return leat.statuses_of(message_ids, taken);
end
$$;

-- What became of a receipt, by the log. A settlement can only lie between the
-- delivery and the end of its lease (extensions included), so the scan is short.
create function leat.receipt_fate(queue integer, delivery bigint, message_id bigint) returns text
language plpgsql stable set search_path = '' set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
    handed leat.events;
    event  record;
    until  timestamptz;
begin
    select e.* into handed from leat.events e
    where e.position = receipt_fate.delivery and e.kind = 'message.delivered' and message_id = any (e.message_ids);
    if not found then
        return 'unknown';
    elsif handed.channel_id <> queue then
        return 'wrong_queue';
    end if;
    until := handed.due_at;
    for event in
        select e.kind, e.at, e.due_at, e.message_ids
        from leat.events e
        -- As a row: else the primary key has the order too, and leads through the whole log.
        where (e.channel_id, e.position) > (queue, handed.position) and e.channel_id <= queue
          -- For the partitions; not as a number, beyond which the planner may think that little lies.
          and e.position > (select handed.position)
          and e.message_ids is not null
        order by e.channel_id, e.position
    loop
        if message_id = any (event.message_ids) then
            if event.kind = 'message.extended' then
                until := greatest(until, event.due_at);
            else
                return substr(event.kind::text, length('message.') + 1);
            end if;
        end if;
        exit when event.at > until + interval '1 minute';
    end loop;
    return case when until > clock_timestamp() then 'in_flight' else 'lease_expired' end;
end
$$;

-- Purges what waits (ready and delayed) in one queue; what is in flight or dead stays.
create function leat.purge_queue(queue integer, actor text) returns bigint
language plpgsql set search_path = '' set enable_seqscan = off set jit = off as $$
declare
    now_   timestamptz := clock_timestamp();
    purged bigint;
    lanes  text[];
    keys   text[];
    probes bigint[]; -- what may be among them
begin
    perform leat.need_views();
    perform leat.fence();
    -- Keys that come from here on keep what they have: nobody takes the runs of a
    -- lane that he has not locked.
    lanes := array(select l.routing_key from leat.lanes l where l.channel_id = queue order by l.routing_key for update);
    with gone as (
        delete from leat.queue_runs r
        where r.channel_id = queue and r.state <= 1
          and (not r.fifo or r.routing_key in (select u.key from unnest(lanes) u (key)))
        returning r.ids, r.routing_key
    ), listed as (
        select i.id, (row_number() over (order by i.id) - 1) / 10000 as chunk
        from gone g
        cross join lateral unnest(g.ids) i (id)
    ), appended as (
        insert into leat.events (at, kind, channel_id, actor, message_ids)
        select now_, 'message.purged', queue, actor, array_agg(l.id order by l.id)
        from listed l
        group by l.chunk
    )
    select (select count(*) from listed), (select array_agg(distinct g.routing_key) from gone g),
        case when exists (select from leat.circuits c where c.channel_id = queue) then array(select l.id from listed l) end
    into purged, keys, probes;
    if probes is not null then
        perform leat.lose_probes(queue, now_, actor, probes);
    end if;
    if keys is not null then
        perform leat.free_lanes(now_, array(select queue from unnest(keys)), keys, array(select 0 from unnest(keys)));
    end if;
    return purged;
end
$$;
