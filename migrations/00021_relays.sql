-- +goose Up

-- Relays move the rows of a table that Watermill's SQL publisher writes into a
-- channel. How far one is changes in the transaction that publishes.
create table leat.relays (
    name             text primary key,
    source           text not null,
    channel          text not null,
    key              text not null,
    remove           boolean not null,
    every            interval not null check (every > '0'),
    declared_at      timestamptz not null default clock_timestamp(),

    phase            smallint not null,
    last_transaction xid8 not null default '0',
    last_offset      bigint not null default 0,
    floor_offset     bigint not null default 0,
    base_offset      bigint not null default 0,
    max_offset       bigint not null default 0,
    old_transaction  xid8 not null default '0',
    old_offset       bigint not null default 0,
    old_max          bigint not null default 0,
    horizon          xid8 not null default '0',
    cluster          bigint not null,
    relation         oid not null,
    node             oid not null,

    moved            bigint not null default 0,
    moved_at         timestamptz,
    restored_at      timestamptz,
    failure          text,
    failed_at        timestamptz
);
comment on column leat.relays.source is 'the table, quoted';
comment on column leat.relays.key is 'the metadata whose value is the routing key; '''': none';
comment on column leat.relays.remove is 'rows that were moved are deleted, instead of remembering a place';
comment on column leat.relays.phase is '0: rows beyond base_offset; 1: those up to it that are behind the place; 2: those before the old place';
comment on column leat.relays.last_transaction is 'with last_offset, the place: of the last row that was moved';
comment on column leat.relays.floor_offset is 'phase 1: rows up to it were moved before';
comment on column leat.relays.base_offset is 'the greatest offset when transaction ids were taken anew; rows up to it are for phases 1 and 2';
comment on column leat.relays.max_offset is 'the greatest that was moved';
comment on column leat.relays.old_transaction is 'with old_offset, the place before; old_max is the greatest offset that was moved then';
comment on column leat.relays.horizon is 'no row beyond base_offset has an older transaction';
comment on column leat.relays.cluster is 'the system identifier of the cluster whose transaction ids the place is of';
comment on column leat.relays.node is 'the file of the table, which truncating changes';
