-- What needs the log, and from which position on: nothing before is pointed to.
-- Reads all runs of queues, and of streams all copies that they keep.
create function leat.log_pins() returns table (what text, channel text, pin bigint)
language plpgsql set search_path = '' set jit = off as $$
begin
    -- Before the snapshot, which does not protect from a truncation.
    lock table leat.views_alive, leat.queue_runs in access share mode;
    perform leat.need_views();
    return query
    select 'messages', c.name, min(least(r.first_id, o.origin))
    from leat.queue_runs r
    join leat.channels c on c.id = r.channel_id
    cross join lateral (select min(o) from unnest(r.origins) o) o (origin)
    group by c.id, c.name
    union all
    select 'unplaced', c.name, min(least(u.first_id, o.origin))
    from leat.unplaced u
    join leat.channels c on c.id = u.channel_id
    cross join lateral (select min(o) from unnest(u.origins) o) o (origin)
    group by c.id, c.name
    union all
    select 'stream', c.name, min(least(e.position, i.id, o.origin))
    from leat.streams s
    join leat.channels c on c.id = s.channel_id and c.deleted_at is null
    join leat.events e on e.channel_id = s.channel_id and e.stream_offset is not null
        and e.stream_offset + coalesce(cardinality(e.message_ids), 1) > s.first_offset
    cross join lateral (select min(i) from unnest(e.message_ids) i) i (id)
    cross join lateral (select min(o) from unnest(e.origin_ids) o) o (origin)
    group by c.id, c.name
    union all
    -- What opened it, and what it says of it.
    select 'circuit', c.name, min(o.position)
    from leat.circuits k
    join leat.channels c on c.id = k.channel_id and c.deleted_at is null
    cross join lateral (
        select e.position
        from leat.events e
        where e.channel_id = k.channel_id and e.routing_key = k.routing_key and e.kind = 'circuit.opened'
          and e.kind in ('circuit.opened', 'circuit.half_opened', 'circuit.closed')
        order by e.position desc
        limit 1
    ) o
    where k.state <> 'closed'
    group by c.id, c.name
    union all
    select 'dedup', c.name, min(d.message_id)
    from leat.dedup d
    join leat.channels c on c.id = d.channel_id
    where d.expires_at > clock_timestamp()
    group by c.id, c.name
    union all
    -- An asynchronous projection reads on behind it, be it stopped.
    select 'projection', p.name, p.position + 1
    from leat.projections p
    where p.state <> 'retired'
    union all
    -- What a replay has yet to read, and the payloads of that; given up on when it has
    -- not gone on for a day.
    select 'replay', c.name, min(least(
        case when not r.by_offset then r.next end,
        (
            select min(least(e.position, i.id, o.origin))
            from leat.events e
            cross join lateral (select min(i) from unnest(e.message_ids) i) i (id)
            cross join lateral (select min(o) from unnest(e.origin_ids) o) o (origin)
            where e.channel_id = r.source_id and e.stream_offset <= r.last
              and e.stream_offset + coalesce(cardinality(e.message_ids), 1) > r.next and r.by_offset
        ),
        (
            select min(o.origin)
            from leat.events e
            cross join lateral unnest(e.origin_ids) o (origin)
            where e.channel_id = r.source_id and e.kind = 'message.copied' and e.message_ids is not null
              and e.position between r.next and r.last and not r.by_offset
        )))
    from leat.replays r
    join leat.channels c on c.id = r.source_id
    where not r.finished and r.next <= r.last and r.changed_at > clock_timestamp() - interval '1 day'
    group by c.id, c.name
    union all
    -- A rebuild reads what comes after it.
    select 'checkpoint', null, max(k.position) + 1
    from leat.checkpoints k
    having count(*) > 0;
end
$$;

-- What the log up to a position says of streams, their epochs and points, for a log that begins
-- behind it: the part of a log.dropped event that leat.fold_streams,
-- leat.fold_epochs and leat.fold_points go on from.
create function leat.log_base(to_position bigint) returns jsonb
language sql stable set search_path = '' set jit = off as $$
    select jsonb_build_object(
        'streams', coalesce((select jsonb_agg(to_jsonb(s) - 'bytes') from leat.fold_streams(false, to_position) s), '[]'),
        'points', coalesce((select jsonb_agg(to_jsonb(p)) from leat.fold_points(to_position) p), '[]'),
        'epochs', coalesce((select jsonb_agg(to_jsonb(k)) from leat.fold_epochs(to_position) k), '[]'))
$$;
