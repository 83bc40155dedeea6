-- +goose Up

-- Ranges of the past that are published again.
create table leat.replays (
    id            bigint primary key,
    source_id     integer not null references leat.channels,
    target_id     integer not null references leat.channels,
    from_position bigint not null,
    to_position   bigint not null,
    since         timestamptz,
    until         timestamptz,
    pattern       text,
    rate          integer not null check (rate >= 0),
    actor         text,
    started_at    timestamptz not null,
    run           integer not null,
    by_offset     boolean not null,
    first         bigint not null,
    next          bigint not null,
    last          bigint not null,
    upto          bigint,
    after_id      bigint not null,
    messages      bigint not null,
    bytes         bigint not null,
    copies        bigint not null,
    dead          bigint not null,
    unroutable    bigint not null,
    gone          bigint not null,
    changed_at    timestamptz not null,
    finished      boolean not null
);
comment on table leat.replays is 'The view of replay.* events: one row per replay.';
comment on column leat.replays.id is 'the position of its replay.started event';
comment on column leat.replays.to_position is 'never beyond what was settled when it started: it cannot meet its own copies';
comment on column leat.replays.rate is 'messages per second; 0 is no bound';
comment on column leat.replays.run is 'grows with each resume: who began before goes on no more';
comment on column leat.replays.by_offset is 'of a stream: first, next and last are offsets; else they are positions';
comment on column leat.replays.next is 'everything before it is done';
comment on column leat.replays.upto is 'of positions: where the part of the range ends that is being gone through, in the order of the ids';
comment on column leat.replays.after_id is 'of that part: ids up to this one are done';
comment on column leat.replays.gone is 'messages whose payload has left the log';

-- What the log says of replays, and which messages were published again, is read
-- from these.
create index events_replays on leat.events (channel_id, position)
    where kind in ('replay.started', 'replay.resumed', 'replay.advanced', 'replay.finished');
create index events_republished on leat.events (channel_id, position)
    where kind = 'message.routed' and data ->> 'cause' = 'republish';
