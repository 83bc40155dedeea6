-- +goose Up
alter type leat.event_kind add value 'log.restored';
alter type leat.event_kind add value 'relay.declared';
alter type leat.event_kind add value 'relay.skipped';
alter type leat.event_kind add value 'relay.deleted';

-- Which database this is, to notice that it was restored from another one.
create table leat.home (
    singleton boolean primary key default true check (singleton),
    cluster   bigint not null,
    database  oid not null,
    timeline  bigint not null,
    restored  bigint,
    restored_at timestamptz
);
comment on column leat.home.cluster is 'the system identifier of the server''s data folder';
comment on column leat.home.restored is 'the position of the last log.restored event';
comment on column leat.home.timeline is 'of the write-ahead log: a standby that is promoted, and a recovery to a point in time, begin another one';

-- The epochs of streams that came after their first one, which is that of their channel.
create table leat.epochs (
    channel_id integer not null references leat.channels,
    epoch      bigint not null,
    began      bigint not null,
    primary key (channel_id, epoch)
);
comment on table leat.epochs is 'The view of log.restored events: what came after a restore is not what came after the same offsets before.';
comment on column leat.epochs.epoch is 'the time of the restore in microseconds: no two restores of one dump have the same';
comment on column leat.epochs.began is 'the offset where the stream ended then';
