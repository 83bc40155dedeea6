-- Declares a queue. Again, it changes nothing, and another kind, mode or setting
-- than the channel has is a conflict; settings that are not given are not compared.
create function leat.declare_channel(name text, kind text, mode text, policy jsonb, actor text,
    out channel leat.channels, out created boolean)
language plpgsql set search_path = '' as $$
declare
    wanted leat.channels;
    setting record;
begin
    if declare_channel.name !~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,254}$' then
        raise exception 'a channel name is 1 to 255 letters, digits, dots, underscores and hyphens'
            using errcode = 'LE003', column = 'name';
    end if;
    -- One declaration of a name at a time: twenty at once all succeed.
    perform pg_advisory_xact_lock(1279607045, hashtext(declare_channel.name));
    wanted := jsonb_populate_record(leat.default_channel(), policy);
    wanted.name := declare_channel.name;
    wanted.kind := declare_channel.kind;
    wanted.mode := declare_channel.mode;

    select c.* into channel from leat.channels c where c.name = wanted.name and c.deleted_at is null;
    if found then
        created := false;
        for setting in
            select w.key, w.value as wanted, h.value as have
            from jsonb_each(to_jsonb(wanted)) w
            join jsonb_each(to_jsonb(channel)) h using (key)
            where (w.key in ('kind', 'mode') or policy ? w.key) and w.value <> h.value
            order by w.key
        loop
            raise exception 'channel % exists with % %, not %', wanted.name, setting.key, setting.have, setting.wanted
                using errcode = 'LE004', column = setting.key;
        end loop;
        return;
    end if;

    created := true;
    wanted.id := nextval(pg_get_serial_sequence('leat.channels', 'id'));
    wanted.declared_at := clock_timestamp();
    wanted.epoch := leat.append('channel.declared', wanted.id, actor, null,
        to_jsonb(wanted) - array['id', 'epoch', 'deleted_at']);
    insert into leat.channels select wanted.*;
    channel := wanted;
end
$$;

create function leat.default_channel() returns leat.channels
language sql stable set search_path = '' as $$
    select row(null, null, 'queue', 'standard', interval '30 s', 5, 'exponential', interval '1 s', interval '30 s', 0.2,
        '{}', false, interval '10 min', interval '0', null, null, null, null, interval '0', true, interval '0', 1,
        false)::leat.channels
$$;

create function leat.alter_channel(name text, patch jsonb, actor text) returns leat.channels
language plpgsql set search_path = '' as $$
declare
    channel leat.channels;
begin
    select c.* into channel from leat.channels c
    where c.name = alter_channel.name and c.deleted_at is null
    for update;
    if not found then
        raise exception 'no channel %', name using errcode = 'LE002';
    end if;
    channel := jsonb_populate_record(channel, patch - array['id', 'name', 'kind', 'mode', 'declared_at', 'epoch', 'deleted_at']);
    perform leat.append('channel.altered', channel.id, actor, null,
        to_jsonb(channel) - array['id', 'epoch', 'deleted_at', 'declared_at']);
    update leat.channels c
    set (lease, max_deliveries, retry_strategy, base_delay, max_delay, jitter, non_retryable, dead_letter_expired,
            dedup_window, priority_ageing) =
        row(channel.lease, channel.max_deliveries, channel.retry_strategy, channel.base_delay, channel.max_delay,
            channel.jitter, channel.non_retryable, channel.dead_letter_expired, channel.dedup_window, channel.priority_ageing)
    where c.id = channel.id;
    return channel;
end
$$;

-- Deletes a channel; its history stays. Refused while it holds messages, unless forced.
create function leat.delete_channel(name text, force boolean, actor text) returns void
language plpgsql set search_path = '' set enable_seqscan = off as $$
declare
    channel leat.channels;
    held    bigint;
begin
    select c.* into channel from leat.channels c
    where c.name = delete_channel.name and c.deleted_at is null
    for update;
    if not found then
        raise exception 'no channel %', name using errcode = 'LE002';
    end if;
    perform leat.need_views();
    -- Waits for open publishes into it.
    perform set_config('lock_timeout', '2s', true);
    perform pg_advisory_xact_lock(1279607042, channel.id);
    perform leat.place_unplaced();
    select coalesce(sum(cardinality(r.ids)), 0) into held from leat.queue_runs r where r.channel_id = channel.id;
    if held > 0 and not force then
        raise exception 'channel % holds % messages', name, held using errcode = 'LE005';
    end if;
    perform leat.append('channel.deleted', channel.id, actor, null, jsonb_build_object('messages', held));
    -- Lanes before runs, as everywhere. Whoever has a run in hand right now is waited
    -- for, and may leave new ones that only another look finds.
    perform from leat.lanes l where l.channel_id = channel.id order by l.routing_key for update;
    loop
        delete from leat.queue_runs r where r.channel_id = channel.id;
        exit when not found;
    end loop;
    delete from leat.lanes l where l.channel_id = channel.id;
    delete from leat.dedup d where d.channel_id = channel.id;
    update leat.channels c set deleted_at = clock_timestamp() where c.id = channel.id;
end
$$;
