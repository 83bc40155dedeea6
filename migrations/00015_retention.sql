-- +goose Up

-- Where the log begins, once something has left it.
create table leat.log_begin (
    singleton      boolean primary key default true check (singleton),
    first_position bigint not null,
    event          bigint not null
);
comment on table leat.log_begin is 'The view of the last log.dropped event; empty while nothing was dropped.';
comment on column leat.log_begin.event is 'the log.dropped event, which says what streams and points were before';
