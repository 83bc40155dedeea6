-- The queues and streams that get a copy of messages: message n, from 1, was published into
-- channels[n] under keys[n] with headers[n] (null: none). It goes along the
-- enabled links breadth first, through exchanges and queues alike, reaches each
-- channel once, on the way of the fewest hops, then of the lowest link id, and
-- takes on the key that a link gives it.
-- Stable, so that all of it is one snapshot: whoever calls holds the channels by
-- a shared lock (class 1279607042), and no target is then deleted before the end
-- of the transaction (leat.delete_channel).
-- It runs under the settings of its callers, who want index scans only.
create function leat.routes_of(channels integer[], keys text[], headers jsonb[])
returns table (n integer, target_id integer, routing_key text)
language plpgsql stable rows 100 as $$
#variable_conflict use_column
declare
    -- Where messages have come to, and by which key.
    at_ns       integer[];
    at_channels integer[];
    at_keys     text[];
    -- The same, without the messages. An array in a variable is read in no time
    -- at any place.
    channels_   integer[];
    keys_       text[];
    lengths     integer[]; -- words of a key
    topics      boolean;
    headed      boolean;
    -- What has a copy already.
    seen_ns     integer[];
    seen        integer[];
    hit         record;
begin
    select array_agg(u.n::integer), array_agg(u.channel), array_agg(u.key)
    into at_ns, at_channels, at_keys
    from unnest(channels, keys) with ordinality u (channel, key, n)
    join leat.channels c on c.id = u.channel and c.linked;

    while at_ns is not null loop
        select array_agg(d.channel), array_agg(d.key),
            array_agg(case when d.key = '' then 0 else length(d.key) - length(replace(d.key, '.', '')) + 1 end),
            exists (select from leat.topic_nodes t where t.source_id = any (at_channels)),
            exists (select from leat.links l where l.source_id = any (at_channels) and l.match = 'headers')
        into channels_, keys_, lengths, topics, headed
        from (select distinct u.channel, u.key from unnest(at_channels, at_keys) u (channel, key)) d;

        with recursive walk (m, node, many, word) as (
            -- Down the patterns of a source, from its root, the words of a key behind
            -- oneself. Of all ways to a node after a word one is gone.
            select k.m::integer, s.id, false, 0
            from unnest(channels_) with ordinality k (channel, m)
            cross join lateral (
                select 0::bigint as id
                union all
                select t.id from leat.topic_nodes t where t.source_id = k.channel and t.parent_id = -1 and lengths[k.m] = 0
            ) s
            where topics
            union
            select w.m, s.*
            from walk w
            cross join lateral (
                -- Each by its own look into the index: one for an array may read all
                -- children of the node.
                select t.id, x.word = '#', case when x.word = '#' then w.word else w.word + 1 end
                from (
                    select split_part(keys_[w.m], '.', w.word + 1) as word
                    where w.word < lengths[w.m] and split_part(keys_[w.m], '.', w.word + 1) not in ('*', '#')
                    union all
                    select '*' where w.word < lengths[w.m]
                    union all
                    select '#'
                ) x
                cross join lateral (
                    select t.id
                    from leat.topic_nodes t
                    where t.source_id = channels_[w.m] and t.parent_id = w.node and t.word = x.word
                    offset 0
                ) t
                union all
                select w.node, true, w.word + 1
                where w.many and w.word < lengths[w.m]
            ) s
        ), by_key as (
            -- offset 0 makes each of these a look into an index per channel and key.
            select k.channel, k.key, l.*
            from unnest(channels_, keys_) k (channel, key)
            cross join lateral (
                select l.id, l.target_id, l.rewrite_key
                from leat.links l
                where l.source_id = k.channel and l.match = 'all' and l.enabled
                union all
                select l.id, l.target_id, l.rewrite_key
                from leat.links l
                where l.source_id = k.channel and l.match = 'exact' and coalesce(l.pattern, '') = k.key and l.enabled
                offset 0
            ) l
            union all
            select channels_[w.m], keys_[w.m], l.*
            from walk w
            cross join lateral (
                select l.id, l.target_id, l.rewrite_key
                from leat.links l
                where l.match = 'topic' and l.node_id = w.node and l.enabled
                offset 0
            ) l
            where w.word = lengths[w.m]
        ), by_headers as (
            select h.channel, h.headers, l.*
            from (
                select distinct u.channel, coalesce(routes_of.headers[u.n], '{}') as headers
                from unnest(at_ns, at_channels) u (n, channel)
                where headed
            ) h
            cross join lateral (
                select l.id, l.target_id, l.rewrite_key
                from leat.links l
                where l.source_id = h.channel
                  and l.match = 'headers'
                  and l.enabled
                  and case l.header_mode
                      when 'all' then h.headers @> l.headers
                      else exists (select from jsonb_each(l.headers) p where h.headers -> p.key = p.value)
                      end
                offset 0
            ) l
        ), matched as (
            select distinct on (m.n, m.target_id) m.*
            from (
                select a.n, k.target_id, k.id, coalesce(k.rewrite_key, a.key) as key
                from unnest(at_ns, at_channels, at_keys) a (n, channel, key)
                join by_key k on k.channel = a.channel and k.key = a.key
                union all
                select a.n, h.target_id, h.id, coalesce(h.rewrite_key, a.key)
                from unnest(at_ns, at_channels, at_keys) a (n, channel, key)
                join by_headers h on h.channel = a.channel and h.headers = coalesce(routes_of.headers[a.n], '{}')
            ) m
            order by m.n, m.target_id, m.id
        )
        select array_agg(m.n) as ns, array_agg(m.target_id) as targets, array_agg(m.key) as keys,
            array_agg(c.kind <> 'exchange') as keeps, array_agg(c.linked) as linked, bool_or(c.linked) as goes_on
        into hit
        from matched m
        join leat.channels c on c.id = m.target_id and c.deleted_at is null
        where not exists (select from unnest(seen_ns, seen) s (n, channel) where s.n = m.n and s.channel = m.target_id);

        return query
        select h.n, h.target, h.key
        from unnest(hit.ns, hit.targets, hit.keys, hit.keeps) h (n, target, key, keeps)
        where h.keeps;
        exit when hit.goes_on is not true;

        seen_ns := seen_ns || hit.ns;
        seen := seen || hit.targets;
        select array_agg(h.n), array_agg(h.target), array_agg(h.key)
        into at_ns, at_channels, at_keys
        from unnest(hit.ns, hit.targets, hit.keys, hit.linked) h (n, target, key, linked)
        where h.linked;
    end loop;
end
$$;
