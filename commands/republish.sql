-- Messages of the past are published again: a replay goes through a range of what a
-- channel held, page by page, and each page commits with where the next one begins.

-- Starts a replay that was planned.
create function leat.start_replay(plan leat.replays) returns leat.replays
language plpgsql set search_path = '' as $$
begin
    plan.id := leat.append('replay.started', plan.target_id, plan.actor, null, jsonb_strip_nulls(jsonb_build_object(
        'source', plan.source_id, 'from', plan.from_position, 'to', plan.to_position, 'since', plan.since, 'until', plan.until,
        'pattern', plan.pattern, 'rate', plan.rate, 'byOffset', plan.by_offset, 'next', plan.next, 'last', plan.last,
        'startedAt', plan.started_at)));
    insert into leat.replays select plan.*;
    return plan;
end
$$;

-- Lets a replay go on in another run: who has run it before goes on no more.
create function leat.resume_replay(replay bigint, actor text) returns leat.replays
language plpgsql set search_path = '' as $$
declare
    resumed leat.replays;
begin
    select r.* into resumed from leat.replays r where r.id = replay for update;
    if not found then
        raise exception 'There is no replay %.', replay using errcode = 'LE050';
    elsif resumed.finished then
        return resumed;
    end if;
    update leat.replays r set run = r.run + 1, changed_at = clock_timestamp() where r.id = replay returning r.* into resumed;
    perform leat.append('replay.resumed', resumed.target_id, actor, null, leat.replay_data(resumed));
    return resumed;
end
$$;

-- Publishes the next page of a replay; in the same transaction it is passed. What comes
-- behind a message whose key or stream somebody publishes to waits with it; busy if
-- that is the first one. patience is in milliseconds.
create function leat.republish(replay bigint, run integer, actor text, size integer, patience integer) returns leat.replays
language plpgsql
set search_path = '' set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
    r       leat.replays;
    entry   leat.channels;
    page    record;
    ways    record;
    hold    record;
    taken   integer;
    routed  integer[];
    deaths  bigint[];
begin
    select x.* into r from leat.replays x where x.id = replay for update nowait;
    if not found then
        raise exception 'There is no replay %.', replay using errcode = 'LE050';
    elsif r.run <> run then
        raise exception 'Replay % was resumed by somebody else, and goes on there.', replay using errcode = 'LE051';
    elsif r.finished then
        return r;
    end if;
    if r.next <= r.last then
        perform leat.check_replay_log(r);
        entry := leat.replay_target(r);
        select p.* into page from leat.replay_page(r, size) p;
        taken := cardinality(page.ids);
        select w.* into ways from leat.replay_ways(entry, page.origins, page.keys, page.overlays, page.sizes) w;
        if ways.places is not null then
            select h.* into hold from leat.hold_ways(entry, ways.places, ways.targets, ways.ways, patience) h;
            taken := coalesce((
                select min(b.n) - 1
                from (select unnest(ways.places) except select unnest(hold.held)) b (n)), taken);
            if taken = 0 then
                raise exception 'somebody publishes to where message % goes', page.ids[1] using errcode = '55P03';
            end if;
            routed := array(select w.n from unnest(ways.places) w (n) where w.n <= taken);
            if routed <> '{}' then
                deaths := leat.copy_again(r, page.ids, page.origins, page.overlays, page.priorities, page.sizes,
                    ways.places, ways.targets, ways.ways, taken, hold.alive, hold.fifos, hold.streams);
            end if;
        end if;
        r := leat.pass_replay(r, page.upto, page.more or taken < cardinality(page.ids), page.places[taken], page.ids[taken],
            page.sizes[1:taken], routed, (select count(d) from unnest(deaths) d));
    end if;
    r.finished := r.next > r.last;
    perform leat.append(case when r.finished then 'replay.finished' else 'replay.advanced' end::leat.event_kind, r.target_id, actor,
        null, leat.replay_data(r));
    update leat.replays x
    set next = r.next, upto = r.upto, after_id = r.after_id, messages = r.messages, bytes = r.bytes, copies = r.copies,
        dead = r.dead, unroutable = r.unroutable, gone = r.gone, changed_at = r.changed_at, finished = r.finished
    where x.id = r.id;
    return r;
end
$$;

-- Copies the first so many messages of a page.
create function leat.copy_again(
    replay     leat.replays,
    ids        bigint[],
    origins    bigint[],
    overlays   jsonb[],
    priorities smallint[],
    sizes      bigint[],
    places     integer[],
    targets    integer[],
    ways       text[],
    taken      integer,
    alive      boolean,
    fifos      integer[],
    streams    integer[]
) returns bigint[]
language sql as $$ -- runs under its callers' settings
    select leat.copy_messages(
        alive, clock_timestamp(), 'republish', array_agg(replay.actor), array_agg(replay.source_id), array_agg(c.id), array_agg(c.origin),
        array_agg(c.target), array_agg(c.key), fifos, streams, case when streams is not null then array_agg(c.size) end,
        case when priorities is not null then array_agg(coalesce(c.priority, 0::smallint)) end, null, null,
        case when overlays is not null then array_agg(c.laid) end)
    from (
        select m.id, m.origin, m.laid, m.priority, m.size, w.target, w.key
        from unnest(places, targets, ways) with ordinality w (n, target, key, i)
        join unnest(ids, origins, overlays, priorities, sizes) with ordinality m (id, origin, laid, priority, size, n) on m.n = w.n
        where w.n <= taken
        order by w.i
    ) c
$$;

-- Takes a replay that was planned a page further without doing anything: it counts.
create function leat.count_replay(replay leat.replays, size integer) returns leat.replays
language plpgsql stable
set search_path = '' set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
    entry leat.channels;
    page  record;
    ways  record;
begin
    if replay.next > replay.last then
        replay.finished := true;
        return replay;
    end if;
    perform leat.check_replay_log(replay);
    entry := leat.replay_target(replay);
    select p.* into page from leat.replay_page(replay, size) p;
    select w.* into ways from leat.replay_ways(entry, page.origins, page.keys, page.overlays, page.sizes) w;
    return leat.pass_replay(replay, page.upto, page.more, page.places[cardinality(page.ids)], page.ids[cardinality(page.ids)], page.sizes,
        ways.places, 0);
end
$$;

create function leat.replay_target(replay leat.replays) returns leat.channels
language plpgsql stable as $$ -- runs under its callers' settings
declare
    entry leat.channels;
begin
    select c.* into entry from leat.channels c where c.id = replay.target_id and c.deleted_at is null;
    if not found then
        raise exception 'The channel % that was replayed into has been deleted.',
            (select to_json(c.name)::text from leat.channels c where c.id = replay.target_id) using errcode = 'LE002', column = 'target';
    end if;
    return entry;
end
$$;

-- The ways of a page into a channel, without those of what has left the log.
create function leat.replay_ways(
    entry    leat.channels,
    origins  bigint[],
    keys     text[],
    overlays jsonb[],
    sizes    bigint[],
    out places  integer[],
    out targets integer[],
    out ways    text[]
)
language sql stable as $$ -- runs under its callers' settings
    select array_agg(w.n order by w.i), array_agg(w.target order by w.i), array_agg(w.key order by w.i)
    from leat.ways_into(entry, origins, keys, overlays) r
    cross join lateral unnest(r.places, r.targets, r.ways) with ordinality w (n, target, key, i)
    join unnest(sizes) with ordinality s (size, n) on s.n = w.n
    where s.size is not null
$$;

-- A replay that has done the first so many messages of a page, or all of it.
create function leat.pass_replay(
    replay leat.replays,
    upto   bigint,
    more   boolean,
    place_ bigint, -- of the last one that was done
    id_    bigint, -- likewise
    sizes  bigint[], -- of those that were done
    routed integer[], -- places in there of what has ways, once for each
    dead   bigint
) returns leat.replays
language plpgsql stable as $$ -- runs under its callers' settings
declare
    kept bigint := (select count(*) from unnest(sizes) s where s is not null);
begin
    replay.messages := replay.messages + (select count(distinct r.n) from unnest(routed) r (n));
    replay.bytes := replay.bytes + coalesce((
        select sum(s.size)
        from unnest(sizes) with ordinality s (size, n)
        where s.n in (select r.n from unnest(routed) r (n))), 0);
    replay.copies := replay.copies + coalesce(cardinality(routed), 0);
    replay.dead := replay.dead + dead;
    replay.unroutable := replay.unroutable + kept - (select count(distinct r.n) from unnest(routed) r (n));
    replay.gone := replay.gone + coalesce(cardinality(sizes), 0) - kept;
    if more and replay.by_offset then
        replay.next := place_ + 1;
    elsif more then
        replay.upto := upto;
        replay.after_id := id_;
    else
        replay.next := upto + 1;
        replay.upto := null;
        replay.after_id := 0;
    end if;
    replay.finished := replay.next > replay.last;
    replay.changed_at := clock_timestamp();
    return replay;
end
$$;

-- What the log says of how far a replay is.
create function leat.replay_data(replay leat.replays) returns jsonb
language sql stable as $$
    select jsonb_strip_nulls(jsonb_build_object(
        'replay', replay.id, 'run', replay.run, 'next', replay.next, 'upto', replay.upto, 'afterId', replay.after_id,
        'messages', replay.messages, 'bytes', replay.bytes, 'copies', replay.copies, 'dead', replay.dead,
        'unroutable', replay.unroutable, 'gone', replay.gone))
$$;

-- How much of its range a replay has done, from 0 to 1.
create function leat.replay_done(replay leat.replays) returns double precision
language sql immutable as $$
    select case
        when replay.finished then 1
        else (replay.next - replay.first)::double precision / greatest(replay.last - replay.first + 1, 1)
        end
$$;
