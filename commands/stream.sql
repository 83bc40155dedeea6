-- The offsets of messages that enter streams, one for each message, null for those
-- that do not: of other channels, or with a status. The caller holds the append
-- locks of the streams since a statement before, so that offsets are in the order
-- of the commits, and gapless: what rolls back gives its offsets back. The look for
-- the greatest key finds the head first, whatever versions of it a held snapshot
-- keeps. An old snapshot finds an old head, and fails as a serialization does.
create function leat.take_offsets(channels integer[], streams integer[], sizes bigint[], statuses smallint[] default null) returns bigint[]
language plpgsql as $$ -- runs under its callers' settings
declare
    entering record;
    place    bigint;
    entered  integer[];
    places   bigint[];
begin
    for entering in
        select u.channel, count(*) as messages, coalesce(sum(u.size), 0) as bytes
        from unnest(channels, sizes, statuses) u (channel, size, status)
        where u.channel = any (streams) and coalesce(u.status, 0) = 0
        group by u.channel
        order by u.channel
    loop
        update leat.stream_heads h
        set next_offset = h.next_offset + entering.messages, bytes = h.bytes + entering.bytes
        where h.channel_id = entering.channel
          and h.next_offset = (
            select s.next_offset from leat.stream_heads s
            where s.channel_id = entering.channel
            order by s.next_offset desc
            limit 1)
        returning h.next_offset - entering.messages into strict place;
        entered := entered || entering.channel;
        places := places || place;
    end loop;
    if entered is null then
        return null;
    end if;
    return array(
        select case when coalesce(u.status, 0) = 0 then
            e.place - 1 + count(*) filter (where coalesce(u.status, 0) = 0) over (partition by u.channel order by u.n) end
        from unnest(channels, statuses) with ordinality u (channel, status, n)
        left join unnest(entered, places) e (channel, place) on e.channel = u.channel
        order by u.n);
end
$$;

-- Waits for the append locks of streams among those that others hold, all of them or
-- none; answers those that still are not ours. In a queue of those who wait: one who
-- only tried again and again would come last where many publish.
create function leat.await_streams(streams integer[], refused integer[], patience integer) returns integer[]
language plpgsql as $$
declare
    ours integer[] := array(
        select l.lock
        from unnest(refused) l (lock)
        where l.lock in (select leat.append_lock(s.id, '') from unnest(streams) s (id))
        order by l.lock);
    before text := current_setting('lock_timeout');
begin
    perform set_config('lock_timeout', patience || 'ms', true);
    perform pg_advisory_xact_lock(1279607043, l.lock) from unnest(ours) l (lock);
    perform set_config('lock_timeout', before, true);
    return (select array_agg(l.lock) from unnest(refused) l (lock) where l.lock <> all (ours));
exception
    when lock_not_available then
        return refused;
end
$$;
