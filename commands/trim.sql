-- Trims streams to their retention, about so many messages in all; true: there is
-- more. What somebody else trims at the moment is passed over, so any number of
-- brokers may do it. The log keeps everything.
create function leat.trim_streams(page integer) returns boolean
language plpgsql set search_path = '' set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
    now_    timestamptz := clock_timestamp();
    stream  record;
    trimmed record;
    room    bigint := page;
begin
    for stream in
        select s.channel_id, s.first_offset, s.first_bytes, h.next_offset, h.bytes, c.retention_bytes,
            greatest(
                case when c.retention_messages > 0 then h.next_offset - c.retention_messages end,
                case when c.retention_age > '0' then leat.offset_at(c.id, now_ - c.retention_age, s.first_offset, h.next_offset) end,
                0) as first_kept
        from leat.channels c
        join leat.streams s on s.channel_id = c.id
        cross join lateral (
            select h.next_offset, h.bytes
            from leat.stream_heads h
            where h.channel_id = c.id
            order by h.next_offset desc
            limit 1
        ) h
        where c.deleted_at is null
          and h.next_offset > s.first_offset
          and ((c.retention_messages > 0 and h.next_offset - s.first_offset > c.retention_messages)
            or (c.retention_bytes > 0 and h.bytes - s.first_bytes > c.retention_bytes)
            or (c.retention_age > '0' and exists (
                select from (
                    select e.at
                    from leat.events e
                    where e.channel_id = c.id and e.stream_offset <= s.first_offset
                    order by e.stream_offset desc
                    limit 1
                ) e
                where e.at < now_ - c.retention_age)))
        for update of s skip locked
    loop
        select max(m.stream_offset) + 1 as first_offset, sum(m.size) as bytes
        into trimmed
        from (
            select m.stream_offset, octet_length(o.payload) as size,
                sum(octet_length(o.payload)) over (order by m.stream_offset rows between unbounded preceding and 1 preceding) as before
            from leat.stream_messages(stream.channel_id, stream.first_offset,
                least(room, stream.next_offset - stream.first_offset)::integer) m
            join leat.events o on o.position = m.origin_id
        ) m
        where m.stream_offset < stream.first_kept
           or (stream.retention_bytes > 0
               and stream.bytes - stream.first_bytes - coalesce(m.before, 0) > stream.retention_bytes);
        continue when trimmed.first_offset is null;
        update leat.streams s
        set first_offset = trimmed.first_offset, first_bytes = stream.first_bytes + trimmed.bytes
        where s.channel_id = stream.channel_id;
        perform leat.append('stream.trimmed', stream.channel_id, 'leat', null,
            jsonb_build_object('firstOffset', trimmed.first_offset, 'bytes', stream.first_bytes + trimmed.bytes));
        room := room - (trimmed.first_offset - stream.first_offset);
        exit when room <= 0;
    end loop;
    return room <= 0;
end
$$;
