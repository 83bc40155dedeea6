-- A stream by its name, and where it begins and ends. With hold it is not deleted
-- until the transaction ends.
create function leat.find_stream(
    stream text,
    hold   boolean,
    out channel_id   integer,
    out epoch        bigint,
    out first_offset bigint,
    out end_offset   bigint
)
language plpgsql set search_path = '' as $$
declare
    kind text;
begin
    if hold then
        perform from leat.channels c where c.name = stream and c.deleted_at is null for key share;
    end if;
    select c.id, leat.epoch_of(c.id, c.epoch), c.kind into channel_id, epoch, kind
    from leat.channels c
    where c.name = stream and c.deleted_at is null;
    if not found then
        raise exception 'There is no stream %.', stream using errcode = 'LE002';
    elsif kind = 'queue' then
        raise exception 'There is no stream %: it is a queue. Consume it (/v1/queues/%/consume, leat consume) or poll it instead.',
            stream, stream using errcode = 'LE002';
    elsif kind <> 'stream' then
        raise exception 'There is no stream %: it is an exchange, which stores nothing.', stream using errcode = 'LE002';
    end if;
    first_offset := coalesce((select s.first_offset from leat.streams s where s.channel_id = find_stream.channel_id), 0);
    end_offset := leat.stream_end(channel_id);
end
$$;

-- The offset that the next message of a stream will get. The greatest key of the
-- index is found first, whatever old versions of the row there are.
create function leat.stream_end(channel integer) returns bigint
language sql stable set search_path = '' set enable_seqscan = off as $$
    select coalesce((
        select h.next_offset from leat.stream_heads h
        where h.channel_id = channel
        order by h.next_offset desc
        limit 1), 0)
$$;

-- Where a reader of a stream begins: latest, earliest, offset or time. Refused if
-- the stream is another one than the epoch (null: any) says, or has no such offset
-- now: what the reader asked for is never changed in silence.
create function leat.find_start(
    stream       text,
    kind         text,
    start_offset bigint,
    start_time   timestamptz,
    known_epoch  bigint,
    hold         boolean,
    out channel_id   integer,
    out epoch        bigint,
    out first_offset bigint,
    out end_offset   bigint,
    out next_offset  bigint
)
language plpgsql set search_path = '' as $$
begin
    select f.channel_id, f.epoch, f.first_offset, f.end_offset
    into channel_id, epoch, first_offset, end_offset
    from leat.find_stream(stream, hold) f;
    next_offset := case kind
        when 'latest' then end_offset
        when 'earliest' then first_offset
        when 'offset' then start_offset
        when 'time' then leat.offset_at(channel_id, start_time, first_offset, end_offset)
    end;
    perform leat.check_epoch(stream, channel_id, epoch, known_epoch, next_offset, first_offset);
    perform leat.check_offset(stream, epoch, next_offset, first_offset, end_offset);
end
$$;

-- The epoch of a channel that has this one by its declaration.
create function leat.epoch_of(channel integer, declared bigint) returns bigint
language sql stable set search_path = '' as $$
    select coalesce((select max(k.epoch) from leat.epochs k where k.channel_id = channel), declared)
$$;

-- The offset below which a stream still is what it was in an epoch of its own that
-- ended when the database was restored; null for what is no such epoch.
create function leat.same_below(channel integer, known_epoch bigint) returns bigint
language sql stable set search_path = '' as $$
    select min(k.began)
    from leat.channels c
    join leat.epochs k on k.channel_id = c.id and k.epoch > known_epoch
    where c.id = channel
      and (c.epoch = known_epoch or exists (select from leat.epochs o where o.channel_id = channel and o.epoch = known_epoch))
$$;

-- Refuses an epoch that is not that of the stream, but for offsets up to where the
-- stream is the same in both; a next_offset of null is of none.
create function leat.check_epoch(
    stream       text,
    channel      integer,
    epoch        bigint,
    known_epoch  bigint,
    next_offset  bigint,
    first_offset bigint
) returns void
language plpgsql stable set search_path = '' as $$
declare
    same bigint;
begin
    if known_epoch <> epoch then
        same := leat.same_below(channel, known_epoch);
        if same is null then
            raise exception 'Stream % was deleted and declared again: its epoch is %, not %.', stream, epoch, known_epoch
                using errcode = 'LE030', detail = epoch || ':' || first_offset;
        elsif next_offset is null or next_offset > same then
            raise exception 'The database of stream % was restored: its epoch is %, not %, and messages from offset % on are others than they were.',
                stream, epoch, known_epoch, same
                using errcode = 'LE030', detail = epoch || ':' || greatest(same, first_offset);
        end if;
    end if;
end
$$;

create function leat.check_offset(stream text, epoch bigint, next_offset bigint, first_offset bigint, end_offset bigint)
returns void
language plpgsql immutable set search_path = '' as $$
begin
    if next_offset < first_offset then
        raise exception 'Stream % keeps messages from offset % on; % is gone.', stream, first_offset, next_offset
            using errcode = 'LE031', detail = epoch || ':' || first_offset;
    elsif next_offset > end_offset then
        raise exception 'Stream % ends before offset %; % is ahead.', stream, end_offset, next_offset
            using errcode = 'LE032', detail = epoch || ':' || end_offset;
    end if;
end
$$;

-- The first offset from low on that was published at that time or later; high if
-- there is none below it. The times of a stream grow with its offsets.
create function leat.offset_at(channel integer, moment timestamptz, low bigint, high bigint) returns bigint
language plpgsql stable set search_path = '' set enable_seqscan = off as $$
declare
    middle    bigint;
    published timestamptz;
begin
    while low < high loop
        middle := low + (high - low) / 2;
        -- A batch of copies is one row, at the offset of its first message.
        select e.at into published
        from leat.events e
        where e.channel_id = channel and e.stream_offset <= middle
        order by e.stream_offset desc
        limit 1;
        if published >= moment then
            high := middle;
        else
            low := middle + 1;
        end if;
    end loop;
    return low;
end
$$;
