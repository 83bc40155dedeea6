-- Appends a log.archived event, unless there is one that says the same; answers its
-- position.
create function leat.note_archive(actor text, data jsonb) returns bigint
language plpgsql set search_path = '' set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
    to_position bigint := (data ->> 'to')::bigint;
    noted       bigint;
begin
    if leat.seal_ending(to_position) is distinct from data ->> 'digest' then
        raise exception 'must be the digest of the seal that ends at position %', to_position
            using errcode = 'LE003', column = 'digest';
    end if;
    select e.position into noted
    from leat.events e
    where e.channel_id is null
      and e.message_ids is not null
      and e.kind = 'log.archived'
      and e.data = note_archive.data
      and e.position > to_position
    order by e.channel_id, e.position
    limit 1;
    return coalesce(noted, leat.append_log('log.archived', note_archive.actor, note_archive.data));
end
$$;
