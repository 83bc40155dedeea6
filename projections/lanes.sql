-- Messages of these keys left flight (counts) or were found gone (0): a lane
-- with nothing in flight shows its next head, and goes when it is empty.
-- The caller holds the lanes' row locks.
create function leat.free_lanes(now_ timestamptz, channels integer[], keys text[], counts integer[]) returns void
language plpgsql as $$ -- runs under its callers' settings
declare
    parked integer[];
    parked_keys text[];
begin
    with freed as (
        select l.channel_id, l.routing_key, l.in_flight - x.count as in_flight, h.first_id, h.state, h.due_at
        from (
            select u.channel, u.key, sum(u.count) as count
            from unnest(channels, keys, counts) u (channel, key, count)
            group by u.channel, u.key
        ) x
        join leat.lanes l on l.channel_id = x.channel and l.routing_key = x.key
        left join lateral (
            select r.first_id, r.state, r.due_at
            from leat.queue_runs r
            where r.channel_id = x.channel and r.routing_key = x.key and r.state <= 1 and r.rank = 9
              and r.first_id >= case when l.head_id = 9223372036854775807 then 0 else l.head_id end
              and (r.expires_at is null or r.expires_at > now_)
            order by r.rank, r.first_id
            limit 1
        ) h on true
    ), updated as (
        update leat.lanes l
        set in_flight = f.in_flight,
            state = case when f.in_flight > 0 then 2 when f.state = 1 and f.due_at > now_ then 1 else 0 end,
            due_at = case when f.in_flight = 0 and f.state = 1 and f.due_at > now_ then f.due_at end,
            head_id = case when f.in_flight > 0 then l.head_id else coalesce(f.first_id, 9223372036854775807) end
        from freed f
        where l.channel_id = f.channel_id and l.routing_key = f.routing_key
        returning l.channel_id, l.routing_key, l.head_id
    )
    select array_agg(u.channel_id), array_agg(u.routing_key) into parked, parked_keys
    from updated u
    where u.head_id = 9223372036854775807;

    -- An empty lane may go only while its append lock is ours, and if it is still
    -- empty in a statement after that; otherwise it stays parked behind the
    -- others. A snapshot that cannot move on could not tell.
    if parked is null or current_setting('transaction_isolation') <> 'read committed' then
        return;
    end if;
    select array_agg(u.channel), array_agg(u.key) into parked, parked_keys
    from unnest(parked, parked_keys) u (channel, key)
    where pg_try_advisory_xact_lock(1279607043, leat.append_lock(u.channel, u.key));
    delete from leat.lanes l
    using unnest(parked, parked_keys) u (channel, key)
    where l.channel_id = u.channel and l.routing_key = u.key
      and not exists (
        select from leat.queue_runs r
        where r.channel_id = u.channel and r.routing_key = u.key and r.state <= 1);
    update leat.lanes l
    set head_id = 0
    from unnest(parked, parked_keys) u (channel, key)
    where l.channel_id = u.channel and l.routing_key = u.key;
end
$$;
