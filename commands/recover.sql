-- Dead letters live again: in the queue where they died, under the same ids, so
-- before what came to their key after them.

-- Recovers a page of the dead letters that a filter chooses, a FIFO key always
-- as a whole. Keys whose circuit is not closed are passed over (circuit_open
-- counts their messages), and so are those that others have in hand (busy).
-- next: where the next page begins; null: this was the last one. A message that
-- dies again is not met again, if the filter has a time that it died before.
create function leat.recover_dead(
    queue   integer,
    filter  leat.dead_filter,
    after   bigint,
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
    now_    timestamptz := clock_timestamp();
    window_ record;
    held    text[];
    keys    text[]; -- held, and not behind a circuit
    tids    tid[];
begin
    recovered := 0;
    circuit_open := 0;
    busy := 0;
    select w.* into window_ from leat.dead_page(queue, filter, after, page) w;
    if window_.upto is null then
        return;
    end if;
    next := case when window_.more then window_.upto end;
    if channel.mode = 'fifo' then
        held := leat.hold_lanes(queue, leat.dead_keys(queue, filter, after, window_.upto));
        -- Whoever opens a circuit holds the lane, so this holds.
        keys := array(
            select h.key from unnest(held) h (key)
            where not exists (
                select from leat.circuits c
                where c.channel_id = queue and c.routing_key = h.key and c.state <> 'closed'));
        tids := leat.lock_dead_of(queue, filter, keys);
    else
        tids := leat.lock_dead(queue, filter, after, window_.upto);
    end if;
    recovered := leat.revive(queue, now_, actor, ttl, null, leat.split_runs(tids, leat.chosen_ids(filter)));
    perform leat.tidy_lanes(queue, now_, held);
    select p.circuit_open, p.others into circuit_open, busy
    from leat.passed_over(queue, filter, after, window_.upto) p;
end
$$;

-- Recovers dead letters by id, whatever their circuit is; a status each as
-- leat.dead_statuses() has them, and 0: recovered.
create function leat.recover_ids(queue integer, message_ids bigint[], ttl interval, actor text) returns smallint[]
language plpgsql set search_path = '' set enable_seqscan = off set jit = off as $$
declare
    channel  leat.channels := leat.hold_queue(queue);
    now_     timestamptz := clock_timestamp();
    wanted   int8multirange := (select range_agg(int8range(u.id, u.id, '[]')) from unnest(message_ids) u (id));
    found_   record;
    held     text[];
    tids     tid[];
    admitted tid[];
    done     int8multirange;
begin
    select array_agg(f.first_id) as first_ids, array_agg(distinct f.routing_key) as keys into found_
    from leat.find_dead(queue, message_ids) f;
    if found_.first_ids is null then
        return leat.dead_statuses(queue, message_ids, '{}');
    end if;
    if channel.mode = 'fifo' then
        held := leat.hold_lanes(queue, found_.keys);
        found_.first_ids := array(
            select f.first_id from leat.find_dead(queue, message_ids) f
            where f.routing_key in (select h.key from unnest(held) h (key)));
    end if;
    tids := leat.split_runs(leat.lock_found(queue, found_.first_ids), wanted);
    done := leat.ids_of(tids);
    if channel.mode = 'fifo' then
        admitted := array(
            select r.ctid
            from leat.queue_runs r
            join leat.circuits c on c.channel_id = r.channel_id and c.routing_key = r.routing_key and c.state <> 'closed'
            where r.ctid = any (tids));
        tids := array(select u.tid from unnest(tids) u (tid) where u.tid not in (select a.tid from unnest(admitted) a (tid)));
        update leat.circuits c
        set admitted = array(select unnest(c.admitted) union select unnest(a.ids) order by 1)
        from (
            select r.routing_key, array_agg(i.id) as ids
            from leat.queue_runs r
            cross join lateral unnest(r.ids) i (id)
            where r.ctid = any (admitted)
            group by r.routing_key
        ) a
        where c.channel_id = queue and c.routing_key = a.routing_key;
        perform leat.revive(queue, now_, actor, ttl, '{"admitted": true}', admitted);
    end if;
    perform leat.revive(queue, now_, actor, ttl, null, tids);
    perform leat.tidy_lanes(queue, now_, held);
    return leat.dead_statuses(queue, message_ids, done);
end
$$;

-- The keys of a page of dead letters whose circuits are closed.
create function leat.dead_keys(queue integer, filter leat.dead_filter, after bigint, upto bigint) returns text[]
language sql stable set search_path = '' set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
    select coalesce(array_agg(k.routing_key), '{}')
    from (
        select distinct r.routing_key
        from leat.queue_runs r
        where r.channel_id = queue and r.state = 3 and r.first_id > after and r.first_id <= upto
          and leat.is_chosen(r, filter)
          and not exists (
            select from leat.circuits c
            where c.channel_id = queue and c.routing_key = r.routing_key and c.state <> 'closed')
    ) k
$$;

-- Locks the dead runs of keys, whose lanes the caller holds.
create function leat.lock_dead_of(queue integer, filter leat.dead_filter, keys text[]) returns tid[]
language sql volatile set search_path = '' set enable_seqscan = off set enable_bitmapscan = off
set enable_nestloop = off set enable_mergejoin = off set jit = off as $$ -- all dead runs are read, once
    select coalesce(array_agg(l.tid), '{}')
    from (
        select r.ctid as tid
        from unnest(keys) k (key)
        join leat.queue_runs r on r.routing_key = k.key
        where r.channel_id = queue and r.state = 3 and leat.is_chosen(r, filter)
        for update of r skip locked
    ) l
$$;

-- What is still dead of a page, in messages.
create function leat.passed_over(queue integer, filter leat.dead_filter, after bigint, upto bigint,
    out circuit_open bigint, out others bigint)
language sql stable set search_path = '' set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
    select coalesce(sum(s.size) filter (where s.behind), 0), coalesce(sum(s.size) filter (where not s.behind), 0)
    from (
        select
            case
                when r.first_id >= coalesce(filter.from_id, 0)
                    and r.ids[cardinality(r.ids)] <= coalesce(filter.to_id, 9223372036854775807)
                then cardinality(r.ids)
                else (select count(*) from unnest(r.ids) i (id) where leat.chosen_ids(filter) @> i.id)
            end as size,
            c.channel_id is not null as behind
        from leat.queue_runs r
        left join leat.circuits c on c.channel_id = queue and c.routing_key = r.routing_key and c.state <> 'closed' and r.fifo
        where r.channel_id = queue and r.state = 3 and r.first_id > after and r.first_id <= upto
          and leat.is_chosen(r, filter)
    ) s
$$;

-- Locks the lanes of keys, and makes those that are missing, which the caller has
-- to fill; answers the keys of those it got. A lane that is held is passed over.
-- So is a missing one while somebody publishes to its key: he makes it.
create function leat.hold_lanes(queue integer, keys text[]) returns text[]
language plpgsql set search_path = '' set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
begin
    with missing as materialized (
        select k.key from unnest(keys) k (key)
        where not exists (
            select from leat.lanes l where l.channel_id = queue and l.routing_key = k.key)
        order by k.key
    )
    insert into leat.lanes (channel_id, routing_key, head_id, state)
    select queue, m.key, 9223372036854775807, 0
    from missing m
    where pg_try_advisory_xact_lock(1279607043, leat.append_lock(queue, m.key))
    on conflict do nothing;
    return array(
        select h.key
        from (select k.key from unnest(keys) k (key) order by k.key) h
        cross join lateral (
            select from leat.lanes l
            where l.channel_id = queue and l.routing_key = h.key
            for update skip locked
        ) l);
end
$$;

-- Lanes that were held and got nothing show their head again, or go.
create function leat.tidy_lanes(queue integer, now_ timestamptz, keys text[]) returns void
language plpgsql set search_path = '' set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
    idle text[];
begin
    idle := array(
        select k.key
        from unnest(keys) k (key)
        cross join lateral (
            select from leat.lanes l
            where l.channel_id = queue and l.routing_key = k.key and l.head_id = 9223372036854775807 and l.in_flight = 0
            limit 1
        ) l);
    if idle <> '{}' then
        perform leat.free_lanes(now_, array(select queue from unnest(idle)), idle, array(select 0 from unnest(idle)));
    end if;
end
$$;

-- Locked dead runs become ready, with a time to live or none; the messages,
-- counted. Lanes of theirs are held.
create function leat.revive(queue integer, now_ timestamptz, actor text, ttl interval, data jsonb, tids tid[]) returns bigint
language plpgsql set search_path = '' set enable_seqscan = off set jit = off as $$
declare
    messages int8multirange := leat.ids_of(tids);
    heads    record;
begin
    if messages = '{}' then
        return 0;
    end if;
    perform leat.append_many(now_, 'message.recovered', queue, actor, messages, now_ + ttl, data);
    with moved as (
        update leat.queue_runs r
        set state = 0, deliveries = 0, delivery = null, due_at = null, expires_at = now_ + ttl, owner = null, reason = null,
            died_at = null
        where r.ctid = any (tids)
        returning r.fifo, r.routing_key, r.first_id
    )
    select array_agg(l.routing_key) as keys, array_agg(l.first_id) as ids into heads
    from (
        select m.routing_key, min(m.first_id) as first_id from moved m where m.fifo group by m.routing_key
    ) l;
    update leat.lanes l
    set head_id = least(l.head_id, h.first_id), state = case when l.in_flight > 0 then 2 else 0 end, due_at = null
    from (
        select l.tid, u.first_id
        from unnest(heads.keys, heads.ids) u (key, first_id)
        cross join lateral (
            select l.ctid as tid from leat.lanes l
            where l.channel_id = queue and l.routing_key = u.key
            limit 1
        ) l
    ) h
    where l.ctid = h.tid;
    return (select sum(upper(s.span) - lower(s.span)) from unnest(messages) s (span));
end
$$;

-- The SQL surface: recovers dead letters by id; what became of each: recovered,
-- not_dead, not_found (in this queue), or busy: somebody has it in hand.
create function leat.recover(queue text, message_ids bigint[], ttl interval default null)
    returns table (message_id bigint, result text)
language plpgsql set search_path = '' as $$
declare
    id integer := leat.queue_id(queue);
begin
    perform leat.check_named(message_ids, ttl);
    return query
    select u.id, (array['recovered', 'not_dead', 'not_found', 'busy'])[u.status + 1]
    from unnest(message_ids, leat.recover_ids(id, message_ids, ttl, 'sql:' || session_user)) with ordinality u (id, status, n)
    order by u.n;
    perform leat.wake(array[id]);
end
$$;

-- Recovers all dead letters of a queue that died before now, or those of a key,
-- a reason, a time, in the caller's transaction; counts them. Keys whose circuit
-- is not closed, and what others have in hand, stay.
create function leat.recover_all(
    queue       text,
    routing_key text default null,
    reason      text default null,
    died_after  timestamptz default null,
    died_before timestamptz default null,
    ttl         interval default null,
    out recovered    bigint,
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
    recovered := 0;
    circuit_open := 0;
    busy := 0;
    while after is not null loop
        select r.* into part from leat.recover_dead(id, filter, after, ttl, 'sql:' || session_user, 100000) r;
        recovered := recovered + part.recovered;
        circuit_open := circuit_open + part.circuit_open;
        busy := busy + part.busy;
        after := part.next;
    end loop;
    perform leat.wake(array[id]);
end
$$;

create function leat.check_named(message_ids bigint[], ttl interval) returns void
language plpgsql immutable set search_path = '' as $$
begin
    if coalesce(cardinality(message_ids), 0) not between 1 and 1000 then
        raise exception 'ids: 1 to 1,000 at once' using errcode = 'LE003', column = 'message_ids';
    elsif array_position(message_ids, null) is not null then
        raise exception 'an id is not null' using errcode = 'LE003', column = 'message_ids';
    elsif ttl <= interval '0' then
        raise exception 'ttl is more than nothing' using errcode = 'LE003', column = 'ttl';
    end if;
end
$$;

create function leat.check_chosen(reason text, ttl interval) returns void
language plpgsql immutable set search_path = '' as $$
begin
    if reason not in ('rejected', 'non_retryable', 'retries_exhausted', 'expired', 'circuit_open') then
        raise exception 'reason is rejected, non_retryable, retries_exhausted, expired or circuit_open, or null for any'
            using errcode = 'LE003', column = 'reason';
    elsif ttl <= interval '0' then
        raise exception 'ttl is more than nothing' using errcode = 'LE003', column = 'ttl';
    end if;
end
$$;
