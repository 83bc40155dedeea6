-- Ranges of positions, both ends inclusive, that no partition of the log holds though
-- retention has not dropped them: somebody has dropped or detached their partition.
create function leat.log_gaps() returns table (low bigint, high bigint)
language sql stable set search_path = '' as $$
    select g.low, g.high
    from (
        select greatest(lag(p.high) over (order by p.low), (select b.first_position from leat.log_begin b), 1) as low, p.low - 1 as high
        from leat.partitions() p
    ) g
    where g.low <= g.high
    order by g.low
$$;

-- Streams that have lost messages in a gap of the log begin behind it: what was before
-- can no more be read without one missing. Answers the gaps, '' if there are none.
create function leat.trim_gaps() returns text
language plpgsql set search_path = '' set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
    gap     record;
    stream  record;
    behind  bigint;
    before  bigint;
    trimmed bigint;
begin
    for gap in select g.low, g.high from leat.log_gaps() g order by g.low desc loop
        for stream in
            select s.channel_id, s.first_offset, leat.stream_end(s.channel_id) as next_offset
            from leat.streams s
            join leat.channels c on c.id = s.channel_id and c.deleted_at is null
            for update of s
        loop
            select e.stream_offset into behind
            from leat.events e
            where e.channel_id = stream.channel_id and e.stream_offset >= 0 and e.position > gap.high
            order by e.stream_offset
            limit 1;
            select e.stream_offset + coalesce(cardinality(e.message_ids), 1) into before
            from leat.events e
            where e.channel_id = stream.channel_id and e.stream_offset >= 0 and e.position < gap.low
            order by e.stream_offset desc
            limit 1;
            behind := coalesce(behind, stream.next_offset);
            continue when behind <= greatest(before, stream.first_offset);
            update leat.streams s
            set first_offset = behind,
                first_bytes = (select h.bytes from leat.stream_heads h where h.channel_id = s.channel_id) - coalesce((
                    select sum(octet_length(o.payload))
                    from leat.stream_messages(s.channel_id, behind, (stream.next_offset - behind)::integer) m
                    join leat.events o on o.position = m.origin_id), 0)
            where s.channel_id = stream.channel_id
            returning s.first_bytes into trimmed;
            perform leat.append('stream.trimmed', stream.channel_id, 'leat', null,
                jsonb_build_object('firstOffset', behind, 'bytes', trimmed, 'goneFrom', gap.low, 'goneTo', gap.high));
        end loop;
    end loop;
    return coalesce((select string_agg(format('%s to %s', g.low, g.high), ', ') from leat.log_gaps() g), '');
end
$$;
