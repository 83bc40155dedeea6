package replication

// The publication is made again if somebody dropped it or made something else of
// it. Brokers of several versions may share it: columns beyond those that are
// needed do no harm. Nobody waits long here: other brokers come at the same time,
// and the table may be locked.
const publicationSQL = `-- replication.publication
do $$
declare
    needed constant name[] := '{position,at,stream_offset,channel_id,routing_key,content_type,headers,message_ids,origin_ids,payload}';

    whole boolean;
begin
    for attempt in 1..2 loop
        select p.pubinsert and not p.pubupdate and not p.pubdelete and not p.pubtruncate and p.pubviaroot and not p.puballtables
            and pg_catalog.pg_get_expr(r.prqual, r.prrelid) = '(stream_offset IS NOT NULL)'
            and needed <@ array(
                select a.attname
                from pg_catalog.pg_attribute a
                where a.attrelid = r.prrelid and a.attnum = any (r.prattrs::pg_catalog.int2[]))
        into whole
        from pg_catalog.pg_publication p
        left join pg_catalog.pg_publication_rel r on r.prpubid = p.oid and r.prrelid = 'leat.events'::pg_catalog.regclass
        where p.pubname = 'leat_streams';
        if whole then
            return;
        end if;
        if attempt = 1 then
            perform pg_catalog.set_config('lock_timeout', '5s', true);
            perform pg_catalog.pg_advisory_xact_lock(1279607044, 5);
        end if;
    end loop;
    drop publication if exists leat_streams;
    create publication leat_streams
        for table leat.events (position, at, stream_offset, channel_id, routing_key, content_type, headers, message_ids, origin_ids, payload)
        where (stream_offset is not null)
        with (publish = 'insert', publish_via_partition_root = true);
end
$$`
