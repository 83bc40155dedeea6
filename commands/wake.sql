-- Tells other brokers, at the commit of this transaction, that there is something
-- new in these channels: those that read the write-ahead log by a message in it,
-- if more than knows of them are alive: a broker that publishes knows of itself, or
-- of nobody, null, if it does not read the log. knows = 0 is a transaction of somebody who is no broker: then those that listen
-- are notified too, and so is whoever has not entered himself yet. A broker does that
-- outside its transactions, because NOTIFY locks every commit of the database.
-- A reader of the log sees the messages of a stream there, and needs no other.
create function leat.wake(channels integer[], knows integer default 0) returns void
language plpgsql set search_path = '' as $$
declare
    now_  timestamptz := statement_timestamp(); -- a plan can look for it in the index, unlike clock_timestamp()
    alive record;
    ids   text;
begin
    select count(*) filter (where b.tail = 'wal') as wal, count(*) filter (where b.tail = 'notify') as notify
    into alive
    from leat.brokers b
    where b.until > now_;
    if alive.wal > coalesce(knows, 0) then
        select string_agg(c.id::text, ',') into ids
        from leat.channels c
        where c.id = any (channels) and c.kind = 'queue';
        if ids is not null then
            perform pg_logical_emit_message(true, 'leat', ids);
        end if;
    end if;
    if knows = 0 and (alive.notify > 0 or alive.wal = 0) then
        -- A payload has less than 8,000 bytes.
        perform pg_notify('leat', string_agg(c.id::text, ','))
        from (
            select c.id, (row_number() over (order by c.id) - 1) / 700 as chunk
            from leat.channels c
            where c.id = any (channels) and c.kind <> 'exchange'
        ) c
        group by c.chunk;
    end if;
end
$$;
