-- +goose Up

-- Kinds are past tense and never renamed; later migrations add to them.
create type leat.event_kind as enum (
    'channel.declared',
    'channel.altered',
    'channel.deleted',
    'message.published',
    'message.delivered',
    'message.extended',
    'message.acked',
    'message.retried',
    'message.lease_expired',
    'message.released',
    'message.dead_lettered',
    'message.expired',
    'message.purged',
    'message.discarded'
);

-- The one source of positions and message ids. CACHE 1, because the settled
-- position reads last_value as "every position up to here has been drawn".
-- It starts at 0, drawn here, so that last_value always counts drawn positions.
create sequence leat.position_seq as bigint minvalue 0 start 0 cache 1;
select nextval('leat.position_seq');

-- One wide table: an absent value costs one bit. A published message is a row
-- of its own and holds the payload, once, for ever; everything else is one row
-- per batch, which lists the messages in message_ids.
-- Wide columns come last and fixed ones first, so that no row pays for padding.
create table leat.events (
    position      bigint not null default nextval('leat.position_seq'),
    at            timestamptz not null default clock_timestamp(),
    delivery      bigint,
    stream_offset bigint,
    due_at        timestamptz,
    expires_at    timestamptz,
    channel_id    integer,
    kind          leat.event_kind not null,
    priority      smallint,
    routing_key   text,
    content_type  text,
    actor         text,
    headers       jsonb,
    message_ids   bigint[],
    origin_ids    bigint[],
    data          jsonb,
    payload       bytea,
    primary key (position)
) partition by range (position);

comment on table leat.events is 'The log: every action of the broker, append-only.';
comment on column leat.events.priority is 'null is 0';
comment on column leat.events.content_type is 'null is application/json';
comment on column leat.events.headers is 'null is {}';
comment on column leat.events.message_ids is 'the messages of a batch event; null on message.published, whose message id is its position';

-- A message's history is found through the batch events of its channel. Rows of
-- published messages are not in it, so it costs one entry per batch and nothing
-- per message.
create index events_batches on leat.events (channel_id, position)
    where message_ids is not null;

-- +goose StatementBegin
create function leat.refuse_change() returns trigger language plpgsql set search_path = '' as $$
begin
    raise exception 'leat.events is append-only: % refused', tg_op
        using errcode = 'LE010', hint = 'Old partitions leave the log by retention only.';
end
$$;
-- +goose StatementEnd

create trigger append_only before update or delete on leat.events
    for each row execute function leat.refuse_change();
create trigger append_only_truncate before truncate on leat.events
    for each statement execute function leat.refuse_change();

-- Takes the rows when nobody made a partition in time; leat.make_partitions()
-- turns it into an ordinary one afterwards, without moving a row.
create table leat.events_default partition of leat.events default;
create trigger append_only_truncate before truncate on leat.events_default
    for each statement execute function leat.refuse_change();

-- The fence of the settled position: what a transaction reads before it takes
-- its first position. It shares an advisory lock on the sequence's value of that
-- moment, so a reader of pg_locks knows a bound below which nothing is still open.
-- Once per transaction: the local setting and the lock are undone by the same
-- rollbacks, savepoints included.
-- A view, so that a statement can fence itself and append at once: it draws
-- positions in rows that it makes from this one.
create view leat.fence as
select case
           when coalesce(current_setting('leat.fenced', true), '') = ''
           then pg_advisory_xact_lock_shared(1279607041, mod(s.last_value, 2147483648)::integer)::text
               || set_config('leat.fenced', 'on', true)
           else 'before'
       end as fenced
from leat.position_seq s;
