-- The messages of a stream from an offset on, at most so many, in order; payload and
-- content type lie with the origin, whose headers these are laid over. Offsets
-- are gapless: an event that begins so many beyond is none of them, and the one that
-- holds the first may begin below it.
create function leat.stream_messages(channel integer, start bigint, most integer)
returns table (stream_offset bigint, message_id bigint, origin_id bigint, routing_key text, at timestamptz, headers jsonb)
language plpgsql stable rows 1000
set search_path = '' set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
    below bigint := (
        select e.stream_offset
        from leat.events e
        where e.channel_id = channel and e.stream_offset <= start
        order by e.stream_offset desc
        limit 1);
begin
    return query
    select m.place, m.id, m.origin, m.key, e.at, case when e.kind = 'message.copied' then e.headers end
    from leat.events e
    cross join lateral (
        select e.stream_offset as place, e.position as id, e.position as origin, e.routing_key as key
        where e.kind = 'message.published'
        union all
        select e.stream_offset + i.n - 1, i.id, i.origin, coalesce(e.routing_key, i.key)
        from rows from (unnest(e.message_ids), unnest(e.origin_ids), jsonb_array_elements_text(e.data -> 'keys'))
            with ordinality i (id, origin, key, n)
        where e.kind = 'message.copied'
    ) m
    where e.channel_id = channel
      and e.stream_offset >= coalesce(below, start)
      and e.stream_offset < start + most
      and m.place >= start
      and m.place < start + most
    order by m.place;
end
$$;
