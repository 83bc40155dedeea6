-- What is done to many dead letters at once: which ones, and in what pages.
-- A page never waits for anybody: what others hold is passed over.

-- Whether a run may hold messages that a filter chooses; which ones is
-- leat.chosen_ids()'s to say.
create function leat.is_chosen(run leat.queue_runs, filter leat.dead_filter) returns boolean
language sql immutable as $$
    select (filter.routing_key is null or run.routing_key = filter.routing_key)
       and (filter.reason is null or run.reason = filter.reason)
       and (filter.died_after is null or run.died_at >= filter.died_after)
       and (filter.died_before is null or run.died_at < filter.died_before)
       and (filter.from_id is null or run.ids[cardinality(run.ids)] >= filter.from_id)
       and (filter.to_id is null or run.first_id <= filter.to_id)
$$;

create function leat.chosen_ids(filter leat.dead_filter) returns int8multirange
language sql immutable as $$
    select case when num_nonnulls(filter.from_id, filter.to_id) > 0
        then int8multirange(int8range(filter.from_id, filter.to_id, '[]')) end
$$;

-- What every command on the dead letters of a queue begins with: the queue, which
-- is not deleted before the end of the transaction.
create function leat.hold_queue(queue integer) returns leat.channels
language plpgsql as $$ -- runs under its callers' settings
declare
    channel leat.channels;
begin
    perform pg_advisory_xact_lock_shared(1279607042, queue);
    select c.* into channel from leat.channels c where c.id = queue and c.deleted_at is null and c.kind = 'queue';
    if not found then
        raise exception 'no queue with id %', queue using errcode = 'LE002';
    end if;
    perform leat.need_views();
    return channel;
end
$$;

-- The last run of a page of about so many dead letters beyond after; null when
-- there is none. more: the page is full.
create function leat.dead_page(queue integer, filter leat.dead_filter, after bigint, page integer,
    out upto bigint, out more boolean)
language plpgsql stable set search_path = '' set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set jit = off as $$
declare
    run  record;
    size bigint := 0;
begin
    for run in
        select r.first_id, cardinality(r.ids) as size
        from leat.queue_runs r
        where r.channel_id = queue and r.state = 3 and r.first_id > after and leat.is_chosen(r, filter)
        order by r.first_id
    loop
        upto := run.first_id;
        size := size + run.size;
        exit when size >= page;
    end loop;
    more := size >= page;
end
$$;

-- Locks the dead runs of a page.
create function leat.lock_dead(queue integer, filter leat.dead_filter, after bigint, upto bigint) returns tid[]
language sql volatile set search_path = '' set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
    select coalesce(array_agg(l.tid), '{}')
    from (
        select r.ctid as tid
        from leat.queue_runs r
        where r.channel_id = queue and r.state = 3 and r.first_id > after and r.first_id <= upto
          and leat.is_chosen(r, filter)
        for update skip locked
    ) l
$$;

-- The dead runs that hold any of these messages. A run is found at once by its
-- first message; else all of the queue's are looked through.
create function leat.find_dead(queue integer, message_ids bigint[]) returns table (first_id bigint, routing_key text)
language plpgsql stable set search_path = '' set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
    missing bigint[];
    wanted  int8multirange;
begin
    return query
    select r.first_id, r.routing_key
    from leat.queue_runs r
    where r.channel_id = queue and r.state = 3 and r.first_id = any (message_ids);

    select array_agg(m.id), range_agg(int8range(m.id, m.id, '[]')) into missing, wanted
    from (
        select u.id from unnest(message_ids) u (id)
        except
        select i.id
        from leat.queue_runs r
        cross join lateral unnest(r.ids) i (id)
        where r.channel_id = queue and r.state = 3 and r.first_id = any (message_ids)
    ) m;
    if missing is null then
        return;
    end if;
    return query
    select r.first_id, r.routing_key
    from leat.queue_runs r
    where r.channel_id = queue and r.state = 3 and r.first_id < upper(wanted)
      and r.first_id <> all (message_ids)
      and wanted && int8range(r.first_id, r.ids[cardinality(r.ids)], '[]')
      and exists (select from unnest(r.ids) i (id) where wanted @> i.id);
end
$$;

-- Locks dead runs by their first messages, if they still are what they were.
create function leat.lock_found(queue integer, first_ids bigint[]) returns tid[]
language sql volatile set search_path = '' set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
    select coalesce(array_agg(l.tid), '{}')
    from (
        select r.ctid as tid
        from leat.queue_runs r
        where r.channel_id = queue and r.state = 3 and r.first_id = any (first_ids)
        for update skip locked
    ) l
$$;

-- Makes runs of their own of the wanted messages in locked runs; answers those
-- runs. Runs of a FIFO key must never overlap, not even a dead one with what was
-- taken from its middle.
create function leat.split_runs(tids tid[], wanted int8multirange) returns tid[]
language plpgsql set search_path = '' set enable_seqscan = off set jit = off as $$
declare
    parts record;
begin
    if wanted is null then
        return tids;
    end if;
    with parts as materialized (
        select p.tid, p.wanted, array_agg(p.id order by p.n) as ids,
            case when bool_or(p.origin is not null) then array_agg(p.origin order by p.n) end as origins
        from (
            select r.ctid as tid, i.id, i.n, r.origins[i.n] as origin, wanted @> i.id as wanted,
                case when r.fifo then i.n - row_number() over (partition by r.ctid, wanted @> i.id order by i.n) end as island
            from leat.queue_runs r
            cross join lateral unnest(r.ids) with ordinality i (id, n)
            where r.ctid = any (tids) and not wanted @> int8range(r.first_id, r.ids[cardinality(r.ids)], '[]')
        ) p
        group by p.tid, p.wanted, p.island
    ), split as materialized (
        select p.tid from parts p group by p.tid having count(*) > 1
    ), made as (
        insert into leat.queue_runs as n (channel_id, fifo, first_id, state, rank, routing_key, deliveries, delivery, due_at,
            expires_at, owner, reason, died_at, headers, ids, origins)
        select r.channel_id, r.fifo, p.ids[1], r.state, r.rank, r.routing_key, r.deliveries, r.delivery, r.due_at,
            r.expires_at, r.owner, r.reason, r.died_at, r.headers, p.ids, p.origins
        from split s
        join parts p on p.tid = s.tid
        join leat.queue_runs r on r.ctid = s.tid
        returning n.ctid as tid, wanted @> n.first_id as wanted
    ), gone as (
        delete from leat.queue_runs r using split s where r.ctid = s.tid
    )
    select array(select m.tid from made m where m.wanted) as made,
        array(select p.tid from parts p where p.wanted and p.tid not in (select s.tid from split s)) as whole,
        array(select p.tid from parts p) as seen
    into parts;
    return parts.made || parts.whole || array(select u.tid from unnest(tids) u (tid) where u.tid not in (select s.tid from unnest(parts.seen) s (tid)));
end
$$;

-- The messages of runs.
create function leat.ids_of(tids tid[]) returns int8multirange
language sql stable set search_path = '' set enable_seqscan = off set jit = off as $$
    select coalesce(range_agg(s.span), '{}')
    from leat.queue_runs r
    cross join lateral (
        select int8range(r.first_id, r.ids[cardinality(r.ids)], '[]') as span
        where r.ids[cardinality(r.ids)] - r.first_id = cardinality(r.ids) - 1
        union all
        select int8range(i.id, i.id, '[]')
        from unnest(r.ids) i (id)
        where r.ids[cardinality(r.ids)] - r.first_id >= cardinality(r.ids)
    ) s
    where r.ctid = any (tids)
$$;

-- Appends what happened to very many messages: as ranges if that is shorter than
-- their ids.
create function leat.append_many(
    now_     timestamptz,
    kind     leat.event_kind,
    channel  integer,
    actor    text,
    messages int8multirange,
    expires  timestamptz,
    data     jsonb
) returns void
language plpgsql set search_path = '' set jit = off as $$
declare
    spans bigint;
    size  bigint;
begin
    perform leat.fence();
    select count(*), sum(upper(s.span) - lower(s.span)) into spans, size from unnest(messages) s (span);
    if spans * 2 < size then
        insert into leat.events (at, kind, channel_id, actor, expires_at, data, message_ids, message_ranges)
        select now_, kind, channel, actor, expires, data, '{}', range_agg(p.span)
        from (select s.span, (s.n - 1) / 5000 as page from unnest(messages) with ordinality s (span, n)) p
        group by p.page
        order by p.page;
    else
        insert into leat.events (at, kind, channel_id, actor, expires_at, data, message_ids)
        select now_, kind, channel, actor, expires, data, array_agg(p.id order by p.id)
        from (
            select i.id, (row_number() over (order by i.id) - 1) / 10000 as page
            from leat.event_ids('{}', messages) i (id)
        ) p
        group by p.page
        order by p.page;
    end if;
end
$$;

-- What became of messages that were not found among the dead letters of a queue:
-- 1 not dead, 2 not of this queue, 3 dead, but in somebody's hands.
create function leat.dead_statuses(queue integer, message_ids bigint[], done int8multirange) returns smallint[]
language sql stable set search_path = '' set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
    with left_over as materialized (
        select array_agg(u.id) as ids from unnest(message_ids) u (id) where not done @> u.id
    ), dead as materialized (
        select i.id
        from left_over l
        cross join lateral leat.find_dead(queue, l.ids) f
        join leat.queue_runs r on r.channel_id = queue and r.state = 3 and r.first_id = f.first_id
        cross join lateral unnest(r.ids) i (id)
        where l.ids is not null
    )
    select array_agg(
        case
            when done @> u.id then 0
            when u.id in (select d.id from dead d) then 3
            when leat.was_in(queue, u.id) then 1
            else 2
        end::smallint order by u.n)
    from unnest(message_ids) with ordinality u (id, n)
$$;

-- Whether a message ever was in a queue, by the log. The event of a copy lies
-- behind its id, and is looked for as far as queries.beginning() looks.
create function leat.was_in(queue integer, message_id bigint) returns boolean
language sql stable set search_path = '' set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
    select coalesce(
        (select e.channel_id = queue and e.kind = 'message.published'
         from leat.events e
         where e.position = was_in.message_id),
        exists (
            select from (
                select e.channel_id, e.message_ids
                from leat.events e
                where e.kind = 'message.copied' and e.position > was_in.message_id
                  and e.position <= least(was_in.message_id, 9223372036854775807 - 10000000) + 10000000
                order by e.position
                limit 100000
            ) c
            where c.channel_id = queue and was_in.message_id = any (c.message_ids)))
$$;

-- Removes a page of the dead letters that a filter chooses. next: where the next
-- page begins; null: this was the last one.
create function leat.purge_dead(queue integer, filter leat.dead_filter, after bigint, actor text, page integer,
    out purged bigint, out next bigint)
language plpgsql set search_path = '' set enable_seqscan = off set jit = off as $$
declare
    window_ record;
begin
    perform leat.hold_queue(queue);
    purged := 0;
    select w.* into window_ from leat.dead_page(queue, filter, after, page) w;
    if window_.upto is null then
        return;
    end if;
    purged := leat.remove_dead(queue, clock_timestamp(), actor, null,
        leat.split_runs(leat.lock_dead(queue, filter, after, window_.upto), leat.chosen_ids(filter)));
    next := case when window_.more then window_.upto end;
end
$$;

-- Removes dead letters by id; a status each as leat.dead_statuses() has them, and 0: removed.
create function leat.purge_dead_ids(queue integer, message_ids bigint[], actor text) returns smallint[]
language plpgsql set search_path = '' set enable_seqscan = off set jit = off as $$
declare
    tids tid[];
    done int8multirange;
begin
    perform leat.hold_queue(queue);
    tids := leat.split_runs(
        leat.lock_found(queue, array(select f.first_id from leat.find_dead(queue, message_ids) f)),
        (select range_agg(int8range(u.id, u.id, '[]')) from unnest(message_ids) u (id)));
    done := leat.ids_of(tids);
    perform leat.remove_dead(queue, clock_timestamp(), actor, null, tids);
    return leat.dead_statuses(queue, message_ids, done);
end
$$;

-- Removes locked dead runs, and counts their messages.
create function leat.remove_dead(queue integer, now_ timestamptz, actor text, data jsonb, tids tid[]) returns bigint
language plpgsql set search_path = '' set enable_seqscan = off set jit = off as $$
declare
    messages int8multirange := leat.ids_of(tids);
begin
    if messages = '{}' then
        return 0;
    end if;
    perform leat.append_many(now_, 'message.purged', queue, actor, messages, null, data);
    delete from leat.queue_runs r where r.ctid = any (tids);
    return (select sum(upper(s.span) - lower(s.span)) from unnest(messages) s (span));
end
$$;

-- Removes dead letters that their queue keeps no longer, a page of runs of each
-- queue. Answers the greatest number of runs that one had. low bounds the look back
-- as in leat.sweep().
create function leat.sweep_dead(now_ timestamptz, low timestamptz, page integer) returns integer
language plpgsql set search_path = '' set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
    channel record;
    tids    tid[];
    most    integer := 0;
begin
    for channel in
        select c.id, now_ - c.dead_letter_retention as kept_from, low - c.dead_letter_retention as looked_from
        from leat.channels c
        where c.deleted_at is null and c.dead_letter_retention > '0'
    loop
        select array_agg(d.tid) into tids
        from (
            select r.ctid as tid
            from leat.queue_runs r
            where r.channel_id = channel.id and r.state = 3 and r.died_at < channel.kept_from
              and r.died_at >= channel.looked_from
            order by r.died_at
            limit page
            for update skip locked
        ) d;
        if tids is not null then
            perform leat.remove_dead(channel.id, now_, 'leat', '{"reason": "retention"}', tids);
            most := greatest(most, cardinality(tids));
        end if;
    end loop;
    return most;
end
$$;
