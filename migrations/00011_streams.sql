-- +goose Up

-- A message of a stream is found by its offset. Nothing else is in this index.
create index events_stream on leat.events (channel_id, stream_offset)
    where stream_offset is not null;
comment on column leat.events.stream_offset is 'in its stream, gapless from 0; of a batch of copies: of the first one';

alter table leat.channels drop constraint channels_mode_check;
alter table leat.channels
    add constraint channels_mode_check check (
        (kind = 'queue' and mode in ('standard', 'fifo'))
        or (kind = 'exchange' and mode in ('direct', 'fanout', 'topic', 'headers'))
        or (kind = 'stream' and mode = 'stream')),
    add column retention_age      interval not null default '0',
    add column retention_bytes    bigint not null default 0 check (retention_bytes >= 0),
    add column retention_messages bigint not null default 0 check (retention_messages >= 0);
comment on column leat.channels.retention_age is 'of a stream: older messages are trimmed; 0 keeps them';
comment on column leat.channels.retention_bytes is 'of a stream: of payloads; 0 is no bound';
comment on column leat.channels.retention_messages is 'of a stream; 0 is no bound';

-- Where a stream begins. Trimming moves it on; the log keeps what was before.
create table leat.streams (
    channel_id   integer primary key references leat.channels,
    first_offset bigint not null default 0,
    first_bytes  bigint not null default 0
);
comment on table leat.streams is 'The view of stream.trimmed events: one row per stream.';
comment on column leat.streams.first_bytes is 'of the payloads that were trimmed';

-- Where a stream ends: one row per stream. Its key grows with each publish, so that
-- a look for the greatest one finds it first, however many old versions a held
-- snapshot keeps.
create table leat.stream_heads (
    channel_id  integer not null,
    next_offset bigint not null,
    bytes       bigint not null,
    primary key (channel_id, next_offset)
) with (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0
);
comment on column leat.stream_heads.bytes is 'of all payloads below next_offset, trimmed ones included';

-- Replication points: the view of point.* events.
create table leat.points (
    channel_id integer not null references leat.channels,
    name       text not null,
    partitions smallint not null check (partitions between 1 and 64),
    created_at timestamptz not null,
    generation bigint not null,
    primary key (channel_id, name)
);
comment on column leat.points.partitions is '1: one consumer at a time; more: a group shares the stream by a hash of the routing key';
comment on column leat.points.generation is 'the position of its point.created event, or of its last point.reset: who began before commits no more';

create table leat.point_positions (
    channel_id   integer not null,
    name         text not null,
    partition    smallint not null,
    next_offset  bigint not null,
    committed_at timestamptz not null,
    primary key (channel_id, name, partition),
    foreign key (channel_id, name) references leat.points on delete cascade
) with (fillfactor = 50);
comment on column leat.point_positions.next_offset is 'everything of the partition below it was processed';

-- Who reads with a point now. No event says so, and a crash forgets it: whoever was
-- connected comes again.
create unlogged table leat.point_members (
    channel_id integer not null,
    name       text not null,
    member     text not null,
    broker     text not null,
    joined     timestamptz not null,
    until      timestamptz not null,
    primary key (channel_id, name, member)
);
comment on column leat.point_members.joined is 'tells a member from an earlier one of the same name';

create unlogged table leat.point_holders (
    channel_id integer not null,
    name       text not null,
    partition  smallint not null,
    member     text not null,
    joined     timestamptz not null,
    since      timestamptz not null,
    primary key (channel_id, name, partition)
);
comment on column leat.point_holders.joined is 'of the member';

-- The brokers that run, and how each hears of commits. A crash forgets them; they
-- enter themselves again with their next sign of life.
create unlogged table leat.brokers (
    id     text primary key,
    tail   text not null check (tail in ('wal', 'notify')),
    reason text,
    since  timestamptz not null,
    until  timestamptz not null
);
comment on column leat.brokers.tail is 'wal: reads the write-ahead log; notify: listens, and has to be notified';
comment on column leat.brokers.reason is 'why it does not read the write-ahead log';
