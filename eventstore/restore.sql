-- A database that was restored from a copy looks like the one that was copied, which
-- may have gone on since. What tells them apart is in leat.home.

-- Which database this is.
create function leat.identity() returns leat.home
language sql volatile set search_path = '' as $$
    select true, s.system_identifier, d.oid,
        ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint, null::bigint, null::timestamptz
    from pg_control_system() s, pg_database d
    where d.datname = current_database()
$$;

-- Notices that the database is another one than before, says so in the log, and begins
-- an epoch of each stream: what was after the offsets where they end now may have been
-- read by somebody. Answers the data of the event, or null. A server that was promoted
-- counts only for who starts when no broker is alive: one that went on serving has
-- told its readers what they miss.
create function leat.notice_restore(starting boolean) returns jsonb
language plpgsql volatile set search_path = '' as $$
declare
    known leat.home;
    now_  leat.home;
    new_  bigint;
    data  jsonb;
begin
    if pg_is_in_recovery() then
        return null;
    end if;
    now_ := leat.identity();
    perform from leat.home h where (h.cluster, h.database, h.timeline) = (now_.cluster, now_.database, now_.timeline);
    if found then
        return null;
    end if;
    lock table leat.home in share row exclusive mode;
    select h.* into known from leat.home h;
    if not found then
        insert into leat.home select now_.*;
        return null;
    elsif (known.cluster, known.database, known.timeline) = (now_.cluster, now_.database, now_.timeline) then
        return null;
    end if;
    update leat.home h set cluster = now_.cluster, database = now_.database, timeline = now_.timeline;
    if (known.cluster, known.database) = (now_.cluster, now_.database)
        and (not starting or exists (select from leat.brokers b where b.until > clock_timestamp()))
    then
        return null;
    end if;
    lock table leat.stream_heads in share row exclusive mode; -- nobody publishes to a stream
    new_ := greatest((extract(epoch from clock_timestamp()) * 1000000)::bigint, (select max(k.epoch) + 1 from leat.epochs k));
    insert into leat.epochs (channel_id, epoch, began)
    select c.id, new_, leat.stream_end(c.id)
    from leat.channels c
    where c.kind = 'stream' and c.deleted_at is null;
    data := jsonb_build_object(
        'epoch', new_,
        'from', jsonb_build_object('cluster', known.cluster::text, 'database', known.database::bigint, 'timeline', known.timeline),
        'to', jsonb_build_object('cluster', now_.cluster::text, 'database', now_.database::bigint, 'timeline', now_.timeline),
        'streams', coalesce((select jsonb_object_agg(k.channel_id, k.began) from leat.epochs k where k.epoch = new_), '{}'));
    update leat.home h set restored = leat.append_log('log.restored', 'leat', data), restored_at = clock_timestamp();
    return data;
end
$$;
