-- Messages of these keys left flight (counts) or were found gone (0): a lane
-- with nothing in flight shows its next head, and goes when it is empty.
-- The caller holds the lanes' row locks.
-- Rows are found by laterals with a limit and changed by ctid: a join could be
-- planned the other way round, and read all lanes or all runs.
create function leat.free_lanes(now_ timestamptz, channels integer[], keys text[], counts integer[]) returns void
language plpgsql as $$ -- runs under its callers' settings
declare
    parked tid[];
    ours   tid[];
begin
    with freed as (
        select l.tid, l.head_id, l.in_flight - x.count as in_flight, h.first_id, h.state, h.due_at
        from (
            select u.channel, u.key, sum(u.count) as count
            from unnest(channels, keys, counts) u (channel, key, count)
            group by u.channel, u.key
        ) x
        cross join lateral (
            select l.ctid as tid, l.head_id, l.in_flight
            from leat.lanes l
            where l.channel_id = x.channel and l.routing_key = x.key
            limit 1
        ) l
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
            head_id = case when f.in_flight > 0 then f.head_id else coalesce(f.first_id, 9223372036854775807) end
        from freed f
        where l.ctid = f.tid
        returning l.ctid as tid, l.head_id, l.in_flight
    )
    select array_agg(u.tid) into parked
    from updated u
    where u.head_id = 9223372036854775807 and u.in_flight = 0; -- one that was claimed while parked is not empty

    -- An empty lane may go only while its append lock is ours, and if it is still
    -- empty in a statement after that; otherwise it stays parked behind the
    -- others. A snapshot that cannot move on could not tell.
    if parked is null or current_setting('transaction_isolation') <> 'read committed' then
        return;
    end if;
    select array_agg(l.ctid) into ours
    from unnest(parked) u (tid)
    join leat.lanes l on l.ctid = u.tid
    where pg_try_advisory_xact_lock(1279607043, leat.append_lock(l.channel_id, l.routing_key));
    with gone as (
        delete from leat.lanes l
        using unnest(ours) u (tid)
        where l.ctid = u.tid
          and (
            select r.first_id from leat.queue_runs r
            where r.channel_id = l.channel_id and r.routing_key = l.routing_key and r.state <= 1
            limit 1) is null
        returning l.ctid as tid
    )
    update leat.lanes l
    set head_id = 0
    from unnest(ours) u (tid)
    where l.ctid = u.tid and u.tid not in (select g.tid from gone g);
end
$$;
