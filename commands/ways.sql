-- Where copies go that no publisher makes, and what they hold meanwhile: of
-- dead letters that leave for another channel, and of what is published again.

-- The ways of messages into a channel: message n goes to a target under a key. That is
-- the channel itself, unless it is an exchange, and what its links lead to. Nulls, if
-- there are none. Overlays are laid over the headers of the origins.
create function leat.ways_into(
    entry    leat.channels,
    origins  bigint[],
    keys     text[],
    overlays jsonb[],
    out places  integer[],
    out targets integer[],
    out ways    text[]
)
language sql stable as $$ -- runs under its callers' settings
    select array_agg(r.n order by r.n, r.target), array_agg(r.target order by r.n, r.target), array_agg(r.key order by r.n, r.target)
    from (
        select u.n::integer as n, entry.id as target, u.key
        from unnest(ways_into.keys) with ordinality u (key, n)
        where entry.kind <> 'exchange'
        union all
        select r.n, r.target_id, r.routing_key
        from leat.routes_of(array(select entry.id from unnest(origins)), ways_into.keys, array(
            select coalesce(e.headers, '{}') || coalesce(u.headers, '{}')
            from unnest(origins, overlays) with ordinality u (origin, headers, n)
            left join leat.events e on e.position = u.origin
            order by u.n)) r
        where entry.linked
    ) r
$$;

-- Holds the targets of ways against deletion, and the append locks of FIFO keys and
-- streams as publishers do. held are the places of the messages that may go. Nobody is
-- waited for, but for streams, which others publish to all the time: patience in
-- milliseconds.
create function leat.hold_ways(
    entry    leat.channels,
    places   integer[],
    targets  integer[],
    ways     text[],
    patience integer,
    out fifos   integer[],
    out streams integer[],
    out held    integer[],
    out alive   boolean
)
language plpgsql as $$ -- runs under its callers' settings
declare
    refused integer[];
begin
    -- Only tried: a deletion may have one of them, and wait for what is held here.
    if exists (
        select from (select distinct u.id from unnest(targets) u (id)) t
        where not pg_try_advisory_xact_lock_shared(1279607042, t.id))
    then
        raise exception 'a channel that % leads to is about to be deleted', quote_literal(entry.name) using errcode = '55P03';
    end if;
    if exists (
        select from unnest(targets) u (id)
        where not exists (select from leat.channels c where c.id = u.id and c.deleted_at is null))
    then
        raise exception 'a channel that % leads to has been deleted', quote_literal(entry.name) using errcode = 'LE002';
    end if;
    alive := leat.views_alive();
    fifos := nullif(array(select c.id from leat.channels c where c.id = any (targets) and c.mode = 'fifo'), '{}');
    streams := nullif(array(select c.id from leat.channels c where c.id = any (targets) and c.mode = 'stream'), '{}');
    held := array(select distinct p.n from unnest(places) p (n) order by 1);
    if fifos is null and streams is null then
        return;
    end if;
    refused := array(
        select l.lock
        from (
            select distinct leat.append_lock(u.target, case when u.target = any (streams) then '' else u.key end) as lock
            from unnest(targets, ways) u (target, key)
            where u.target = any (fifos || streams)
            order by 1
        ) l
        where not pg_try_advisory_xact_lock(1279607043, l.lock));
    if refused <> '{}' and streams is not null and patience > 0 then
        refused := coalesce(leat.await_streams(streams, refused, patience), '{}');
    end if;
    if refused <> '{}' then
        held := array(
            select h.n from unnest(held) h (n)
            where h.n not in (
                select u.n
                from unnest(places, targets, ways) u (n, target, key)
                where u.target = any (fifos || streams)
                  and leat.append_lock(u.target, case when u.target = any (streams) then '' else u.key end) = any (refused))
            order by h.n);
    end if;
    if alive and held <> '{}' and exists (select from leat.unplaced) then
        -- What was published while the views were lost comes first.
        perform leat.place_unplaced();
    end if;
    alive := alive and (fifos is null or not exists (select from leat.unplaced u where u.channel_id = any (fifos)));
end
$$;
