-- The SQL surface: what any language calls in its own transaction. Names and
-- receipts are text here; the work is done by the functions the broker calls.

create function leat.queue_id(queue text) returns integer
language plpgsql stable set search_path = '' as $$
declare
    channel leat.channels;
begin
    select c.* into channel from leat.channels c where c.name = queue and c.deleted_at is null;
    if not found or channel.kind <> 'queue' then
        raise exception 'no queue %', coalesce(quote_literal(queue), 'null') || case channel.kind
            when 'exchange' then ': it is an exchange, which stores nothing'
            when 'stream' then ': it is a stream, which is read by offset'
            else '' end
            using errcode = 'LE002';
    end if;
    return channel.id;
end
$$;

create function leat.channel_id(channel text) returns integer
language plpgsql stable set search_path = '' as $$
declare
    found_id integer;
begin
    select c.id into found_id from leat.channels c where c.name = channel and c.deleted_at is null;
    if not found then
        raise exception 'no channel %', coalesce(quote_literal(channel), 'null') using errcode = 'LE002';
    end if;
    return found_id;
end
$$;

-- Publishes payloads into a channel, all or none; their ids in order. Arrays other
-- than payloads may be null: every message then has the default.
create function leat.publish_batch(
    channel       text,
    payloads      bytea[],
    routing_keys  text[] default null,
    headers       jsonb[] default null,
    content_types text[] default null,
    priorities    smallint[] default null,
    deliver_ats   timestamptz[] default null,
    expires_ats   timestamptz[] default null,
    dedup_ids     text[] default null,
    actor         text default 'sql:' || session_user
) returns bigint[]
language plpgsql set search_path = '' as $$
declare
    id     integer := leat.channel_id(channel);
    count  integer := coalesce(cardinality(payloads), 0);
    bad    record;
    stored record;
begin
    if count not between 1 and 10000 then
        raise exception 'a batch holds 1 to 10,000 messages, not %', count using errcode = 'LE003', column = 'payloads';
    end if;
    select u.n - 1 as index, u.field into bad
    from (
        select u.n, case
            when u.payload is null or length(u.payload) > 67108864 then 'payload'
            when octet_length(u.key) > 255 then 'routingKey'
            when jsonb_typeof(u.header) <> 'object' or octet_length(u.header::text) > 32768 then 'headers'
            when octet_length(u.content_type) not between 1 and 255 then 'contentType'
            when u.priority not between 0 and 9 then 'priority'
            when u.expires_at <= clock_timestamp() then 'expiresAt'
            when octet_length(u.dedup_id) not between 1 and 255 then 'dedupId'
            end as field
        from unnest(payloads, routing_keys, headers, content_types, priorities, expires_ats, dedup_ids)
            with ordinality u (payload, key, header, content_type, priority, expires_at, dedup_id, n)
    ) u
    where u.field is not null or u.n > count
    order by u.n
    limit 1;
    if found then
        raise exception 'message %: % is out of range', bad.index, coalesce(bad.field, 'its payload')
            using errcode = 'LE003', column = coalesce(bad.field, 'payloads'), hint = bad.index;
    end if;

    select p.ids, p.statuses into stored
    from leat.publish_many(
        array_fill(1, array[count]), array_fill(id, array[count]),
        array(select coalesce(u.key, '') from unnest(payloads, routing_keys) with ordinality u (payload, key, n) order by u.n),
        payloads, content_types, headers::text[], priorities, null, deliver_ats, null, expires_ats, dedup_ids,
        array_fill(actor, array[count]), true) p;
    select u.n - 1 as index, u.s as status into bad
    from unnest(stored.statuses) with ordinality u (s, n)
    where u.s > 1 and u.s <> 5
    order by u.n
    limit 1;
    if found then
        case bad.status
            when 2 then
                raise exception 'message %: its dedupId was used with other content', bad.index
                    using errcode = 'LE006', column = 'dedupId', hint = bad.index;
            when 6 then
                raise exception 'message %: a FIFO queue takes no priority', bad.index
                    using errcode = 'LE003', column = 'priority', hint = bad.index;
            when 7 then
                raise exception 'message %: a stream takes no priority, deliverAt or expiresAt', bad.index
                    using errcode = 'LE003', hint = bad.index, column = case
                        when priorities[bad.index + 1] <> 0 then 'priority'
                        when deliver_ats[bad.index + 1] is not null then 'deliverAt'
                        else 'expiresAt' end;
            else
                raise exception 'no channel %', quote_literal(channel) using errcode = 'LE002';
        end case;
    end if;
    return stored.ids;
end
$$;

-- Publishes one message; its id.
create function leat.publish(
    channel      text,
    payload      bytea,
    routing_key  text default '',
    headers      jsonb default '{}',
    content_type text default 'application/json',
    priority     smallint default 0,
    deliver_at   timestamptz default null,
    expires_at   timestamptz default null,
    dedup_id     text default null
) returns bigint
language sql set search_path = '' as $$
    select (leat.publish_batch(channel, array[payload], array[routing_key], array[headers], array[content_type],
        array[priority], array[deliver_at], array[expires_at], case when dedup_id is not null then array[dedup_id] end))[1]
$$;

-- Up to max messages under a lease (null: the queue's).
create function leat.poll(
    queue        text,
    max          integer default 10,
    lease        interval default null,
    routing_keys text[] default null,
    consumer     text default null
) returns table (
    receipt           text,
    message_id        bigint,
    origin_message_id bigint,
    routing_key       text,
    payload           bytea,
    content_type      text,
    headers           jsonb,
    priority          smallint,
    attempt           integer,
    published_at      timestamptz,
    lease_until       timestamptz
)
language plpgsql set search_path = '' as $$
declare
    claimed record;
begin
    if max is null or max not between 1 and 1000 then
        raise exception 'max is 1 to 1000' using errcode = 'LE003', column = 'max';
    elsif lease <= interval '0' or lease > interval '24 hours' then
        raise exception 'a lease is more than nothing and at most 24 hours' using errcode = 'LE003', column = 'lease';
    end if;
    for claimed in
        select c.* from leat.claim(leat.queue_id(queue), array[max], array[lease],
            array[coalesce(consumer, 'sql:' || session_user)], routing_keys, null, 1, true) c
    loop
        -- A statement of its own: it sees what the claim saw.
        return query
        select claimed.delivery || ':' || m.id, m.id, e.position, m.key, e.payload, coalesce(e.content_type, 'application/json'),
            coalesce(m.headers::jsonb, e.headers, '{}'), m.priority, m.attempt, e.at, claimed.lease_until
        from unnest(claimed.message_ids, claimed.origin_ids, claimed.keys, claimed.priorities, claimed.attempts, claimed.headers)
            with ordinality m (id, origin, key, priority, attempt, headers, n)
        join leat.events e on e.position = coalesce(m.origin, m.id)
        order by m.n;
    end loop;
end
$$;

create function leat.parse_receipts(receipts text[], out deliveries bigint[], out message_ids bigint[])
language plpgsql immutable set search_path = '' as $$
declare
    bad record;
begin
    select r.receipt, r.n - 1 as index into bad
    from unnest(receipts) with ordinality r (receipt, n)
    where r.receipt is null or r.receipt !~ '^[1-9][0-9]{0,17}:[1-9][0-9]{0,17}$'
    order by r.n
    limit 1;
    if found then
        raise exception 'receipt %: not of the form delivery:message', bad.index
            using errcode = 'LE007', column = 'receipts', hint = bad.index;
    end if;
    select coalesce(array_agg(split_part(r.receipt, ':', 1)::bigint order by r.n), '{}'),
        coalesce(array_agg(split_part(r.receipt, ':', 2)::bigint order by r.n), '{}')
    into deliveries, message_ids
    from unnest(receipts) with ordinality r (receipt, n);
end
$$;

-- A row per receipt: settled, or what became of it before (leat.receipt_fate).
create function leat.receipt_results(queue integer, receipts text[], deliveries bigint[], message_ids bigint[],
    statuses smallint[], settled text) returns table (receipt text, result text)
language sql volatile set search_path = '' as $$
    select u.receipt, case when u.status = 0 then settled else leat.receipt_fate(queue, u.delivery, u.message_id) end
    from unnest(receipts, deliveries, message_ids, statuses) with ordinality u (receipt, delivery, message_id, status, n)
    order by u.n
$$;

create function leat.ack(queue text, receipts text[]) returns table (receipt text, result text)
language plpgsql set search_path = '' as $$
declare
    queue_   integer := leat.queue_id(queue);
    r        record;
    sorted   record;
    groups   record;
    statuses smallint[];
begin
    select p.* into r from leat.parse_receipts(receipts) p;
    select array_agg(u.n order by u.delivery, u.message) as places, array_agg(u.message order by u.delivery, u.message) as messages
    into sorted
    from unnest(r.deliveries, r.message_ids) with ordinality u (delivery, message, n);
    select array_agg(g.delivery order by g.delivery) as deliveries, array_agg(g.start order by g.delivery) as starts
    into groups
    from (
        select r.deliveries[s.place] as delivery, min(s.n)::integer as start
        from unnest(sorted.places) with ordinality s (place, n)
        group by 1
    ) g;
    statuses := leat.ack_many(array(select queue_ from unnest(groups.deliveries)),
        array(select 'sql:' || session_user from unnest(groups.deliveries)), groups.deliveries, groups.starts, sorted.messages,
        (select c.mode = 'fifo' from leat.channels c where c.id = queue_), true);
    return query select * from leat.receipt_results(queue_, receipts, r.deliveries, r.message_ids,
        array(select coalesce(s.status, 0::smallint) from unnest(sorted.places, statuses) s (place, status) order by s.place),
        'acked');
end
$$;

create function leat.nack(queue text, receipts text[], action text default 'retry', delay interval default null,
    reason text default null, error_class text default null) returns table (receipt text, result text)
language plpgsql set search_path = '' as $$
declare
    id integer := leat.queue_id(queue);
    r  record;
begin
    if delay < interval '0' or delay > interval '10 years' then
        raise exception 'delay is 0 to 10 years' using errcode = 'LE003', column = 'delay';
    end if;
    select p.* into r from leat.parse_receipts(receipts) p;
    return query select * from leat.receipt_results(id, receipts, r.deliveries, r.message_ids,
        leat.nack_many(id, r.deliveries, r.message_ids, action, delay, reason, error_class, 'sql:' || session_user), 'nacked');
end
$$;

create function leat.extend(queue text, receipts text[], lease interval) returns table (receipt text, result text)
language plpgsql set search_path = '' as $$
declare
    id integer := leat.queue_id(queue);
    r  record;
begin
    if lease is null or lease <= interval '0' or lease > interval '24 hours' then
        raise exception 'a lease is more than nothing and at most 24 hours' using errcode = 'LE003', column = 'lease';
    end if;
    select p.* into r from leat.parse_receipts(receipts) p;
    return query select * from leat.receipt_results(id, receipts, r.deliveries, r.message_ids,
        (select e.statuses from leat.extend_many(id, r.deliveries, r.message_ids, lease, 'sql:' || session_user) e), 'extended');
end
$$;

create function leat.release(queue text, receipts text[]) returns table (receipt text, result text)
language plpgsql set search_path = '' as $$
declare
    id integer := leat.queue_id(queue);
    r  record;
begin
    select p.* into r from leat.parse_receipts(receipts) p;
    return query select * from leat.receipt_results(id, receipts, r.deliveries, r.message_ids,
        leat.release_many(id, r.deliveries, r.message_ids, 'sql:' || session_user), 'released');
end
$$;
