-- +goose Up

-- Asynchronous projections: views that follow the log behind its commits. A row per
-- generation; all rows of a view bear the generation that made them.
create table leat.projections (
    position        bigint not null default 0,
    failed_position bigint,
    moved_at        timestamptz not null default clock_timestamp(),
    failed_at       timestamptz,
    generation      integer not null,
    version         integer not null,
    stopped         boolean not null default false,
    name            text not null,
    state           text not null check (state in ('live', 'building', 'retired')),
    actor           text,
    error           text,
    primary key (name, generation)
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0
);
comment on table leat.projections is 'The generations of asynchronous projections, each with its checkpoint.';
comment on column leat.projections.position is 'everything of the log up to here is in it; moves in the transaction of the effects';
comment on column leat.projections.failed_position is 'the event that it cannot take: it waits there until somebody lets it try again, or skip it';
comment on column leat.projections.version is 'of the code that makes it';
comment on column leat.projections.state is 'live: queries read it; building: is to take its place; retired: about to be removed';
comment on column leat.projections.actor is 'who asked for it';

create unique index projections_live on leat.projections (name) where state = 'live';
create unique index projections_building on leat.projections (name) where state = 'building';

-- What happened in a channel in a minute.
create table leat.channel_minutes (
    minute         timestamptz not null,
    published      bigint not null,
    copied         bigint not null,
    delivered      bigint not null,
    acked          bigint not null,
    retried        bigint not null,
    lease_expired  bigint not null,
    released       bigint not null,
    dead_lettered  bigint not null,
    recovered      bigint not null,
    expired        bigint not null,
    purged         bigint not null,
    discarded      bigint not null,
    generation     integer not null,
    channel_id     integer not null,
    first_delivery bytea,
    ack            bytea,
    primary key (generation, channel_id, minute)
) with (fillfactor = 70);
comment on column leat.channel_minutes.first_delivery is 'a sketch (DDSketch) of the seconds from a message''s publish, or due time, to its first delivery';
comment on column leat.channel_minutes.ack is 'and to its ack';

-- The messages of queues that may still be delivered or acked, for the latencies:
-- a row for those of 4096 neighbouring ids.
create table leat.pending_messages (
    block      bigint not null,
    generation integer not null,
    channel_id integer not null,
    data       bytea not null,
    primary key (generation, channel_id, block)
) with (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0
);
comment on column leat.pending_messages.block is 'message id / 4096';
comment on column leat.pending_messages.data is 'id, time, and whether it was delivered before, of each';

create table leat.consumer_activity (
    first_seen timestamptz not null,
    last_seen  timestamptz not null,
    delivered  bigint not null,
    acked      bigint not null,
    failed     bigint not null,
    released   bigint not null,
    generation integer not null,
    channel_id integer not null,
    consumer   text not null,
    primary key (generation, channel_id, consumer)
) with (fillfactor = 70);
comment on column leat.consumer_activity.consumer is 'as the log calls it, at most 200 characters; empty: not known';
comment on column leat.consumer_activity.failed is 'attempts that it gave up: retried or dead-lettered';

create table leat.failing_keys (
    failures     bigint not null,
    dead         bigint not null,
    first_at     timestamptz not null,
    last_at      timestamptz not null,
    last_message bigint not null,
    generation   integer not null,
    channel_id   integer not null,
    routing_key  text not null,
    reason       text not null,
    primary key (generation, channel_id, routing_key, reason)
) with (fillfactor = 70);
comment on column leat.failing_keys.failures is 'attempts that failed';
comment on column leat.failing_keys.dead is 'messages that became dead letters';
comment on column leat.failing_keys.reason is 'the error class, else the words of the consumer, else why the broker says so; at most 200 characters';
