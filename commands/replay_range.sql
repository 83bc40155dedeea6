-- What a replay goes through: a range of what a channel held, by the log alone.

-- The replay that is asked for, with everything resolved but not started: its id is 0.
-- The source is the channel that has the name, or had it last. The range ends at what
-- is settled now, so that a replay never meets its own copies. Bounds may be null.
create function leat.plan_replay(
    source        text,
    target        text,
    from_position bigint,
    to_position   bigint,
    from_offset   bigint,
    to_offset     bigint,
    since         timestamptz,
    until         timestamptz,
    pattern       text,
    rate          integer,
    actor         text
) returns leat.replays
language plpgsql set search_path = '' set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
    channel leat.channels;
    entry   leat.channels := leat.live_channel(target, 'target');
    plan    leat.replays;
    settled bigint := leat.settled_position();
    drawn   bigint := (select s.last_value from leat.position_seq s);
    ends    bigint;
begin
    select c.* into channel
    from leat.channels c
    where c.name = source
    order by c.deleted_at desc nulls first, c.id desc
    limit 1;
    if not found then
        raise exception 'there never was a channel %', to_json(source) using errcode = 'LE002', column = 'source';
    elsif channel.kind <> 'stream' and num_nonnulls(from_offset, to_offset) > 0 then
        raise exception 'is for streams, which % is not', to_json(source)
            using errcode = 'LE003', column = case when from_offset is null then 'toOffset' else 'fromOffset' end;
    elsif from_position > drawn + 1 then
        raise exception 'The log has not come so far: its last position is %.', drawn using errcode = 'LE052', column = 'from';
    elsif since > clock_timestamp() then
        raise exception 'That time is still to come.' using errcode = 'LE052', column = 'since';
    elsif to_position < from_position or to_offset < from_offset or until < since then
        raise exception 'must not be before where the range begins' using errcode = 'LE003',
            column = case when to_position < from_position then 'to' when to_offset < from_offset then 'toOffset' else 'until' end;
    end if;
    plan := row(0, channel.id, entry.id, coalesce(from_position, leat.log_start()), least(to_position, settled), since, until, pattern, rate, actor,
        clock_timestamp(), 1, channel.kind = 'stream', 0, 0, least(to_position, settled), null, 0,
        0, 0, 0, 0, 0, 0, clock_timestamp(), false);
    if plan.by_offset then
        ends := coalesce((
            select e.stream_offset + coalesce(cardinality(e.message_ids), 1)
            from leat.events e
            where e.channel_id = channel.id and e.stream_offset >= 0
            order by e.stream_offset desc
            limit 1), 0);
        if from_offset > ends then
            raise exception 'Stream % ends before offset %; % is ahead.', to_json(source), ends, from_offset
                using errcode = 'LE032', column = 'fromOffset', detail = leat.epoch_of(channel.id, channel.epoch) || ':' || ends;
        end if;
        plan.next := coalesce(from_offset, leat.first_offset(channel.id), 0);
        perform leat.check_replay_log(plan);
        plan.next := greatest(plan.next, leat.offset_behind(channel.id, plan.from_position, since, ends));
        plan.last := least(to_offset, ends - 1);
    else
        plan.next := plan.from_position;
        if since is not null then
            plan.next := leat.position_since(since - interval '1 minute', plan.next, plan.last + 1);
        end if;
        if until is not null then
            plan.last := leat.position_since(until + interval '1 minute', plan.next, plan.last + 1) - 1;
        end if;
    end if;
    perform leat.check_replay_log(plan);
    plan.first := plan.next;
    return plan;
end
$$;

create function leat.log_start() returns bigint
language sql stable as $$
    select coalesce((select b.first_position from leat.log_begin b), 1)
$$;

-- The first offset of a stream that is in the log; null if there is none.
create function leat.first_offset(channel integer) returns bigint
language sql stable as $$ -- runs under its callers' settings
    select e.stream_offset
    from leat.events e
    where e.channel_id = channel and e.stream_offset >= 0
    order by e.stream_offset
    limit 1
$$;

-- Refuses to go on where the retention of the log has dropped what comes next.
create function leat.check_replay_log(replay leat.replays) returns void
language plpgsql stable as $$ -- runs under its callers' settings
declare
    gap record;
begin
    if replay.next < (case when replay.by_offset then leat.first_offset(replay.source_id) else leat.log_start() end)
        or (replay.id = 0 and replay.from_position < leat.log_start())
    then
        raise exception 'The log begins at position %: what was before has left it by its retention.', leat.log_start()
            using errcode = 'LE053', detail = leat.log_start();
    end if;
    select g.low, g.high into gap
    from leat.log_gaps() g
    where g.high >= case when replay.by_offset then replay.from_position else greatest(replay.next, replay.from_position) end
      and g.low <= replay.to_position
    limit 1;
    if found then
        raise exception 'Positions % to % are gone from the log: somebody has dropped or detached their partition.', gap.low, gap.high
            using errcode = 'LE053', detail = gap.high + 1;
    end if;
end
$$;

-- The first position of low .. high - 1 up to which anything is not older; high when
-- all of it is. Times follow positions, but for transactions that waited for a lock
-- between reading the clock and drawing the position: of some neighbours the latest
-- counts.
create function leat.position_since(moment timestamptz, low bigint, high bigint) returns bigint
language plpgsql stable set search_path = '' set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
    middle bigint;
    probe  record;
begin
    while low < high loop
        middle := low + (high - low) / 2;
        select max(e.position) as position, max(e.at) as at into probe
        from (
            select e.position, e.at
            from leat.events e
            where e.position between low and middle
            order by e.position desc
            limit 20
        ) e;
        if probe.at >= moment then
            high := probe.position;
        else
            low := middle + 1;
        end if;
    end loop;
    return low;
end
$$;

-- An offset of a stream before which there is nothing from a position, and a time, on;
-- near to the first one. Batches of copies of one transaction may have their positions
-- in another order than their offsets.
create function leat.offset_behind(channel integer, from_position bigint, since timestamptz, ends bigint) returns bigint
language plpgsql stable set search_path = '' set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
    low    bigint := case when since is null then 0 else leat.offset_at(channel, since, 0, ends) end;
    high   bigint := ends;
    middle bigint;
    found_ bigint;
begin
    while low < high loop
        middle := low + (high - low) / 2;
        select e.position into found_
        from leat.events e
        where e.channel_id = channel and e.stream_offset <= middle
        order by e.stream_offset desc
        limit 1;
        if found_ >= from_position then
            high := middle;
        else
            low := middle + 1;
        end if;
    end loop;
    return low - 20000;
end
$$;

-- A pattern of routing keys as a regular expression for '.' || key, or for the empty
-- key: each word of it comes with the dot before it.
create function leat.pattern_regex(pattern text) returns text
language sql immutable as $$
    select '^' || coalesce(string_agg(
        case w.word
            when '*' then '\.[^.]*'
            when '#' then '(?:\.[^.]*)*'
            else '\.' || regexp_replace(w.word, '([][(){}.*+?^$|\\])', '\\\1', 'g')
        end, '' order by w.n), '') || '$'
    from unnest(string_to_array(pattern, '.')) with ordinality w (word, n)
    having pattern is not null
$$;

create function leat.key_matches(key text, regex text) returns boolean
language sql immutable as $$
    select regex is null or (case when key = '' then '' else '.' || key end) ~ regex
$$;

-- What of a replay is in a part of its range: positions, or offsets, low to high.
-- place is the offset.
create function leat.replayed(replay leat.replays, low bigint, high bigint)
returns table (place bigint, id bigint, origin bigint, key text, laid jsonb, priority smallint)
language plpgsql stable rows 1000 as $$ -- runs under its callers' settings
#variable_conflict use_column
declare
    regex text := leat.pattern_regex(replay.pattern);
    start bigint := low;
begin
    if replay.by_offset then
        -- The event that holds the first offset may begin below it.
        start := coalesce((
            select e.stream_offset
            from leat.events e
            where e.channel_id = replay.source_id and e.stream_offset <= low
            order by e.stream_offset desc
            limit 1), low);
    end if;
    return query
    select m.place, m.id, m.origin, m.key, m.laid, e.priority
    from (
        select e.*
        from leat.events e
        where not replay.by_offset
          and e.position between low and high
          and e.channel_id = replay.source_id
          and e.kind in ('message.published', 'message.copied')
        union all
        select e.*
        from leat.events e
        where replay.by_offset
          and e.channel_id = replay.source_id
          and e.stream_offset between start and high
    ) e
    cross join lateral (
        select e.stream_offset as place, e.position as id, e.position as origin, e.routing_key as key, null::jsonb as laid
        where e.kind = 'message.published'
        union all
        select e.stream_offset + i.n - 1, i.id, i.origin, coalesce(e.routing_key, i.key), e.headers
        from rows from (unnest(e.message_ids), unnest(e.origin_ids), jsonb_array_elements_text(e.data -> 'keys'))
            with ordinality i (id, origin, key, n)
        where e.kind = 'message.copied'
    ) m
    where e.position between replay.from_position and replay.to_position
      and (replay.since is null or e.at >= replay.since)
      and (replay.until is null or e.at < replay.until)
      and (m.place is null or m.place between low and high)
      and leat.key_matches(m.key, regex);
end
$$;

-- The end of the part of a range of positions that is gone through next, in the order
-- of the ids: of about so many messages, or of so many events that were looked at. All
-- that one transaction copied into a FIFO queue is in one part: its batches may have
-- their positions in another order than the ids of a key.
create function leat.replay_part(replay leat.replays, size integer) returns bigint
language plpgsql stable as $$ -- runs under its callers' settings
declare
    regex  text := leat.pattern_regex(replay.pattern);
    found_ record;
    many   bigint := 0;
    looked integer := 0;
    upto    bigint;
    further bigint;
    begun   timestamptz[]; -- the times of the transactions that copied into the part
begin
    for found_ in
        select e.position, e.at, e.kind,
            case
                when e.channel_id is distinct from replay.source_id or e.kind not in ('message.published', 'message.copied')
                    or e.at < replay.since or e.at >= replay.until
                then 0
                when e.routing_key is not null then leat.key_matches(e.routing_key, regex)::integer * coalesce(cardinality(e.message_ids), 1)
                when regex is null then cardinality(e.message_ids)
                else (select count(*) from jsonb_array_elements_text(e.data -> 'keys') k where leat.key_matches(k, regex))
            end as many
        from leat.events e
        where e.position between replay.next and replay.last
        order by e.position
    loop
        many := many + found_.many;
        looked := looked + 1;
        exit when many >= size or looked >= 50000;
    end loop;
    if many < size and looked < 50000 then
        return replay.last;
    end if;
    upto := found_.position;
    while exists (select from leat.channels c where c.id = replay.source_id and c.mode = 'fifo') loop
        begun := array(
            select distinct e.at
            from leat.events e
            where e.channel_id = replay.source_id and e.position between replay.next and upto
              and e.message_ids is not null and e.kind = 'message.copied');
        further := (
            select max(b.position)
            from (
                select e.position, e.kind, e.at
                from leat.events e
                where begun <> '{}'
                  and (e.channel_id, e.position) > (replay.source_id, upto)
                  and e.channel_id <= replay.source_id
                  and e.position > upto
                  and e.position <= replay.last
                  and e.message_ids is not null
                order by e.channel_id, e.position
                limit 5000
            ) b
            where b.kind = 'message.copied' and b.at = any (begun));
        exit when further is null;
        upto := further;
    end loop;
    return upto;
end
$$;

-- The messages of a replay that come next, in order. upto is the end of what was
-- looked at, more: there is more in it. sizes are null of what has left the log.
create function leat.replay_page(
    replay leat.replays,
    size   integer,
    out upto       bigint,
    out more       boolean,
    out places     bigint[],
    out ids        bigint[],
    out origins    bigint[],
    out keys       text[],
    out overlays   jsonb[],
    out priorities smallint[],
    out sizes      bigint[]
)
language plpgsql stable as $$ -- runs under its callers' settings
begin
    upto := case
        when replay.by_offset then least(replay.next + greatest(size, 1000) - 1, replay.last)
        else coalesce(replay.upto, leat.replay_part(replay, size))
        end;
    select coalesce(array_agg(m.place), '{}'), coalesce(array_agg(m.id), '{}'), array_agg(m.origin), array_agg(m.key),
        case when bool_or(m.laid is not null) then array_agg(m.laid) end,
        case when bool_or(m.priority <> 0) then array_agg(m.priority) end,
        array_agg(octet_length(o.payload)::bigint), coalesce(bool_or(m.ahead), false)
    into places, ids, origins, keys, overlays, priorities, sizes, more
    from (
        select m.*, count(*) over () > size as ahead
        from leat.replayed(replay, replay.next, replay_page.upto) m
        where m.id > replay.after_id
        order by m.place, m.id
        limit size
    ) m
    left join leat.events o on o.position = m.origin;
end
$$;
