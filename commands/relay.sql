-- Relays: the rows of a table of Watermill's SQL publisher become messages. A step
-- publishes a page of rows and moves the place behind them in one transaction.
--
-- The place is (transaction_id, offset). A row appears when its transaction
-- commits, so rows are read only when every transaction of this database up to
-- theirs has ended.
-- Transaction ids mean nothing in another cluster, where a dump may be restored:
-- then the rows that were there are gone through once by what is known of them,
-- and the place is taken anew for those that come.

-- The table, quoted, if it is one that Watermill's publisher writes.
create function leat.relay_source(schema text, name text) returns text
language plpgsql stable set search_path = '' as $$
declare
    source text := format('%I.%I', schema, name);
    wrong  text;
begin
    if to_regclass(source) is null then
        raise exception 'there is no table % to relay from', source using errcode = 'LE003', column = 'table';
    end if;
    select string_agg(w.name, ', ') into wrong
    from (values
        ('offset', '{int8}'::name[]),
        ('uuid', '{varchar,text,uuid}'),
        ('payload', '{json,jsonb,bytea,text}'),
        ('metadata', '{json,jsonb}'),
        ('transaction_id', '{xid8}')) w (name, types)
    where not exists (
        select from pg_attribute a
        join pg_type t on t.oid = a.atttypid
        where a.attrelid = to_regclass(source) and a.attname = w.name and t.typname = any (w.types) and not a.attisdropped);
    if wrong is not null then
        raise exception '% is no table of Watermill: its columns are not as they should be: %', source, wrong
            using errcode = 'LE003', column = 'table';
    end if;
    return source;
end
$$;

-- What tells the table, and the cluster, from another one.
create function leat.relay_identity(source text, out cluster bigint, out relation oid, out node oid)
language sql stable set search_path = '' as $$
    select s.system_identifier, c.oid, c.relfilenode
    from pg_control_system() s, pg_class c
    where c.oid = source::regclass
$$;

-- Older transactions than this one write nothing any more. One that runs in
-- another database cannot; of one that nobody is known to run it may be.
create function leat.relay_fence() returns xid8
language plpgsql set search_path = '' as $$
declare
    now_  pg_snapshot := pg_current_snapshot();
    fence xid8;
begin
    select x.xid into fence
    from pg_snapshot_xip(now_) x (xid)
    where not exists (
        select from pg_locks l
        join pg_stat_activity a on a.pid = l.pid
        where l.locktype = 'transactionid' and l.mode = 'ExclusiveLock' and l.granted
          and l.transactionid = x.xid::xid
          and a.datid <> (select d.oid from pg_database d where d.datname = current_database()))
    order by x.xid
    limit 1;
    return coalesce(fence, pg_snapshot_xmax(now_));
end
$$;

-- Up to where there are rows, and which transactions later ones may have. The lock
-- waits for those who write at the moment.
create function leat.relay_base(source text, out base bigint, out horizon xid8)
language plpgsql set search_path = '' set lock_timeout = '1s' as $$
begin
    execute format('lock table %s in share row exclusive mode', source);
    execute format('select coalesce(max("offset"), 0) from %s', source) into base;
    horizon := leat.relay_fence();
end
$$;

create function leat.declare_relay(
    name    text,
    schema  text,
    table_  text,
    channel text,
    key     text,
    remove  boolean,
    every   interval,
    latest  boolean,
    actor   text,
    out created boolean
)
language plpgsql set search_path = '' as $$
declare
    place leat.relays;
begin
    perform pg_advisory_xact_lock(1279607049, hashtext(name));
    select r.* into place from leat.relays r where r.name = declare_relay.name;
    created := not found;
    if not created then
        if (place.source, place.channel, place.key, place.remove, place.every)
            is distinct from (format('%I.%I', schema, table_), channel, key, remove, every) then
            raise exception 'the relay % exists with other settings', quote_literal(name) using errcode = 'LE061';
        end if;
        return;
    end if;
    perform leat.channel_id(channel);
    place.source := leat.relay_source(schema, table_);
    select b.base, b.horizon into place.base_offset, place.horizon from leat.relay_base(place.source) b;
    select i.cluster, i.relation, i.node into place.cluster, place.relation, place.node from leat.relay_identity(place.source) i;
    if latest and remove then
        raise exception 'a relay that deletes rows begins with the earliest' using errcode = 'LE003', column = 'from';
    end if;
    insert into leat.relays (name, source, channel, key, remove, every, phase, last_transaction, base_offset, horizon,
        cluster, relation, node)
    values (name, place.source, channel, key, remove, every, case when latest then 0 else 1 end,
        case when latest then place.horizon else '0' end, place.base_offset, place.horizon, place.cluster, place.relation, place.node);
    perform leat.append('relay.declared', leat.channel_id(channel), actor, null, jsonb_build_object('relay', name, 'table', place.source,
        'key', key, 'delete', remove, 'everyMicros', (extract(epoch from every) * 1000000)::bigint, 'from', case when latest then 'latest' else 'earliest' end));
end
$$;

create function leat.delete_relay(name text, actor text) returns void
language plpgsql set search_path = '' as $$
declare
    deleted leat.relays;
begin
    delete from leat.relays r where r.name = delete_relay.name returning r.* into deleted;
    if not found then
        raise exception 'no relay %', quote_literal(name) using errcode = 'LE060';
    end if;
    perform leat.append('relay.deleted', leat.relay_channel(deleted), actor, null, jsonb_build_object('relay', name, 'moved', deleted.moved));
end
$$;

-- The channel that a relay moves rows to, which may have been deleted.
create function leat.relay_channel(relay leat.relays) returns integer
language sql stable set search_path = '' as $$
    select c.id
    from leat.channels c
    where c.name = relay.channel
    order by c.deleted_at desc nulls first, c.id desc
    limit 1
$$;

-- Which rows r of the source come next, but for the fence.
create function leat.relay_rows(relay leat.relays) returns text
language sql immutable set search_path = '' as $$
    select case
        when relay.remove then 'true'
        when relay.phase = 0 then format('(r.transaction_id, r."offset") > (%L::xid8, %s) and r."offset" > %s',
            relay.last_transaction, relay.last_offset, relay.base_offset)
        when relay.phase = 1 then format('(r.transaction_id, r."offset") > (%L::xid8, %s) and r."offset" > %s and r."offset" <= %s',
            relay.last_transaction, relay.last_offset, relay.floor_offset, relay.base_offset)
        else format('(r.transaction_id, r."offset") > (%L::xid8, %s) and (r.transaction_id, r."offset") <= (%L::xid8, %s)'
            ' and r."offset" > %s and r."offset" <= %s',
            relay.last_transaction, relay.last_offset, relay.old_transaction, relay.old_offset, relay.old_max, relay.base_offset)
        end
$$;

-- How many rows wait, counted up to most.
create function leat.relay_lag(relay leat.relays, most integer) returns bigint
language plpgsql stable set search_path = '' as $$
declare
    lag bigint;
begin
    if to_regclass(relay.source) is null then
        return 0;
    end if;
    execute format('select count(*) from (select from %s r where %s limit $1) r', relay.source, leat.relay_rows(relay))
    into lag using most;
    return lag;
end
$$;

-- Whether the place says nothing any more: the transaction ids are of another
-- cluster, or the offsets began again.
create function leat.relay_lost(relay leat.relays, cluster bigint, relation oid, node oid, out lost boolean, out anew boolean)
language plpgsql stable set search_path = '' as $$
declare
    sequence text;
    last     bigint;
begin
    anew := false;
    lost := relay.cluster <> cluster or relay.last_transaction > pg_snapshot_xmax(pg_current_snapshot());
    if lost or (relay.relation, relay.node) = (relation, node) then
        return;
    end if;
    anew := relay.relation <> relation;
    sequence := pg_get_serial_sequence(relay.source, 'offset');
    if not anew and sequence is not null then
        execute format('select last_value from %s', sequence) into last;
        anew := last < greatest(relay.max_offset, relay.base_offset);
    end if;
    lost := anew;
end
$$;

-- Takes the place anew. What was moved is known: rows up to the old place, and
-- not beyond the greatest offset.
create function leat.relay_restart(relay leat.relays, anew boolean) returns leat.relays
language plpgsql set search_path = '' as $$
begin
    relay.floor_offset := case when anew then 0 else relay.base_offset end;
    relay.old_transaction := relay.last_transaction;
    relay.old_offset := relay.last_offset;
    relay.old_max := greatest(relay.max_offset, relay.base_offset);
    relay.phase := 1;
    relay.restored_at := clock_timestamp();
    select b.base, b.horizon into relay.base_offset, relay.horizon from leat.relay_base(relay.source) b;
    return relay;
end
$$;

-- A page of rows as messages, in their order.
create function leat.relay_page(relay leat.relays, page integer,
    out payloads bytea[], out headers jsonb[], out keys text[], out dues timestamptz[], out types text[],
    out transactions xid8[], out offsets bigint[])
language plpgsql set search_path = '' as $$
declare
    bytes boolean := exists (
        select from pg_attribute a
        where a.attrelid = relay.source::regclass and a.attname = 'payload' and a.atttypid = 'bytea'::regtype);
begin
    execute format($q$
        select array_agg(p.payload order by p.n), array_agg(p.headers order by p.n), array_agg(p.key order by p.n),
            array_agg(case when p.due > clock_timestamp() then p.due end order by p.n),
            array_agg(p.transaction_id order by p.n), array_agg(p."offset" order by p.n)
        from (
            select p.*, sum(octet_length(p.payload)) over (order by p.n) as total
            from (
                select row_number() over (order by r.transaction_id, r."offset") as n, r.transaction_id, r."offset",
                    coalesce(%s, '') as payload,
                    case when jsonb_typeof(r.metadata::jsonb) = 'object' then r.metadata::jsonb else '{}' end
                        || jsonb_build_object('_watermill_message_uuid', r.uuid) as headers,
                    coalesce(r.metadata ->> $2, '') as key,
                    (r.metadata ->> '_watermill_delayed_until')::timestamptz as due
                from (
                    select r.* from %s r where %s%s order by r.transaction_id, r."offset" limit $1%s
                ) r
            ) p
        ) p
        where p.n = 1 or p.total <= 16777216 $q$,
        case when bytes then 'r.payload' else 'convert_to(r.payload::text, ''UTF8'')' end,
        relay.source, leat.relay_rows(relay),
        case when relay.phase = 0 and not relay.remove then format(' and r.transaction_id < %L::xid8', leat.relay_fence()) else '' end,
        case when relay.remove then ' for update skip locked' else '' end)
    into payloads, headers, keys, dues, transactions, offsets
    using page, nullif(relay.key, '');
    if bytes and offsets is not null then
        types := array_fill('application/octet-stream'::text, array[cardinality(offsets)]);
    end if;
end
$$;

-- The next row, if there is one, whatever is in it.
create function leat.relay_next(relay leat.relays, out transactions xid8[], out offsets bigint[])
language plpgsql set search_path = '' as $$
begin
    execute format('select array[r.transaction_id], array[r."offset"] from %s r where %s order by r.transaction_id, r."offset" limit 1',
        relay.source, leat.relay_rows(relay)) into transactions, offsets;
end
$$;

-- Publishes a page, and answers which rows it was; or, of a page of one row, why
-- it is not to be had.
create function leat.relay_publish(relay leat.relays, page integer, out transactions xid8[], out offsets bigint[], out failure text)
language plpgsql set search_path = '' as $$
declare
    rows_ record;
begin
    select * into rows_ from leat.relay_page(relay, page);
    transactions := rows_.transactions;
    offsets := rows_.offsets;
    if offsets is not null then
        perform leat.publish_batch(relay.channel, rows_.payloads, rows_.keys, rows_.headers, rows_.types,
            deliver_ats => rows_.dues, actor => 'relay:' || relay.name);
    end if;
exception when others then
    if page > 1 then
        raise;
    end if;
    select n.offsets into offsets from leat.relay_next(relay) n;
    failure := format('the row with offset %s of %s: %s (%s)', offsets[1], relay.source, sqlerrm, sqlstate);
end
$$;

-- Moves up to page rows; with skip, the next row, which has that offset, is left
-- out instead. more: there may be others; channels may have messages now; failure:
-- the next row is refused. Somebody else's step is not waited for.
create function leat.relay_step(name text, page integer, skip bigint default null,
    out moved integer, out more boolean, out restored boolean, out channels integer[], out failure text)
language plpgsql set search_path = '' as $$
declare
    relay  leat.relays;
    found_ leat.relays; -- as it was
    now_   record;
    lost   record;
    rows_  record;
    n      integer;
begin
    moved := 0;
    more := false;
    restored := false;
    select r.* into relay from leat.relays r where r.name = relay_step.name for update skip locked;
    if not found then
        return;
    end if;
    found_ := relay;
    if to_regclass(relay.source) is null then
        raise exception 'there is no table % to relay from', relay.source using errcode = 'LE003', column = 'table';
    end if;
    if relay.phase = 0 and not relay.remove then
        select * into now_ from leat.relay_identity(relay.source);
        select * into lost from leat.relay_lost(relay, now_.cluster, now_.relation, now_.node);
        if lost.lost then
            relay := leat.relay_restart(relay, lost.anew);
            restored := true;
        end if;
        relay.cluster := now_.cluster;
        relay.relation := now_.relation;
        relay.node := now_.node;
    end if;

    if skip is null then
        select * into rows_ from leat.relay_publish(relay, page);
        if rows_.failure is not null then
            failure := rows_.failure;
            relay.failed_at := case when relay.failure = failure then relay.failed_at else clock_timestamp() end;
            relay.failure := failure;
            perform leat.save_relay(relay);
            return;
        end if;
    else
        select * into rows_ from leat.relay_next(relay);
        if rows_.offsets[1] is distinct from skip then
            raise exception 'the next row has the offset %, not %', coalesce(rows_.offsets[1]::text, 'of none'), skip
                using errcode = 'LE003', column = 'offset';
        end if;
    end if;
    n := coalesce(cardinality(rows_.offsets), 0);
    if n > 0 then
        if relay.remove then
            execute format('delete from %s r using unnest($1, $2) u (t, o) where r.transaction_id = u.t and r."offset" = u.o', relay.source)
            using rows_.transactions, rows_.offsets;
        end if;
        relay.last_transaction := rows_.transactions[n];
        relay.last_offset := rows_.offsets[n];
        relay.max_offset := greatest(relay.max_offset, (select max(u) from unnest(rows_.offsets) u));
        if skip is null then
            moved := n;
            relay.moved := relay.moved + n;
            relay.moved_at := clock_timestamp();
            channels := array(select w.channel_id from leat.walk_links(leat.channel_id(relay.channel)) w);
        end if;
    elsif relay.phase <> 0 and not relay.remove then
        relay.last_transaction := case when relay.phase = 1 then '0' else relay.horizon end;
        relay.last_offset := 0;
        relay.phase := (relay.phase + 1) % 3;
    end if;
    more := n > 0 or relay.phase <> found_.phase;
    relay.failure := null;
    relay.failed_at := null;
    if relay is distinct from found_ then
        perform leat.save_relay(relay);
    end if;
end
$$;

create function leat.save_relay(relay leat.relays) returns void
language sql set search_path = '' as $$
    update leat.relays r
    set phase = relay.phase,
        last_transaction = relay.last_transaction,
        last_offset = relay.last_offset,
        floor_offset = relay.floor_offset,
        base_offset = relay.base_offset,
        max_offset = relay.max_offset,
        old_transaction = relay.old_transaction,
        old_offset = relay.old_offset,
        old_max = relay.old_max,
        horizon = relay.horizon,
        cluster = relay.cluster,
        relation = relay.relation,
        node = relay.node,
        moved = relay.moved,
        moved_at = relay.moved_at,
        restored_at = relay.restored_at,
        failure = relay.failure,
        failed_at = relay.failed_at
    where r.name = relay.name
$$;

create function leat.skip_relay(name text, skip bigint, actor text) returns void
language plpgsql set search_path = '' as $$
declare
    relay leat.relays;
begin
    select r.* into relay from leat.relays r where r.name = skip_relay.name for update;
    if not found then
        raise exception 'no relay %', quote_literal(name) using errcode = 'LE060';
    end if;
    perform leat.relay_step(name, 1, skip);
    perform leat.append('relay.skipped', leat.relay_channel(relay), actor, null,
        jsonb_strip_nulls(jsonb_build_object('relay', name, 'offset', skip, 'failure', relay.failure)));
end
$$;
