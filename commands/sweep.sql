-- What only time does: due messages become ready, leases end, messages expire.
-- Works in pages, ordered by due time, passing over what others hold, so any
-- number of brokers may sweep. since bounds the scan from below (null: all), so
-- that it need not walk what a held snapshot keeps in the index.
create function leat.sweep(
    since timestamptz,
    out channels integer[],      -- have messages that were not deliverable before
    out next_due timestamptz,    -- the least time at which something is due; null: nothing waits
    out more     boolean         -- a page was full: call again
)
language plpgsql
set search_path = ''
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off as $$
declare
    page    constant integer := 1000;
    now_    timestamptz := clock_timestamp();
    low     timestamptz := coalesce(since, '-infinity');
    n       integer;
    changed integer[];
begin
    perform leat.need_views();
    channels := '{}';
    more := false;
    if exists (select from leat.unplaced) and leat.place_unplaced() > 0 then
        channels := array(select c.id from leat.channels c where c.deleted_at is null);
    end if;

    with due as (
        select r.ctid as tid from leat.queue_runs r
        where (r.state = 2 or (r.state = 1 and not r.fifo)) and r.state = 1 and r.due_at >= low and r.due_at <= now_
        order by r.due_at
        limit page
        for update skip locked
    ), moved as (
        update leat.queue_runs r set state = 0 from due d where r.ctid = d.tid returning r.channel_id
    )
    select count(*), array_agg(distinct m.channel_id) into n, changed from moved m;
    channels := channels || coalesce(changed, '{}');
    more := more or n >= page;

    with due as (
        select l.ctid as tid from leat.lanes l
        where l.state = 1 and l.due_at >= low and l.due_at <= now_
        order by l.due_at
        limit page
        for update skip locked
    ), moved as (
        update leat.lanes l set state = 0, due_at = null from due d where l.ctid = d.tid returning l.channel_id
    )
    select count(*), array_agg(distinct m.channel_id) into n, changed from moved m;
    channels := channels || coalesce(changed, '{}');
    more := more or n >= page;

    select w.n, w.changed into n, changed from leat.sweep_leases(now_, low, page) w;
    channels := channels || coalesce(changed, '{}');
    more := more or n >= page;

    select w.n, w.changed into n, changed from leat.sweep_expired(now_, low, page) w;
    channels := channels || coalesce(changed, '{}');
    more := more or n >= page;

    select w.n, w.changed into n, changed from leat.sweep_circuits(now_, page) w;
    channels := channels || coalesce(changed, '{}');
    more := more or n > 0; -- there may be more of the same key, or of a large one

    n := leat.sweep_dead(now_, low, page);
    more := more or n >= page;

    delete from leat.dedup d
    where (d.channel_id, d.dedup_id) in (
        select x.channel_id, x.dedup_id from leat.dedup x where x.expires_at <= now_
        order by x.expires_at limit page for update skip locked);

    channels := array(select distinct c from unnest(channels) c order by 1);
    next_due := least(
        (select r.due_at from leat.queue_runs r
         where (r.state = 2 or (r.state = 1 and not r.fifo)) and r.due_at >= low order by r.due_at limit 1),
        (select l.due_at from leat.lanes l where l.state = 1 and l.due_at >= low order by l.due_at limit 1),
        (select r.expires_at from leat.queue_runs r
         where r.expires_at is not null and r.state <= 1 and r.expires_at >= low order by r.expires_at limit 1),
        (select c.probe_at from leat.circuits c where c.state = 'open' and c.probe_at is not null order by c.probe_at limit 1),
        -- Somebody holds what the circuit needs.
        (select now_ + interval '100 ms' from leat.circuits c where c.state = 'closing' or c.straggling limit 1));
end
$$;

-- The queues whose dead letters go to a channel that is about to be deleted: who does
-- that may wait for their runs, and so nobody waits for him with one in hand. The others'
-- channels stay until the end of the transaction.
create function leat.shut_queues(queues integer[]) returns integer[]
language sql volatile as $$ -- runs under its callers' settings
    select coalesce(array_agg(c.id), '{}')
    from (select distinct u.id from unnest(queues) u (id)) u
    join leat.channels c on c.id = u.id
    where c.dead_letter_to is not null and not pg_try_advisory_xact_lock_shared(1279607042, c.dead_letter_to)
$$;

-- Leases that are over count as an attempt and go the queue's retry way.
create function leat.sweep_leases(now_ timestamptz, low timestamptz, page integer, out n integer, out changed integer[])
language plpgsql set search_path = '' set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
    over    record;
    channel leat.channels;
    ours    record; -- the lanes that are locked here
    shut    integer[];
begin
    shut := leat.shut_queues(array(
        select d.channel_id
        from (
            select r.channel_id from leat.queue_runs r
            where (r.state = 2 or (r.state = 1 and not r.fifo)) and r.state = 2 and r.due_at >= low and r.due_at <= now_
            order by r.due_at
            limit page
        ) d));
    -- Lanes first, then their runs. A lane that somebody settles right now is left to the next sweep.
    select array_agg(d.channel_id) as channels, array_agg(d.routing_key) as keys into ours
    from (
        select distinct d.channel_id, d.routing_key
        from (
            select r.channel_id, r.routing_key, r.fifo from leat.queue_runs r
            where (r.state = 2 or (r.state = 1 and not r.fifo)) and r.state = 2 and r.due_at >= low and r.due_at <= now_
              and r.channel_id <> all (shut)
            order by r.due_at
            limit page
        ) d
        where d.fifo
        order by d.channel_id, d.routing_key
    ) d
    cross join lateral (
        select from leat.lanes l
        where l.channel_id = d.channel_id and l.routing_key = d.routing_key
        for update skip locked
    ) l;

    n := 0;
    changed := '{}';
    for over in
        with due as materialized (
            select r.ctid as tid, r.* from leat.queue_runs r
            where (r.state = 2 or (r.state = 1 and not r.fifo)) and r.state = 2 and r.due_at >= low and r.due_at <= now_
              and r.channel_id <> all (shut)
              and (not r.fifo or (r.channel_id, r.routing_key) in (select u.c, u.k from unnest(ours.channels, ours.keys) u (c, k)))
            order by r.due_at
            limit page
            for update skip locked
        ), gone as (
            delete from leat.queue_runs r using due d
            where r.ctid = d.tid
            returning r.*
        )
        select g.channel_id, g.delivery, count(distinct g.first_id) as runs,
            array_agg(row(null, g.channel_id, i.id, g.origins[i.n], g.delivery, g.fifo, g.rank, g.routing_key, g.deliveries,
                g.expires_at, null, g.headers)::leat.held order by i.id) as held
        from gone g
        cross join lateral unnest(g.ids) with ordinality i (id, n)
        group by g.channel_id, g.delivery
        order by g.channel_id, g.delivery
    loop
        select c.* into channel from leat.channels c where c.id = over.channel_id;
        perform leat.fail_messages(channel, now_, 'message.lease_expired', 'leat', null, null, null, over.held);
        if channel.mode = 'fifo' then
            perform leat.free_lanes_of(now_, over.held);
        end if;
        n := n + over.runs;
        changed := changed || channel.id;
    end loop;
end
$$;

-- Waiting messages past their expiry leave, or die where the queue asks for it.
create function leat.sweep_expired(now_ timestamptz, low timestamptz, page integer, out n integer, out changed integer[])
language plpgsql set search_path = '' set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
    over    record;
    channel leat.channels;
    ours    record; -- the lanes that are locked here
    shut    integer[];
begin
    shut := leat.shut_queues(array(
        select d.channel_id
        from (
            select r.channel_id from leat.queue_runs r
            where r.expires_at is not null and r.state <= 1 and r.expires_at >= low and r.expires_at <= now_
            order by r.expires_at
            limit page
        ) d));
    select array_agg(d.channel_id) as channels, array_agg(d.routing_key) as keys into ours
    from (
        select distinct d.channel_id, d.routing_key
        from (
            select r.channel_id, r.routing_key, r.fifo from leat.queue_runs r
            where r.expires_at is not null and r.state <= 1 and r.expires_at >= low and r.expires_at <= now_
              and r.channel_id <> all (shut)
            order by r.expires_at
            limit page
        ) d
        where d.fifo
        order by d.channel_id, d.routing_key
    ) d
    cross join lateral (
        select from leat.lanes l
        where l.channel_id = d.channel_id and l.routing_key = d.routing_key
        for update skip locked
    ) l;

    n := 0;
    changed := '{}';
    for over in
        with due as materialized (
            select r.ctid as tid from leat.queue_runs r
            where r.expires_at is not null and r.state <= 1 and r.expires_at >= low and r.expires_at <= now_
              and r.channel_id <> all (shut)
              and (not r.fifo or (r.channel_id, r.routing_key) in (select u.c, u.k from unnest(ours.channels, ours.keys) u (c, k)))
            order by r.expires_at
            limit page
            for update skip locked
        ), gone as (
            delete from leat.queue_runs r using due d
            where r.ctid = d.tid
            returning r.*
        )
        select g.channel_id, count(distinct g.first_id) as runs, array_agg(i.id order by i.id) as ids,
            array_agg(row(null, g.channel_id, i.id, g.origins[i.n], null, g.fifo, g.rank, g.routing_key, g.deliveries,
                null, null, g.headers)::leat.held order by i.id) as held
        from gone g
        cross join lateral unnest(g.ids) with ordinality i (id, n)
        group by g.channel_id
        order by g.channel_id
    loop
        select c.* into channel from leat.channels c where c.id = over.channel_id;
        perform leat.fence();
        insert into leat.events (at, kind, channel_id, actor, message_ids)
        values (now_, 'message.expired', channel.id, 'leat', over.ids);
        if channel.dead_letter_expired then
            perform leat.bury(channel, now_, 'leat', 'expired', null, over.held);
        end if;
        if channel.mode = 'fifo' then
            perform leat.lose_probes(channel.id, now_, 'leat', over.ids);
            perform leat.free_lanes_of(now_, over.held);
        end if;
        n := n + over.runs;
        changed := changed || channel.id;
    end loop;
end
$$;
