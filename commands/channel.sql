-- Declares a queue, a stream, or an exchange, whose mode is its type. Again, it changes
-- nothing, and another kind, mode or setting than the channel has is a conflict;
-- settings that are not given are not compared.
create function leat.declare_channel(name text, kind text, mode text, policy jsonb, actor text,
    out channel leat.channels, out created boolean)
language plpgsql set search_path = '' set enable_seqscan = off as $$
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
    policy := leat.check_policy(kind, mode, policy);
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
            raise exception 'channel % exists with % %, not %', wanted.name,
                case when setting.key = 'mode' and wanted.kind = 'exchange' then 'type' else setting.key end, setting.have, setting.wanted
                using errcode = 'LE004', column = setting.key;
        end loop;
        return;
    end if;

    created := true;
    wanted.id := nextval(pg_get_serial_sequence('leat.channels', 'id'));
    wanted.declared_at := clock_timestamp();
    wanted.epoch := leat.append('channel.declared', wanted.id, actor, null, leat.channel_data(wanted));
    insert into leat.channels select wanted.*;
    if wanted.kind = 'stream' then
        insert into leat.streams (channel_id) values (wanted.id);
        insert into leat.stream_heads (channel_id, next_offset, bytes) values (wanted.id, 0, 0);
    end if;
    channel := wanted;
end
$$;

create function leat.default_channel() returns leat.channels
language sql stable set search_path = '' as $$
    select row(null, null, 'queue', 'standard', interval '30 s', 5, 'exponential', interval '1 s', interval '30 s', 0.2,
        '{}', false, interval '10 min', interval '0', null, null, null, null, interval '0', true, interval '0', 1,
        false, interval '0', 0, 0)::leat.channels
$$;

-- What the log says of a channel: all that was declared.
create function leat.channel_data(channel leat.channels) returns jsonb
language sql stable set search_path = '' as $$
    select case
        when channel.kind = 'exchange' then jsonb_build_object('name', channel.name, 'kind', channel.kind, 'mode', channel.mode,
            'declared_at', channel.declared_at)
        when channel.kind = 'stream' then (
            select jsonb_object_agg(p.key, p.value)
            from jsonb_each(to_jsonb(channel)) p
            where p.key in ('name', 'kind', 'mode', 'declared_at') or p.key = any (leat.stream_settings()))
        when channel.mode = 'standard' then d.data - array['circuit', 'circuit_cool_down', 'circuit_threshold']
        else d.data
        end
    from (
        select to_jsonb(channel)
            - array['id', 'epoch', 'deleted_at', 'linked', 'retention_age', 'retention_bytes', 'retention_messages'] as data
    ) d
$$;

-- What of a policy is of streams.
create function leat.stream_settings() returns text[]
language sql immutable as $$
    select array['dedup_window', 'retention_age', 'retention_bytes', 'retention_messages']
$$;

-- Refuses the settings that a channel cannot have. Answers the others, with the id
-- of the channel that dead_letter_to names; "" or null is none.
create function leat.check_policy(kind text, mode text, policy jsonb) returns jsonb
language plpgsql set search_path = '' as $$
declare
    setting text;
    target  leat.channels;
    goal    text;
begin
    if kind = 'exchange' and policy <> '{}' then
        raise exception 'is of queues and streams: an exchange takes none' using errcode = 'LE003', column = 'policy';
    end if;
    select p.key into setting
    from jsonb_object_keys(policy) p (key)
    where case when kind = 'stream' then p.key <> all (leat.stream_settings()) else starts_with(p.key, 'retention_') end
    order by p.key
    limit 1;
    if found then
        raise exception '%', case
            when kind = 'stream' then 'is of queues: a stream has only a dedupWindow and a retention'
            else 'is of streams: a queue keeps messages until they are settled'
            end using errcode = 'LE003', column = setting;
    end if;
    select p.key into setting
    from jsonb_object_keys(policy) p (key)
    where mode <> 'fifo' and p.key in ('circuit', 'circuit_cool_down', 'circuit_threshold')
    order by p.key
    limit 1;
    if found then
        raise exception 'is of FIFO queues: a standard queue has no circuits' using errcode = 'LE003', column = setting;
    elsif not policy ? 'dead_letter_to' then
        return policy;
    elsif coalesce(policy ->> 'dead_letter_to', '') = '' then
        return policy || '{"dead_letter_to": null}';
    end if;
    perform leat.lock_topology();
    target := leat.live_channel(policy ->> 'dead_letter_to', 'dead_letter_to');
    goal := leat.ordered_path(target.id);
    if goal is not null then
        raise exception 'a FIFO queue or a stream would get dead letters, which come in no order: (dead letters) %', goal
            using errcode = 'LE023', column = 'dead_letter_to';
    end if;
    return policy || jsonb_build_object('dead_letter_to', target.id);
end
$$;

create function leat.alter_channel(name text, patch jsonb, actor text) returns leat.channels
language plpgsql set search_path = '' set enable_seqscan = off as $$
declare
    channel leat.channels;
begin
    -- Before the row, as everywhere.
    if patch ? 'dead_letter_to' then
        perform leat.lock_topology();
    end if;
    select c.* into channel from leat.channels c
    where c.name = alter_channel.name and c.deleted_at is null
    for update;
    if not found then
        raise exception 'no channel %', name using errcode = 'LE002';
    end if;
    patch := patch - array['id', 'name', 'kind', 'mode', 'declared_at', 'epoch', 'deleted_at', 'linked'];
    channel := jsonb_populate_record(channel, leat.check_policy(channel.kind, channel.mode, patch));
    perform leat.append('channel.altered', channel.id, actor, null, leat.channel_data(channel) - 'declared_at');
    update leat.channels c
    set (lease, max_deliveries, retry_strategy, base_delay, max_delay, jitter, non_retryable, dead_letter_expired,
            dedup_window, priority_ageing, dead_letter_to, dead_letter_retention, circuit, circuit_cool_down, circuit_threshold,
            retention_age, retention_bytes, retention_messages) =
        row(channel.lease, channel.max_deliveries, channel.retry_strategy, channel.base_delay, channel.max_delay,
            channel.jitter, channel.non_retryable, channel.dead_letter_expired, channel.dedup_window, channel.priority_ageing,
            channel.dead_letter_to, channel.dead_letter_retention, channel.circuit, channel.circuit_cool_down,
            channel.circuit_threshold, channel.retention_age, channel.retention_bytes, channel.retention_messages)
    where c.id = channel.id;
    return channel;
end
$$;

-- Deletes a channel and its links; its history stays. Refused while it holds
-- messages, or takes dead letters of queues, unless forced.
create function leat.delete_channel(name text, force boolean, actor text) returns void
language plpgsql set search_path = '' set enable_seqscan = off as $$
declare
    channel leat.channels;
    link    leat.links;
    users   text[];
    held    bigint := 0;
begin
    perform leat.lock_topology();
    select c.* into channel from leat.channels c
    where c.name = delete_channel.name and c.deleted_at is null
    for update;
    if not found then
        raise exception 'no channel %', name using errcode = 'LE002';
    end if;
    users := array(select c.name from leat.channels c
        where c.dead_letter_to = channel.id and c.deleted_at is null and c.id <> channel.id order by c.name);
    if users <> '{}' and not force then
        raise exception 'channel % is the deadLetterTo of %', name, array_to_string(users, ', ') using errcode = 'LE024';
    end if;
    if channel.kind = 'queue' then
        perform leat.need_views();
    end if;
    -- Waits for open publishes into it, and into all that links lead here from:
    -- whoever follows links holds the channel where they begin.
    perform pg_advisory_xact_lock(1279607042, w.channel_id)
    from (select w.channel_id from leat.walk_links(channel.id, true) w order by 1) w;
    if channel.kind = 'queue' then
        perform leat.place_unplaced();
        select coalesce(sum(cardinality(r.ids)), 0) into held from leat.queue_runs r where r.channel_id = channel.id;
        if held > 0 and not force then
            raise exception 'channel % holds % messages', name, held using errcode = 'LE005';
        end if;
    elsif channel.kind = 'stream' then
        select h.next_offset - s.first_offset into held
        from leat.streams s
        join leat.stream_heads h on h.channel_id = s.channel_id
        where s.channel_id = channel.id
        for update of s;
        if held > 0 and not force then
            raise exception 'channel % holds % messages', name, held using errcode = 'LE005';
        end if;
    end if;
    perform leat.alter_channel(u.name, '{"dead_letter_to": null}', actor) from unnest(users) u (name);
    for link in
        select l.* from leat.links l where l.source_id = channel.id or l.target_id = channel.id order by l.id
    loop
        perform leat.drop_link(link, actor);
    end loop;
    perform leat.append('channel.deleted', channel.id, actor, null, jsonb_build_object('messages', held));
    -- Lanes before runs, as everywhere. Whoever has a run in hand right now is waited
    -- for, and may leave new ones that only another look finds.
    perform from leat.lanes l where l.channel_id = channel.id order by l.routing_key for update;
    loop
        delete from leat.queue_runs r where r.channel_id = channel.id;
        exit when not found;
    end loop;
    delete from leat.lanes l where l.channel_id = channel.id;
    delete from leat.circuits c where c.channel_id = channel.id;
    delete from leat.dedup d where d.channel_id = channel.id;
    perform leat.drop_stream(channel.id);
    update leat.channels c set deleted_at = clock_timestamp() where c.id = channel.id;
end
$$;

-- What a stream has beside its messages, which stay in the log.
create function leat.drop_stream(channel integer) returns void
language sql as $$ -- runs under its callers' settings
    select leat.drop_points(channel);
    delete from leat.stream_heads h where h.channel_id = channel;
    delete from leat.streams s where s.channel_id = channel
$$;
