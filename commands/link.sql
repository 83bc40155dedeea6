-- One change of the topology at a time: what it refuses (cycles, lost order) is
-- about many rows.
create function leat.lock_topology() returns void
language plpgsql set search_path = '' as $$
begin
    perform set_config('lock_timeout', '2s', true);
    perform pg_advisory_xact_lock(1279607046, 0);
end
$$;

-- The channels that links lead to from one, itself included, or that lead to it,
-- nearest first, also over links that are disabled; each with the way there.
create function leat.walk_links(start integer, backward boolean default false)
returns table (channel_id integer, hops integer, path text)
language plpgsql stable set search_path = '' as $$
#variable_conflict use_column
declare
    seen  integer[];
    front integer[] := array[start];
    paths text[] := array(select c.name from leat.channels c where c.id = start);
    hop   integer := 0;
begin
    while front is not null loop
        seen := seen || front;
        return query select f.id, hop, f.path from unnest(front, paths) f (id, path);
        hop := hop + 1;
        select array_agg(s.id), array_agg(s.path)
        into front, paths
        from (
            select distinct on (l.id) l.id, case when backward then c.name || ' -> ' || f.path else f.path || ' -> ' || c.name end as path
            from unnest(front, paths) f (id, path)
            cross join lateral (
                select l.target_id as id from leat.links l where not backward and l.source_id = f.id
                union all
                select l.source_id from leat.links l where backward and l.target_id = f.id
            ) l
            join leat.channels c on c.id = l.id
            where l.id <> all (seen)
            order by l.id, path
        ) s;
    end loop;
end
$$;

-- The nearest channel in order, a FIFO queue or a stream, that messages of a channel
-- reach, by the way there; null when there is none.
create function leat.ordered_path(channel integer) returns text
language sql stable set search_path = '' as $$
    select w.path
    from leat.walk_links(channel) w
    join leat.channels c on c.id = w.channel_id
    where c.mode in ('fifo', 'stream')
    order by w.hops, w.path
    limit 1
$$;

-- Refuses a link that would make a cycle, or a way on which order is lost: from a
-- standard queue, or from dead letters, to a FIFO queue or a stream.
create function leat.check_link(source leat.channels, target leat.channels) returns void
language plpgsql stable set search_path = '' as $$
declare
    way  text;
    goal text;
begin
    select w.path into way from leat.walk_links(target.id) w where w.channel_id = source.id;
    if found then
        raise exception 'the link would make a cycle: % -> %', source.name, way using errcode = 'LE022', column = 'target';
    end if;
    goal := leat.ordered_path(target.id);
    if goal is null then
        return;
    end if;
    select u.path into way
    from (
        select w.hops, w.path
        from leat.walk_links(source.id, true) w
        join leat.channels c on c.id = w.channel_id and c.kind = 'queue' and c.mode = 'standard'
        union all
        select w.hops + 1, q.name || ' -> (dead letters) ' || w.path
        from leat.walk_links(source.id, true) w
        join leat.channels q on q.dead_letter_to = w.channel_id and q.deleted_at is null
    ) u
    order by u.hops, u.path
    limit 1;
    if found then
        raise exception 'a FIFO queue or a stream would get what comes in no order: % -> %', way, goal
            using errcode = 'LE023', column = 'target';
    end if;
end
$$;

-- Checks what a link says of itself, but for its channels.
create function leat.check_rule(link leat.links) returns void
language plpgsql immutable set search_path = '' as $$
begin
    if link.match not in ('all', 'exact', 'topic', 'headers') then
        raise exception 'must be all, exact, topic or headers' using errcode = 'LE003', column = 'match.type';
    elsif link.pattern is null and link.match in ('exact', 'topic') then
        raise exception 'is missing, for match type %', link.match using errcode = 'LE003', column = 'match.pattern';
    elsif link.pattern is not null and link.match not in ('exact', 'topic') then
        raise exception 'does not go with match type %', link.match using errcode = 'LE003', column = 'match.pattern';
    elsif octet_length(link.pattern) > 255 then
        raise exception 'is longer than 255 bytes' using errcode = 'LE003', column = 'match.pattern';
    elsif octet_length(link.rewrite_key) > 255 then
        raise exception 'is longer than 255 bytes' using errcode = 'LE003', column = 'rewriteKey';
    elsif link.headers is null and link.match = 'headers' then
        raise exception 'is missing, for match type headers' using errcode = 'LE003', column = 'match.headers';
    elsif link.headers is not null and link.match <> 'headers' then
        raise exception 'does not go with match type %', link.match using errcode = 'LE003', column = 'match.headers';
    elsif jsonb_typeof(link.headers) <> 'object' or link.headers = '{}' or octet_length(link.headers::text) > 32768
        or jsonb_path_exists(link.headers, 'strict $.* ? (@.type() == "object" || @.type() == "array")')
    then
        raise exception 'must be an object of one or more strings, numbers, booleans and nulls, of at most 32 KiB'
            using errcode = 'LE003', column = 'match.headers';
    elsif link.header_mode not in ('all', 'any') then
        raise exception 'must be all or any' using errcode = 'LE003', column = 'match.mode';
    elsif link.header_mode is not null and link.match <> 'headers' then
        raise exception 'does not go with match type %', link.match using errcode = 'LE003', column = 'match.mode';
    end if;
end
$$;

-- The rule that the type of an exchange gives its links.
create function leat.exchange_match(type text) returns text
language sql immutable as $$
    select case type when 'direct' then 'exact' when 'fanout' then 'all' else type end
$$;

-- Declares a link. Again, it changes nothing, and another rewrite_key or enabled
-- than the link has is a conflict; what is null is not compared. Two links differ
-- by their channels and what they match.
-- match: by default what the type of an exchange fixes, of queues all.
-- headers: header_mode, by default all, says how many of the pairs must be there.
-- rewrite_key: the routing key of the copies; null keeps it.
create function leat.declare_link(
    source      text,
    target      text,
    match       text default null,
    pattern     text default null,
    headers     jsonb default null,
    header_mode text default null,
    rewrite_key text default null,
    enabled     boolean default null,
    actor       text default 'sql:' || session_user,
    out link    leat.links,
    out created boolean)
language plpgsql set search_path = '' set enable_seqscan = off as $$
declare
    from_  leat.channels;
    to_    leat.channels;
    fixed  text;
    wanted leat.links;
begin
    perform leat.lock_topology();
    from_ := leat.live_channel(source, 'source');
    to_ := leat.live_channel(target, 'target');
    fixed := case when from_.kind = 'exchange' then leat.exchange_match(from_.mode) end;
    if match <> fixed then
        raise exception 'must be %, because % is a % exchange', fixed, source, from_.mode
            using errcode = 'LE003', column = 'match.type';
    end if;
    wanted.source_id := from_.id;
    wanted.target_id := to_.id;
    wanted.match := coalesce(match, fixed, 'all');
    wanted.pattern := pattern;
    wanted.headers := headers;
    wanted.header_mode := coalesce(header_mode, case when wanted.match = 'headers' then 'all' end);
    wanted.rewrite_key := rewrite_key;
    wanted.enabled := coalesce(enabled, true);
    perform leat.check_rule(wanted);

    select l.* into link
    from leat.links l
    where l.source_id = wanted.source_id
      and l.target_id = wanted.target_id
      and l.match = wanted.match
      and coalesce(l.pattern, '') = coalesce(wanted.pattern, '')
      and md5(coalesce(l.headers, 'null')::text) = md5(coalesce(wanted.headers, 'null')::text)
      and coalesce(l.header_mode, '') = coalesce(wanted.header_mode, '');
    if found then
        created := false;
        if declare_link.rewrite_key is not null and link.rewrite_key is distinct from declare_link.rewrite_key then
            raise exception 'link % exists with %, not rewriteKey %', link.id,
                coalesce('rewriteKey ' || to_json(link.rewrite_key), 'no rewriteKey'), to_json(declare_link.rewrite_key)
                using errcode = 'LE021', column = 'rewriteKey';
        elsif link.enabled <> declare_link.enabled then
            raise exception 'link % exists and is %', link.id, case when link.enabled then 'enabled' else 'disabled' end
                using errcode = 'LE021', column = 'enabled';
        end if;
        return;
    end if;

    perform leat.check_link(from_, to_);
    created := true;
    wanted.id := nextval(pg_get_serial_sequence('leat.links', 'id'));
    wanted.declared_at := clock_timestamp();
    if wanted.match = 'topic' then
        wanted.node_id := leat.make_topic(wanted.source_id, wanted.pattern);
    end if;
    perform leat.append('link.declared', wanted.source_id, actor, null, leat.link_data(wanted));
    insert into leat.links select wanted.*;
    perform leat.mark_linked(wanted.source_id);
    link := wanted;
end
$$;

create function leat.live_channel(name text, field text) returns leat.channels
language plpgsql stable set search_path = '' as $$
declare
    channel leat.channels;
begin
    select c.* into channel from leat.channels c where c.name = live_channel.name and c.deleted_at is null;
    if not found then
        raise exception 'there is no channel %', coalesce(to_json(name)::text, 'null') using errcode = 'LE002', column = field;
    end if;
    return channel;
end
$$;

-- What the log says of a link: all that it is.
create function leat.link_data(link leat.links) returns jsonb
language sql stable set search_path = '' as $$
    select jsonb_object_agg(e.key, e.value) || jsonb_build_object(
        'source', (select c.name from leat.channels c where c.id = link.source_id),
        'target', (select c.name from leat.channels c where c.id = link.target_id))
    from jsonb_each(to_jsonb(link) - 'node_id') e
    where e.value <> 'null'
$$;

create function leat.mark_linked(channel integer) returns void
language sql set search_path = '' as $$
    update leat.channels c
    set linked = not c.linked
    where c.id = channel
      and c.linked <> exists (select from leat.links l where l.source_id = channel and l.enabled)
$$;

-- The node of a pattern's last word, made with those before it where they are not
-- there. A pattern of no words is a node beside the others.
create function leat.make_topic(source integer, pattern text) returns bigint
language plpgsql set search_path = '' as $$
declare
    node  bigint := case when pattern = '' then -1 else 0 end;
    child bigint;
    part  text;
begin
    foreach part in array case when pattern = '' then array[''] else string_to_array(pattern, '.') end loop
        select t.id into child from leat.topic_nodes t where t.source_id = source and t.parent_id = node and t.word = part;
        if not found then
            insert into leat.topic_nodes (source_id, parent_id, word) values (source, node, part) returning id into child;
        end if;
        node := child;
    end loop;
    return node;
end
$$;

-- Deletes a node that no pattern needs any more, and those above it likewise.
create function leat.prune_topic(node bigint) returns void
language plpgsql set search_path = '' as $$
begin
    while node > 0 loop
        delete from leat.topic_nodes t
        where t.id = node
          and not exists (select from leat.links l where l.match = 'topic' and l.node_id = t.id)
          and not exists (select from leat.topic_nodes c where c.source_id = t.source_id and c.parent_id = t.id)
        returning t.parent_id into node;
        exit when not found;
    end loop;
end
$$;

-- Changes of a link what the patch has: enabled, rewrite_key (null keeps the keys).
create function leat.alter_link(id integer, patch jsonb, actor text default 'sql:' || session_user) returns leat.links
language plpgsql set search_path = '' set enable_seqscan = off as $$
declare
    link   leat.links;
    wanted leat.links;
begin
    perform leat.lock_topology();
    link := leat.live_link(id);
    if patch is null or patch - array['enabled', 'rewrite_key'] <> '{}' or jsonb_typeof(patch -> 'enabled') <> 'boolean'
        or jsonb_typeof(patch -> 'rewrite_key') not in ('string', 'null')
    then
        raise exception 'must be an object of enabled (a boolean) and rewrite_key (a string or null)'
            using errcode = 'LE003', column = 'patch';
    end if;
    wanted := jsonb_populate_record(link, patch);
    perform leat.check_rule(wanted);
    if wanted is distinct from link then
        perform leat.append('link.altered', link.source_id, actor, null, leat.link_data(wanted));
        update leat.links l set enabled = wanted.enabled, rewrite_key = wanted.rewrite_key where l.id = link.id;
        perform leat.mark_linked(link.source_id);
    end if;
    return wanted;
end
$$;

create function leat.live_link(id integer) returns leat.links
language plpgsql stable set search_path = '' as $$
declare
    link leat.links;
begin
    select l.* into link from leat.links l where l.id = live_link.id;
    if not found then
        raise exception 'there is no link %', coalesce(id::text, 'null') using errcode = 'LE020';
    end if;
    return link;
end
$$;

create function leat.delete_link(id integer, actor text default 'sql:' || session_user) returns void
language plpgsql set search_path = '' set enable_seqscan = off as $$
declare
    link leat.links;
begin
    perform leat.lock_topology();
    link := leat.live_link(id);
    -- Waits for open publishes that may have gone along it: without the link, who
    -- deletes the target would not know of them (leat.delete_channel).
    perform pg_advisory_xact_lock(1279607042, w.channel_id)
    from (select w.channel_id from leat.walk_links(link.source_id, true) w order by 1) w;
    perform leat.drop_link(link, actor);
end
$$;

create function leat.drop_link(link leat.links, actor text) returns void
language plpgsql set search_path = '' as $$
begin
    perform leat.append('link.deleted', link.source_id, actor, null, leat.link_data(link));
    delete from leat.links l where l.id = link.id;
    perform leat.prune_topic(link.node_id);
    perform leat.mark_linked(link.source_id);
end
$$;
